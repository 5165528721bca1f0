"""Draws a space-time diagram as SVG: time runs to the right, each process is a line, messages are arrows between lines.

It is drawn on a canvas of ``dataflow.drawing``, so messages and names are always text, and the picture follows the
reader's light or dark scheme. Snapshots differ in colour, in the dashes of their lines and in the numbers at their
markers, so they can be distinguished without colour. The name of an event and the label of a message never overlap: the
columns are as wide as the longest name, and a label takes a free place at its arrow.
"""

from __future__ import annotations

from math import ceil

from dataflow.drawing import Box, Canvas, text_width
from dataflow.drawing.palette import series
from dataflow.drawing.svg import text_box
from dataflow.snapshots.diagrams.layout import Arrow, CutLine, DiagramLayout, Dot, GridPoint, shown
from dataflow.snapshots.diagrams.legend import cut_lines, dotted

__all__ = ["DOT", "LANE", "RINGS", "as_svg", "draw"]

TOP, LANE, LEGEND = 28, 84, 20
"""Pixels: above the first lane, from one lane to the next, and from one line of the legend to the next."""
DOT, RING = 5, 4
"""Pixels: the radius of an event, and the distance between its rings; each ring means "before this cut"."""
RINGS = 3
"""The maximum number of rings of an event, for the first cuts that it lies before; later ones follow from these."""
NARROWEST = 42
"""Pixels: the smallest distance between two columns."""


def as_svg(layout: DiagramLayout) -> str:
    """Return the picture as an ``svg`` element, valid as a file or inside a page."""
    return draw(layout).svg()


def draw(layout: DiagramLayout) -> Canvas:
    """Return the picture, which knows where its texts are."""
    return _Picture(layout).canvas


