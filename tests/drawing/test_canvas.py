"""The canvas: places of texts, what is cut, and that names are text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dataflow.drawing import CAUSES, Box, Canvas, Word, plain, text_width, words_width, wrapped

NAMES = ["<img src=x onerror=alert(1)>", "]]>", "&amp;", "a\x00b", "\ud800", "\u202eabc", "x" * 300, "\"'", "\n"]
WAY = "{http://www.w3.org/2000/svg}"


def parsed(canvas: Canvas) -> ElementTree.Element:
    return ElementTree.fromstring(canvas.svg())


def test_a_text_that_fits_its_bar_is_inside() -> None:
    bar = Box(0, 0, 200, 20)
    assert Canvas("c", "t").label(bar, "blocked 337 ms", "blocked").within(bar)


@pytest.mark.parametrize(("room", "side"), [(Box(0, 0, 400, 20), "right"), (Box(-300, 0, 60, 20), "left")])
def test_a_text_that_does_not_fit_its_bar_is_beside_it(room: Box, side: str) -> None:
    box = Canvas("c", "t").label(Box(20, 0, 40, 20), "blocked 337 ms", "blocked", room=room)
    assert box.within(room)
    assert (box.left >= 40) if side == "right" else (box.right <= 20)


def test_a_text_is_beside_a_bar_that_is_too_low_for_it() -> None:
    assert Canvas("c", "t").label(Box(0, 0, 200, 6), "blocked", "blocked", room=Box(0, 0, 400, 20)).left >= 200


def test_a_label_takes_no_place_of_another_text() -> None:
    canvas = Canvas("c", "t")
    canvas.text(60, 14, "here is a text")
    box = canvas.label(Box(20, 0, 40, 20), "blocked 337 ms", "blocked", room=Box(-300, 0, 400, 20))
    assert box.right <= 20
    assert not canvas.overlaps()


def test_a_bar_without_room_for_a_character_has_the_words_as_its_title() -> None:
    canvas = Canvas("c", "t")
    canvas.label(Box(0, 0, 4, 20), "blocked 337 ms", "blocked", room=Box(0, 0, 6, 20))
    (bar,) = [rect for rect in parsed(canvas).iter(f"{WAY}rect") if rect.get("class") == "hit"]
    assert bar.findtext(f"{WAY}title") == "blocked 337 ms"
    assert not canvas.texts


def test_a_text_without_room_is_cut_and_its_title_has_the_whole() -> None:
    canvas = Canvas("c", "t")
    box = canvas.text(0, 20, ["waits for ", Word("check[0] -> join[1]", "strong")], width=90)
    (text,) = parsed(canvas).iter(f"{WAY}text")
    assert box.right - box.left <= 90
    assert text.findtext(f"{WAY}title") == "waits for check[0] -> join[1]"
    assert text.findtext(f"{WAY}tspan") == "c…"


def test_words_that_follow_each_other_are_parts_of_one_text() -> None:
    canvas = Canvas("c", "t")
    canvas.text(0, 20, ["a ", Word("b", "strong"), " c ", Word("d", "blocked")])
    (text,) = parsed(canvas).iter(f"{WAY}text")
    assert "".join(text.itertext()) == "a b c d"
    assert [part.get("class") for part in text] == ["strong", "blocked"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_wherever_it_is_written(name: str) -> None:
    canvas = Canvas("c", name)
    with canvas.group("panel", title=name):
        canvas.rect(0, 0, 10, 10, title=name)
        canvas.text(0, 30, [name, Word(name, "strong")], width=80, title=name)
    tags = {element.tag.removeprefix(WAY) for element in parsed(canvas).iter()}
    assert tags <= {"svg", "title", "style", "rect", "g", "text", "tspan"}


def test_a_picture_grows_with_what_is_drawn() -> None:
    canvas = Canvas("c", "t", margin=10)
    canvas.circle(-20, 5, 5, "barrier")
    box = canvas.text(0, 20, "payments[0]")
    left, top, width, height = [float(each) for each in parsed(canvas).get("viewBox", "").split()]
    assert (left, top) == (-35, -10)
    assert left + width >= box.right + 10
    assert top + height >= box.bottom + 10


def test_texts_that_overlap_are_reported() -> None:
    canvas = Canvas("c", "t")
    for x, y, words in ((0, 0, "one"), (20, 5, "two"), (0, 20, "three")):
        canvas.text(x, y, words)
    assert canvas.overlaps() == [("one", "two")]


def test_each_element_has_a_line_of_its_own() -> None:
    canvas = Canvas("c", "t")
    with canvas.group():
        canvas.line(0, 0, 5, 5, "barrier")
        canvas.diamond(5, 5, 3, "snapshot outline")
    lines = canvas.svg().splitlines()
    assert [line[:8] for line in lines[-6:]] == ["<rect cl", "<g>", "<line cl", "<polygon", "</g>", "</svg>"]


def test_patterns_of_two_pictures_have_different_names() -> None:
    pictures = [Canvas("c", "t"), Canvas("c", "t")]
    for width, canvas in enumerate(pictures, 10):
        canvas.rect(0, 0, width, 10, "blocked")
    names = [pattern.get("id") for canvas in pictures for pattern in parsed(canvas).iter(f"{WAY}pattern")]
    assert len(set(names)) == 2


def test_pictures_of_one_page_share_the_style_sheet_of_the_first() -> None:
    first, second = Canvas("c", "t"), Canvas("c", "t")
    first.rect(0, 0, 10, 10, "work")
    second.rect(0, 0, 10, 10, "blocked")
    second.text(0, 30, "n", size=14)
    shared, other = [ElementTree.fromstring(svg) for svg in first.with_others([second])]
    assert ".c .s14" in (shared.findtext(f"{WAY}style") or "")
    assert [pattern.get("class") for pattern in shared.iter(f"{WAY}pattern")] == ["tile-blocked"]
    assert other.find(f"{WAY}style") is None
    assert other.get("class") == shared.get("class")


def test_a_picture_is_the_same_when_it_is_asked_for_twice() -> None:
    canvas = Canvas("c", "t")
    for number, name in enumerate(CAUSES):
        canvas.rect(0, 20 * number, 10, 10, name)
    assert canvas.svg() == canvas.svg()


def test_lines_of_a_paragraph_have_all_its_words_and_fit() -> None:
    words = [
        "orders[0] was blocked for ",
        Word("342 ms", "strong"),
        ", by a barrier of ",
        Word("check", "barrier"),
        ".",
    ]
    lines = wrapped(words, 150, 12)
    assert " ".join([plain(line) for line in lines]) == plain(words)
    assert max([words_width(line, 12) for line in lines]) <= 150
    assert Word("342 ms", "strong") in [word for line in lines for word in line]


def test_a_word_longer_than_its_line_has_a_line_of_its_own() -> None:
    assert [plain(line) for line in wrapped("a " + "x" * 40 + " b", 60, 12)] == ["a", "x" * 40, "b"]
    assert text_width("x" * 40, 12) > 60
