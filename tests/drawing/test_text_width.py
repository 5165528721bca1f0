"""Widths of texts: upper bounds, and what is cut to fit."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dataflow.drawing.text_width import ADVANCES, fitted, fitted_name, printable, text_width


def test_the_table_has_each_printable_ascii_character() -> None:
    assert len(ADVANCES) == len(range(32, 127))


def test_a_character_outside_ascii_has_at_least_1_1_em() -> None:
    assert all([text_width(chr(code), 10) >= 11 for code in range(0x7F, 0x30000, 97)])


def test_a_ligature_is_as_wide_as_its_letters() -> None:
    assert text_width("\ufb03", 100) >= text_width("ffi", 100)


@pytest.mark.parametrize("text", ["payments[0] -> check[0]", "x" * 300, "größe → 人数", "i", ""])
def test_a_fitted_text_fits_and_begins_as_the_whole(text: str) -> None:
    for width in range(0, 3000, 7):
        cut = fitted(text, width, 12)
        assert not cut or text_width(cut, 12) <= width
        assert text.startswith(cut.removesuffix("…"))


@pytest.mark.parametrize("name", ["orders-of-the-web-shop", "m" * 300, "größe-der-人数-von-heute", "i", ""])
def test_a_fitted_name_keeps_its_suffix_where_that_fits(name: str) -> None:
    for width in range(0, 600, 7):
        cut = fitted_name(name, "[12]", width, 12)
        assert not cut or text_width(cut, 12) <= width
        assert cut.endswith("[12]") or width < text_width("m…[12]", 12)
        head, _, tail = cut.removesuffix("[12]").partition("…")
        assert name.startswith(head) or not cut.endswith("[12]")
        assert name.endswith(tail)
    assert len({fitted_name(f"{'n' * 40}{end}", "[0]", 166, 12) for end in ("east", "west")}) == 2


def test_any_printable_text_is_text_in_xml() -> None:
    text = printable("".join([chr(code) for code in (*range(0x300), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10010))]))
    element = ElementTree.Element("text")
    element.text = text
    assert ElementTree.fromstring(ElementTree.tostring(element, encoding="utf-8")).text == text
