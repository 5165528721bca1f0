"""Draws a sketch of a pipeline as SVG. Operators differ in outline, so roles are clear without colours.

A source has round ends, a sink is a drum, an operator that keeps state has doubled sides. A vertex of the physical plan
is a panel around the operators that are chained in it; the edges of further panels behind it say that it has several
tasks.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil
from typing import Final

from dataflow.drawing import Box, Canvas, Word, words_width
from dataflow.drawing.svg import number
from dataflow.views.pipeline.layout import LayoutEdge, Point, Route, lay_out
from dataflow.views.pipeline.sketch import BoxShape, Sketch, SketchArrow, SketchBox, SketchOperator

__all__ = ["as_svg", "draw"]

_NAME, _SMALL, _TITLE = 13, 11, 16
"""Pixels: the sizes of names, of all other words, and of the title."""
_LINE: Final = 14
"""Pixels: the height of a line of small words."""
_OPERATOR: Final = 48
"""Pixels: the height of an operator."""
_PAD: Final = {BoxShape.SOURCE: 22, BoxShape.STATEFUL: 18}
"""Pixels between the side of an operator and its words; 14 for the others."""
_LEAST, _MOST = 92, 260
"""Pixels: the least width of an operator, and the most of its words; longer ones are cut."""
_APART: Final = 12
"""Pixels between two arrows at a box, at least."""
_DRUM: Final = 5
"""Pixels: half the height of a drum's ellipses."""
_END: Final = 6
"""Pixels: the radius of the open end of a stream."""
_PANEL, _HEADER, _STEP, _INDENT = 12, 28, 16, 26
"""Pixels in a vertex: around its operators, the height of its header, between operators, and before a branch."""
_BEHIND: Final = 4
"""Pixels by which a panel behind another one is seen; there are two at most."""
_HEAD: Final = 60
"""Pixels from the title to the first box."""


def as_svg(sketch: Sketch) -> str:
    """Return the picture as an ``svg`` element, valid as a file or inside a page."""
    return draw(sketch).svg()


def draw(sketch: Sketch) -> Canvas:
    """Return the canvas with the picture of a sketch."""
    canvas = Canvas("pipeline", f"Pipeline {sketch.title}: {sketch.summary}")
    inputs = Counter([arrow.target for arrow in sketch.arrows])
    outputs = Counter([arrow.source for arrow in sketch.arrows])
    panels = {box.name: _Panel(box, max(inputs[box.name], outputs[box.name])) for box in sketch.boxes}
    layout = lay_out({name: panel.size for name, panel in panels.items()}, [_edge(arrow) for arrow in sketch.arrows])
    canvas.text(0, _TITLE, sketch.title, "strong", size=_TITLE, width=max(layout.width, 480))
    canvas.text(0, _TITLE + 20, sketch.summary, "soft", size=12)
    for arrow, route in zip(sketch.arrows, layout.routes, strict=True):
        _draw_arrow(canvas, arrow, route)
    for name, place in layout.boxes.items():
        panels[name].draw(canvas, place.left, place.top + _HEAD)
    return canvas


def _edge(arrow: SketchArrow) -> LayoutEdge:
    if not arrow.lines:
        return LayoutEdge(arrow.source, arrow.target)
    widest = max([words_width(line, _SMALL) for line in arrow.lines])
    return LayoutEdge(arrow.source, arrow.target, (_even(min(widest, _MOST)), _LINE * len(arrow.lines) + 4))


def _even(width: float) -> int:
    """Return the next even number, so that the middle of a box is a whole pixel."""
    return 2 * ceil(width / 2)


def _draw_arrow(canvas: Canvas, arrow: SketchArrow, route: Route) -> None:
    points = [(x, y + _HEAD) for x, y in route.points]
    label = route.label
    target = "the stream" if arrow.target.startswith("\0") else arrow.target
    with canvas.group(title=f"{arrow.source} → {target}" + (f": {arrow.label}" if arrow.label else "")):
        kind = "edge heavy" if arrow.partitioning == "broadcast" else "edge"
        canvas.path(_path(points, label), _around(points), kind)
        (x, y), above = points[-1], points[-2]
        down = 1 if y > above[1] else -1
        canvas.polyline([(x - 4.5, y - 8 * down), (x, y - down), (x + 4.5, y - 8 * down)], "edge")
        if label is not None:
            middle, top = (label.left + label.right) / 2, label.bottom + _HEAD - _LINE * len(arrow.lines) - 2
            for i, line in enumerate(arrow.lines):
                canvas.text(middle, top + 11 + i * _LINE, line, "soft", anchor="middle", size=_SMALL, width=_MOST)


def _path(points: list[Point], label: Box | None) -> str:
    """Return the path along the points: straight up, down or sideways, else curved. It leaves its label out."""
    x, y = points[0]
    d = f"M{number(x)} {number(y)}"
    for (x1, y1), (x2, y2) in pairwise(points):
        ends = sorted([y1 - _HEAD, y2 - _HEAD])
        if label is not None and x1 == x2 and ends == [label.top, label.bottom]:
            d += f"M{number(x2)} {number(y2)}"
        elif x1 == x2 or y1 == y2:
            d += f"L{number(x2)} {number(y2)}"
        else:
            middle = number((y1 + y2) / 2)
            d += f"C{number(x1)} {middle} {number(x2)} {middle} {number(x2)} {number(y2)}"
    return d


def _around(points: list[Point]) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Box(min(xs), min(ys), max(xs), max(ys))


