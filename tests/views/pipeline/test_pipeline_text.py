"""Pipelines in the terminal: the rails of the text say which operator reads which."""

from __future__ import annotations

import pytest

from dataflow.views.pipeline.layers import back_edges
from dataflow.views.pipeline.sketch import Sketch, logical_sketch
from dataflow.views.pipeline.text import as_text
from tests.views.pipeline.sketches import hostile_plan, join_pipeline, random_sketch

UP, DOWN, JOINED = "│├┤┼╰╯┴", "│├┤┼╭╮┬", "├┤┼╰╯┴╭╮┬"
GLYPHS = "○□▣●▽"


def streams_of(text: str, rails: int) -> set[tuple[str, str]]:
    """Return the streams that the rails show: (who emits, who reads)."""
    owners: dict[int, str] = {}
    emitters: set[str] = set()
    streams: set[tuple[str, str]] = set()
    above = ""
    for line in text.splitlines()[2:]:
        cells = line[2 : 2 + rails].ljust(rails)[::2]
        for column, (before, cell) in enumerate(zip(above.ljust(len(cells)), cells, strict=True)):
            assert (cell in UP) <= (before in DOWN + GLYPHS), f"a rail comes from nowhere: {line}"
            assert (before in DOWN) <= (cell in UP + GLYPHS), f"a rail ends: {line}"
            if cell not in UP + GLYPHS:
                owners.pop(column, None)
        emitters |= {owners[column] for column in owners if cells[column] in JOINED}
        own = next((column for column, cell in enumerate(cells) if cell in GLYPHS), None)
        if own is not None:
            name = line[2 + rails :].split()[0]
            emitters |= {owners[own]} if own in owners else set()
            streams |= {(emitter, name) for emitter in emitters}
            owners[own] = name
            emitters = set()
        above = cells
    return streams


def width_of_rails(text: str) -> int:
    return min([line.index("n") for line in text.splitlines()[2:] if set(line) & set(GLYPHS)]) - 2


def test_the_rails_are_the_streams() -> None:
    for seed in range(200):
        sketch = random_sketch(seed)
        text = as_text(sketch)
        expected = {(arrow.source, arrow.target) for arrow in sketch.arrows}
        assert streams_of(text, width_of_rails(text)) == expected, f"seed {seed}\n{text}"


def test_each_operator_has_one_line_after_all_that_it_reads() -> None:
    for seed in range(50):
        sketch = random_sketch(seed)
        lines = [line for line in as_text(sketch).splitlines()[2:] if set(line) & set(GLYPHS)]
        order = [next(word for word in line.split() if word.startswith("n")) for line in lines]
        assert sorted(order) == sorted(box.name for box in sketch.boxes)
        assert all(order.index(arrow.source) < order.index(arrow.target) for arrow in sketch.arrows), seed


def test_circles_are_said_in_words() -> None:
    for seed in range(50):
        sketch = random_sketch(seed, circles=True)
        pairs = [(arrow.source, arrow.target) for arrow in sketch.arrows]
        backward = {pairs[i] for i in back_edges([box.name for box in sketch.boxes], pairs)}
        text = as_text(sketch)
        assert text.count(" below") == len(backward), f"seed {seed}\n{text}"


def test_a_line_holds_a_whole_operator_whatever_its_name() -> None:
    sketch = logical_sketch("hostile", hostile_plan())
    lines = as_text(sketch).split("\n")
    assert len(lines) == 2 + 2 * len(sketch.boxes) - 1  # each operator but the first has a line for its keys
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 200


def test_inputs_with_different_labels_are_named() -> None:
    text = join_pipeline().draw(parallelism=2, physical=True).text()
    assert "↓ from orders, hash by id, 2 x 2 channels\n" in text
    assert "↓ from check, hash by id, 2 x 2 channels\n" in text


@pytest.mark.parametrize("sketch", [Sketch("empty", "no operators", (), ())])
def test_an_empty_pipeline_is_one_line(sketch: Sketch) -> None:
    assert as_text(sketch) == "empty: no operators"
