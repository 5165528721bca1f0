"""Pictures as a browser lays them out, and whether the browser kit sees what is wrong with one."""

from __future__ import annotations

import pytest

from dataflow.drawing import Box, Canvas, Word, text_width
from tests.drawing.browser import FONTS, SCHEMES, Browser, Look

pytestmark = pytest.mark.extended

ASCII = [chr(code) for code in range(33, 127)]
CODES = (*range(0xA1, 0x2E80), *range(0xA4D0, 0xAC00), *range(0xF900, 0x10400), *range(0x1F000, 0x1FB00))
LETTERS = [chr(code) for code in CODES if chr(code).isprintable()]


def sample() -> Canvas:
    canvas = Canvas("sample", "sample")
    canvas.rect(0, 0, 240, 20, "blocked")
    canvas.label(Box(0, 0, 240, 20), ["blocked ", Word("337 ms", "strong"), ", waits"], "blocked")
    return canvas


def forced(rest: str) -> str:
    """Return a picture with a text that the library would not have written."""
    return sample().svg().replace("</svg>", rest + "</svg>")


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("bold", [False, True])
def test_no_text_is_wider_than_its_bound(browser: Browser, font: str, bold: bool) -> None:  # noqa: FBT001
    pairs = [a + b for a in ASCII for b in ASCII] + ["a b", "W" * 50, "m" * 200, "->" * 20, "ffi AVAVA To-o r'f'" * 5]
    browser.load(sample().svg())
    for size, texts in ((10, pairs), (17, pairs), (12, [f"n{letter}n" for letter in LETTERS])):
        widths = browser.text_widths(texts, size, Look(font, bold))
        assert [text for text, width in zip(texts, widths, strict=True) if width > text_width(text, size)] == []


def test_a_picture_that_holds_has_no_problems(browser: Browser) -> None:
    assert browser.problems(sample().svg()) == []


@pytest.mark.parametrize(
    ("picture", "problem"),
    [
        (forced('<text x="30" y="18">over it</text>'), '"blocked 337 ms, waits" overlaps "over it"'),
        (forced('<text x="200" y="40">out of the picture it runs</text>'), "leaves the picture"),
        (forced('<text x="200" y="9" class="s5">out of the bar</text>'), '"out of the bar" leaves its box'),
        (forced('<text x="0" y="34" style="fill:#888">grey</text>'), '"grey" has a contrast of 3.5 on its ground'),
        ("<!DOCTYPE html><p style='opacity:.5'>pale</p>", '"pale" has a contrast of 4.0 on its ground'),
        ("<!DOCTYPE html><p style='color:#000'>dark</p><style>:root{color-scheme:light dark}</style>",
         'dark, 800 px: "dark" has a contrast of 1.1 on its ground'),
        (forced('<image href="http://127.0.0.1:1/x"/>'), "requests http://127.0.0.1:1/x"),
        ("<!DOCTYPE html><div style='width:1200px'>wide</div>", "the page is 1208 px wide"),
        ("<!DOCTYPE html><meta http-equiv=Content-Security-Policy content=\"default-src 'none'\"><b style='top:0'>b",
         "complains: Applying inline style violates"),
        ("<!DOCTYPE html><details><summary>s</summary>" + forced('<text x="30" y="18">over it</text>') + "</details>",
         '"blocked 337 ms, waits" overlaps "over it"'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_picture_is_reported(browser: Browser, picture: str, problem: str) -> None:
    assert problem in " / ".join(browser.problems(picture))


def test_a_picture_is_shown_in_both_colour_schemes(browser: Browser) -> None:
    browser.load(sample().svg())
    light, dark = [browser.screenshot(Look(scheme=scheme)) for scheme in SCHEMES]
    assert light.startswith(b"\x89PNG")
    assert light != dark


def test_a_picture_that_holds_in_one_font_only_is_reported_for_the_other(browser: Browser) -> None:
    narrow = forced('<text x="0" y="32">mmmmmmmmmm</text><text x="112" y="32">n</text>')
    problems = browser.problems(narrow)
    assert any([problem.startswith("DejaVu Sans, light") for problem in problems])
    assert not any([problem.startswith("Liberation Sans, light") for problem in problems])