class _Panel:
    """A box of a sketch and its size. The operators of a vertex are below each other, a branch further to the right."""

    def __init__(self, box: SketchBox, arrows: int) -> None:
        self._box = box
        self._indents = _indents(box)
        widths = [_words_width(operator) + indent for operator, indent in self._placed()]
        self._width = _even(max([*widths, _LEAST, _APART * (arrows + 1)]))
        if not box.tasks:
            self.size: tuple[float, float] = (self._width, _height(box))
            return
        self._header = [Word(box.count, "strong"), Word(f"  {box.task_names}", "soft")]
        self._width = max(self._width, _even(min(words_width(self._header, _SMALL), _MOST)))
        self._panels = min(box.tasks, 3)
        behind = _BEHIND * (self._panels - 1)
        self.size = (self._width + 2 * _PANEL + 2 * behind, _HEADER + _height(box) + _PANEL + behind)

    def _placed(self) -> list[tuple[SketchOperator, float]]:
        return list(zip(self._box.operators, self._indents, strict=True))

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        """Draw the box with its corner at (left, top)."""
        if not self._box.tasks:
            self._operators(canvas, left, top)
            return
        behind = _BEHIND * (self._panels - 1)
        width, height = self.size[0] - 2 * behind, self.size[1] - behind
        with canvas.group(title=f"vertex {self._box.name}: {self._box.count}, {self._box.task_names}"):
            for i in range(self._panels - 1, -1, -1):  # those behind first, shifted to the lower right
                shift = _BEHIND * i
                canvas.rect(left + behind + shift, top + shift, width, height, "panel edged", radius=8)
            inside = left + behind + _PANEL
            canvas.text(inside, top + 19, self._header, size=_SMALL, width=width - 2 * _PANEL)
            self._operators(canvas, inside, top + _HEADER)

    def _operators(self, canvas: Canvas, left: float, top: float) -> None:
        tops: list[float] = []
        for i, operator in enumerate(self._box.operators):
            y = top + i * (_OPERATOR + _STEP)
            tops.append(y)
            if operator.parent is not None:
                self._connect(canvas, left, tops, operator.parent, i)
        for (operator, indent), y in zip(self._placed(), tops, strict=True):
            _draw_operator(canvas, operator, Box(left + indent, y, left + self._width, y + _OPERATOR))

    def _connect(self, canvas: Canvas, left: float, tops: list[float], parent: int, child: int) -> None:
        """Draw the line from an operator to one that is chained to it."""
        begin, end = tops[parent] + _OPERATOR, tops[child]
        if self._indents[child] > self._indents[parent]:
            x, y = left + self._indents[parent] + _INDENT / 2, end + _OPERATOR / 2
            canvas.line(x, y, left + self._indents[child], y, "edge")  # from the line to the last child, which is below
            return
        x = left + self._indents[parent] + _INDENT / 2 if child > parent + 1 else left + self._indents[child] + (
            self._width - self._indents[child]) / 2  # fmt: skip
        canvas.line(x, begin, x, end, "edge")


def _indents(box: SketchBox) -> list[float]:
    """Return how far to the right each operator is: the last one on the rows of another is right below it."""
    last = {operator.parent: i for i, operator in enumerate(box.operators)}
    indents: list[float] = []
    for i, operator in enumerate(box.operators):
        above = 0.0 if operator.parent is None else indents[operator.parent]
        indents.append(above + (0 if operator.parent is None or last[operator.parent] == i else _INDENT))
    return indents


def _height(box: SketchBox) -> float:
    if box.operators and box.operators[0].shape is BoxShape.STREAM:
        return 2 * _END + 20
    return max(len(box.operators) * (_OPERATOR + _STEP) - _STEP, 0)


def _words_width(operator: SketchOperator) -> float:
    words = max(words_width(operator.name, _NAME), words_width(operator.words, _SMALL))
    return max(_LEAST, min(words, _MOST) + 2 * _PAD.get(operator.shape, 14))


def _draw_operator(canvas: Canvas, operator: SketchOperator, box: Box) -> None:
    middle, width = (box.left + box.right) / 2, box.right - box.left
    if operator.shape is BoxShape.STREAM:
        canvas.circle(middle, box.top + _END, _END, "node edged")
        canvas.text(middle, box.top + 2 * _END + 14, operator.name, "soft", anchor="middle", size=_SMALL)
        return
    drop = 0.0
    match operator.shape:
        case BoxShape.SINK:
            canvas.path(_drum(box), box, "node edged")
            lid = f"M{number(box.left)} {number(box.top + _DRUM)}a{number(width / 2)} {_DRUM} 0 0 0 {number(width)} 0"
            canvas.path(lid, box, "edge edged")
            drop = _DRUM - 1
        case shape:
            radius = {BoxShape.SOURCE: _OPERATOR / 2}.get(shape, 5)
            canvas.rect(box.left, box.top, width, _OPERATOR, "node edged", radius=radius)
            if shape is BoxShape.STATEFUL:
                for x in (box.left + 6, box.right - 6):
                    canvas.line(x, box.top, x, box.bottom, "edge edged")
    room = width - 2 * _PAD.get(operator.shape, 14)
    canvas.text(middle, box.top + 21 + drop, operator.name, "strong", anchor="middle", size=_NAME, width=room)
    canvas.text(middle, box.top + 36 + drop, operator.words, "soft", anchor="middle", size=_SMALL, width=room)


def _drum(box: Box) -> str:
    half, side = number((box.right - box.left) / 2), number(box.bottom - box.top - 2 * _DRUM)
    across = number(box.right - box.left)
    return (
        f"M{number(box.left)} {number(box.top + _DRUM)}a{half} {_DRUM} 0 0 1 {across} 0"
        f"v{side}a{half} {_DRUM} 0 0 1 -{across} 0z"
    )