class _Picture:
    """Everything on the canvas, drawn from the back to the front."""

    def __init__(self, layout: DiagramLayout) -> None:
        self._layout = layout
        title = "Space-time diagram of a run of " + ", ".join([shown(name) for name in layout.lanes])
        self.canvas = Canvas("spacetime", title, causes=series("cut"))
        names = max([text_width(dot.name, 12) for dot in layout.dots], default=0)
        self._pitch = max(NARROWEST, 12 + ceil(names))
        self._left = 12 + ceil(max([text_width(shown(name, 16), 12) for name in layout.lanes], default=0))
        self._right = self._left + self._pitch * max(layout.columns, 1)
        self._tail = 64 if any([arrow.end is None for arrow in layout.arrows]) else 20  # room for messages in transit
        self._radius = {point: 6 for line in layout.cuts if line.snapshot is not None for point in line.crossings}
        self._radius |= {dot.at: DOT + RING * len(dot.inside[:RINGS]) for dot in layout.dots}
        self._from_above = {a.end for a in layout.arrows if a.end is not None and a.start.lane < a.lane}
        for lane, name in enumerate(layout.lanes):
            self._lane(lane, name)
        for dot in layout.dots:
            self.canvas.reserve(text_box(*self._name_place(dot), dot.name, anchor="middle"))
        for number, line in enumerate(layout.cuts):
            self._cut(number, line)
        pending: dict[int, int] = {}
        for position, arrow in enumerate(layout.arrows):
            place = pending.get(arrow.lane, 0)
            if arrow.end is None:
                pending[arrow.lane] = place + 1
            self._arrow(position, arrow, place)
        for dot in layout.dots:
            self._dot(dot)
        self._legend()

    def _xy(self, point: GridPoint) -> tuple[float, float]:
        return self._left + self._pitch * (point.column + 0.5), TOP + LANE * point.lane

    def _lane(self, lane: int, name: str) -> None:
        y = TOP + LANE * lane
        with self.canvas.group("process"):
            self.canvas.line(self._left, y, self._right + self._tail, y, "edge")
            self.canvas.text(self._left - 8, y + 4, shown(name, 16), "strong", anchor="end")

    def _name_place(self, dot: Dot) -> tuple[float, float]:
        x, y = self._xy(dot.at)
        away = self._radius[dot.at]
        return x, y + away + 14 if dot.at in self._from_above else y - away - 6

    def _dot(self, dot: Dot) -> None:
        x, y = self._xy(dot.at)
        with self.canvas.group(
            "event", title=shown(str(dot.event), 200), event=f"{dot.event.process}.{dot.event.number}"
        ):
            for ring, cut in reversed(list(enumerate(dot.inside[:RINGS], 1))):
                self.canvas.circle(x, y, DOT + RING * ring, f"{_class(cut)} outline")
            self.canvas.circle(x, y, DOT)
            self.canvas.text(*self._name_place(dot), dot.name, "strong halo", anchor="middle")

    def _arrow(self, position: int, arrow: Arrow, place: int) -> None:
        (x1, y1), (x2, y2) = self._xy(arrow.start), self._end(arrow, place)
        kind, colour = "message", ""
        if arrow.cut is not None:  # reports are drawn like markers
            kind, colour = "marker", _class(arrow.cut)
        if arrow.end is None:
            kind += " open"
        if wrong := any([position in line.backwards for line in self._layout.cuts]):
            kind += " backwards"
        title = f"{arrow.what or arrow.label}, {shown(str(arrow.channel))}"
        with self.canvas.group(kind, title=title, channel=shown(str(arrow.channel), 200)):
            style = f"{colour} {'dotted' if colour else 'heavy' if wrong else ''}".strip()
            bounds = Box(min(x1, x2), min(y1, y2) - (30 if y1 == y2 else 0), max(x1, x2), max(y1, y2))
            if y1 == y2:  # a process that sends to itself: a bow above its line
                d, dx, dy = f"M{x1:g} {y1:g}Q{(x1 + x2) / 2:g} {y1 - 60:g} {x2:g} {y2:g}", 1.0, 1.5
            else:
                d, dx, dy = f"M{x1:g} {y1:g}L{x2:g} {y2:g}", x2 - x1, y2 - y1
            self.canvas.path(d, bounds, style)
            back = 0 if arrow.end is None else self._radius.get(arrow.end, 0)
            length = (dx * dx + dy * dy) ** 0.5
            tip = x2 - dx / length * back, y2 - dy / length * back
            self.canvas.arrow_head(*tip, dx, dy, f"{colour} outline" if arrow.end is None else colour)
            if arrow.cut is None or len([line for line in self._layout.cuts if line.snapshot is not None]) > 1:
                self._label(shown(arrow.label, 14), (x1, y1), (x2, y2), colour)

    def _label(self, label: str, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        """Write at the arrow, where no other text is; without such a place its title alone has the words."""
        (x1, y1), (x2, y2) = start, end
        for share in (0.45, 0.3, 0.6, 0.2, 0.75):
            x, y = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share - (32 if y1 == y2 else 4)
            for place, anchor in ((x + 5, "start"), (x - 5, "end")):
                if self.canvas.is_free(text_box(place, y, label, anchor=anchor)):
                    self.canvas.text(place, y, label, f"halo {colour}".strip(), anchor=anchor)
                    return

    def _end(self, arrow: Arrow, place: int) -> tuple[float, float]:
        if arrow.end is not None:
            return self._xy(arrow.end)
        y1, y2 = self._xy(arrow.start)[1], TOP + LANE * arrow.lane
        above = (y2 - y1) / max(abs(arrow.lane - arrow.start.lane), 1) * 0.25 * (1 + place % 3)
        return self._right + self._tail - 8, y2 - above

    def _cut(self, number: int, line: CutLine) -> None:
        colour = _class(number)
        by_lane = {point.lane: self._xy(point) for point in line.crossings}
        with self.canvas.group("cut", title=shown(line.title, 200), cut=str(number)):
            for x, y in by_lane.values():
                self.canvas.line(x, y - 16, x, y + 16, f"{colour} solid")
                if line.snapshot is not None:
                    self.canvas.diamond(x, y, 6, f"{colour} outline")
            for lane, (x1, y1) in by_lane.items():
                if lane + 1 in by_lane:  # no line between lanes that a snapshot has not reached yet
                    x2, y2 = by_lane[lane + 1]
                    self.canvas.polyline([(x1, y1 + 16), (x2, y2 - 16)], colour)
            if by_lane:
                self._short(shown(line.short, 16), *by_lane[max(by_lane)], colour)

    def _short(self, short: str, x: float, y: float, colour: str) -> None:
        """Write the name of a cut below its last lane, and below the names that are there already."""
        y += 28
        while not self.canvas.is_free(text_box(x, y, short, anchor="middle")):
            y += 15
        self.canvas.text(x, y, short, f"strong halo {colour}", anchor="middle")

    def _legend(self) -> None:
        y = max(self.canvas.bounds.bottom + 8, TOP + LANE * max(len(self._layout.lanes) - 1, 0) + 36)
        for colour, text in _legend(self._layout):
            y += LEGEND
            with self.canvas.group("legend"):
                if colour:
                    self.canvas.line(0, y - 4, 32, y - 4, colour)
                self.canvas.text(40, y, text)


def _class(cut: int) -> str:
    return f"cut{cut % 6}"


def _legend(layout: DiagramLayout) -> list[tuple[str, str]]:
    """Return lines of text, each as a pair of the class of its cut and the text."""
    lines_by_class: list[tuple[str, str]] = []
    for number, title, lines in cut_lines(layout):
        lines_by_class.append((_class(number), shown(title, 110)))
        lines_by_class += [("", shown(line, 110)) for line in lines]
    circled = (
        f"; circled: before the cut{' (at most three circles)' * (len(layout.cuts) > RINGS)}" if layout.cuts else ""
    )
    markers = (
        f"; dotted: a {dotted(layout)}; diamond: state recorded"
        if any([c.snapshot is not None for c in layout.cuts])
        else ""
    )
    hollow = "; hollow head: still in its channel" if any([arrow.end is None for arrow in layout.arrows]) else ""
    return [*lines_by_class, ("", "dot: an event; arrow: a message" + circled + markers + hollow)]
