"""Writes a sketch of a pipeline for the terminal: a line per operator, with the streams as rails at the left.

A rail is the output of a box; it ends at the last box that reads it. So the rails beside a line are the outputs that
boxes further down still read. Boxes come in an order in which few rails are next to each other: each after all that it
reads, inputs first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dataflow.drawing import printable
from dataflow.views.pipeline.layers import back_edges, components
from dataflow.views.pipeline.sketch import BoxShape, Sketch, SketchArrow, SketchBox, SketchOperator

__all__ = ["as_text"]

_GLYPHS: Final = {
    BoxShape.SOURCE: "○",
    BoxShape.TRANSFORM: "□",
    BoxShape.STATEFUL: "▣",
    BoxShape.SINK: "●",
    BoxShape.STREAM: "▽",
}
_CHAINED: Final = "┊"
_LONGEST: Final = 48
"""Columns of a name, and of the words beside it; longer ones are cut."""

_CORNERS: Final = {
    # (a line from above, to below, from the left, to the right)
    (True, True, False, False): "│",
    (True, True, False, True): "├",
    (True, True, True, False): "┤",
    (True, True, True, True): "┼",
    (True, False, False, True): "╰",
    (True, False, True, False): "╯",
    (True, False, True, True): "┴",
    (False, True, False, True): "╭",
    (False, True, True, False): "╮",
    (False, True, True, True): "┬",
    (False, False, True, True): "─",
    (False, False, False, False): " ",
}


class _Line(NamedTuple):
    """The rails, and a name with words, or the label of arrows."""

    rails: str
    name: str = ""
    words: str = ""


def as_text(sketch: Sketch) -> str:
    """Return the picture as lines of text without a line break at the end.

    Names are cut to 48 columns. The shapes are ○ source, □ operator, ▣ operator that keeps state, ● sink.
    """
    lines = list(_Rails(sketch).lines())
    name_at = max([_columns(line.rails) for line in lines], default=0) + 1
    words_at = name_at + max([_columns(line.name) for line in lines], default=0) + 2
    title = f"{_fitted(sketch.title)}: {sketch.summary}"
    rows = [_padded(_padded(line.rails, name_at) + line.name, words_at) + line.words for line in lines]
    return "\n".join([title, *([""] if rows else []), *[f"  {row}".rstrip() for row in rows]])


class _Rails:
    """The rails beside the lines: which box's output is in which column."""

    def __init__(self, sketch: Sketch) -> None:
        self._boxes = {box.name: box for box in sketch.boxes}
        names, pairs = list(self._boxes), [(arrow.source, arrow.target) for arrow in sketch.arrows]
        backward = back_edges(names, pairs)
        self._inputs: dict[str, list[SketchArrow]] = {name: [] for name in names}
        self._readers: dict[str, list[str]] = {name: [] for name in names}
        self._inputs_below: dict[str, list[str]] = {name: [] for name in names}
        for i, arrow in enumerate(sketch.arrows):
            if i in backward:
                self._inputs_below[arrow.target].append(arrow.source)
            else:
                self._inputs[arrow.target].append(arrow)
                self._readers[arrow.source].append(arrow.target)
        self._order = [name for part in components(names, pairs) for name in self._inputs_first(part)]
        self._columns: list[str | None] = []
        self._drawn: set[str] = set()

    def _inputs_first(self, part: Sequence[str]) -> Iterator[str]:
        begun: set[str] = set()
        for root in [name for name in part if not self._readers[name]]:
            pending = [] if root in begun else [root]
            begun.update(pending)
            path = [(root, iter(self._inputs[root]))] if pending else []
            while path:
                name, arrows = path[-1]
                source = next((arrow.source for arrow in arrows if arrow.source not in begun), None)
                if source is None:
                    path.pop()
                    yield name
                else:
                    begun.add(source)
                    path.append((source, iter(self._inputs[source])))

    def lines(self) -> Iterator[_Line]:
        """Yield all lines."""
        previous = ""
        for name in self._order:
            box = self._boxes[name]
            lines = list(self._box(box, previous))
            previous = lines[-1].rails
            yield from lines

    def _box(self, box: SketchBox, previous: str) -> Iterator[_Line]:
        """Yield the arrows into a box, the box, and the operators chained in it."""
        arrows = self._inputs[box.name]
        self._drawn.add(box.name)
        groups: dict[str, list[str]] = {}
        for arrow in arrows:
            groups.setdefault(arrow.label, []).append(arrow.source)
        ending = {arrow.source for arrow in arrows if self._drawn.issuperset(self._readers[arrow.source])}
        place = {source: self._columns.index(source) for sources in groups.values() for source in sources}
        own = min([place[source] for source in ending], default=self._free())
        self._columns += [None] * (own + 1 - len(self._columns))
        if not arrows and previous and (previous[2 * own : 2 * own + 1].strip() or not any(self._columns)):
            yield _Line(self._upright())
        entries = list(groups.items())
        for n, (label, sources) in enumerate(entries):
            later = {source for _, others in entries[n + 1 :] for source in others}
            ends = ending.intersection(sources).difference(later)
            joined = {place[source] for source in sources}
            below = [None if source in ends else source for source in self._columns]
            below[own] = box.name
            if joined != {own} or label:
                rails = self._crossing(below, joined, own)
                yield _Line(rails, words=self._arrow_words(label, sources, len(groups)))
            self._columns = below
        self._columns[own] = box.name
        yield from self._operators(box, own)
        if not self._readers[box.name]:
            self._columns[own] = None
        while self._columns and self._columns[-1] is None:
            self._columns.pop()

    def _free(self) -> int:
        return next((i for i, source in enumerate(self._columns) if source is None), len(self._columns))

    def _upright(self) -> str:
        return " ".join([" " if source is None else "│" for source in self._columns])

    def _crossing(self, below: Sequence[str | None], joined: set[int], own: int) -> str:
        """Return the rails of a line in which the rails in ``joined`` lead to column ``own``, across others."""
        above = [*self._columns, *[None] * (len(below) - len(self._columns))]
        first, last = min({own, *joined}), max({own, *joined})
        text = ""
        for i, (before, after) in enumerate(zip(above, below, strict=True)):
            between = first < i < last and i not in joined and i != own
            crossed = between and before is not None
            left, right = (first < i <= last and not crossed), (first <= i < last and not crossed)
            text += _CORNERS[before is not None, after is not None, left, right]
            text += "─" if first <= i < last else " "
        return text.rstrip()

    def _arrow_words(self, label: str, sources: Sequence[str], groups: int) -> str:
        if groups > 1 and not label.startswith("from "):
            label = ", ".join([f"from {', '.join(dict.fromkeys(map(_fitted, sources)))}", *filter(None, [label])])
        return f"↓ {_fitted(label, 2 * _LONGEST)}" if label else ""

    def _operators(self, box: SketchBox, own: int) -> Iterator[_Line]:
        rails = [" " if source is None else "│" for source in self._columns]
        tasks = f"{box.count}, " if box.tasks else ""
        depths = _depths(box.operators)
        again = "".join(
            [f", and reads {_fitted(source)} below" for source in dict.fromkeys(self._inputs_below[box.name])]
        )
        for i, (operator, depth) in enumerate(zip(box.operators, depths, strict=True)):
            rails[own] = _CHAINED if i else _GLYPHS[operator.shape]
            words = _fitted(operator.words) if i else f"{tasks}{_fitted(operator.words)}{again}"
            yield _Line(" ".join(rails), "  " * depth + _fitted(operator.name), words)
        if not box.operators:
            rails[own] = _GLYPHS[BoxShape.TRANSFORM]
            yield _Line(" ".join(rails), _fitted(box.name), box.count)


def _depths(operators: Sequence[SketchOperator]) -> list[int]:
    """Return how far each operator of a chain is to the right: the last child of an operator is right below it."""
    last = {operator.parent: i for i, operator in enumerate(operators)}
    depths: list[int] = []
    for i, operator in enumerate(operators):
        above = 0 if operator.parent is None else depths[operator.parent]
        depths.append(above + (operator.parent is not None and last[operator.parent] != i))
    return depths


def _fitted(text: str, columns: int = _LONGEST) -> str:
    """Return the text, or its beginning with an ellipsis, in at most ``columns`` columns of a terminal.

    >>> _fitted("name" * 20, 10), _fitted("two" + chr(10) + "lines")
    ('namenamen…', 'two\\\\nlines')
    """
    text = printable(text)
    if _columns(text) <= columns:
        return text
    while _columns(text) > columns - 1:
        text = text[:-1]
    return f"{text}…"


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - _columns(text))


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum([2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text])
