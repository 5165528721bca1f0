"""Draws a space-time diagram as SVG: time runs to the right, each process is a line, messages are arrows between lines.

It is built as an element tree, so messages and names are always text and never markup. It has a background of its own
and follows the reader's light or dark scheme, so it is readable on any page. Snapshots differ in colour, in the dashes
of their lines and in the numbers at their markers, so they can be distinguished without colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from dataflow.snapshots.diagrams.layout import Arrow, CutLine, DiagramLayout, Dot, GridPoint, shown
from dataflow.snapshots.diagrams.legend import cut_lines, dotted

__all__ = ["DOT", "LANE", "RINGS", "as_svg"]

TOP, LANE, LEGEND = 44, 84, 20
"""Pixels: above the first lane, from one lane to the next, and from one line of the legend to the next."""
DOT, RING = 5, 4
"""Pixels: the radius of an event, and the distance between its rings; each ring means "before this cut"."""
RINGS = 3
"""The maximum number of rings of an event, for the first cuts that it lies before; later ones follow from these."""
LIGHT = ("#0b63b0", "#b3460a", "#0a7a55", "#9b3a86", "#756000", "#4f4fd1")
DARK = ("#6cb6ff", "#ff9d5c", "#57d9a3", "#f08bd8", "#e3c04a", "#aaaaff")
DASHES = ("", "9 4", "2 3", "12 3 2 3", "6 2", "1 4 7 4")


def as_svg(layout: DiagramLayout) -> str:
    """Return the picture as an ``svg`` element, valid as a file or inside a page."""
    root = _Picture(layout).root
    for child in root:
        child.tail = "\n"  # a line for each element, so that stored pictures can be compared by line
    return ElementTree.tostring(root, encoding="unicode") + "\n"


class _Picture:
    """The SVG elements, those at the back first."""

    def __init__(self, layout: DiagramLayout) -> None:
        self._layout = layout
        self._left = 28 + max([7 * len(shown(name, 16)) for name in layout.lanes], default=0)
        longest = max([len(dot.name) for dot in layout.dots], default=0)
        self._pitch = min(96, max(42, 12 + 7 * longest))
        legend = _legend(layout)
        self._right = self._left + self._pitch * max(layout.columns, 1)
        self._tail = 64 if any([arrow.end is None for arrow in layout.arrows]) else 20  # room for messages in transit
        width = max(self._right + self._tail + 40, 24 + max([7 * len(text) + 56 for _, text in legend]))
        self._bottom = TOP + LANE * max(len(layout.lanes) - 1, 0) + 36
        height = self._bottom + LEGEND * len(legend) + 16
        size = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
        self.root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "spacetime", "role": "img", **size})
        self._text(self.root, "title", "Space-time diagram of a run of " + ", ".join([shown(n) for n in layout.lanes]))
        self._text(self.root, "style", _style())
        SubElement(self.root, "rect", {"class": "page", "width": str(width), "height": str(height), "rx": "10"})
        for lane, name in enumerate(layout.lanes):
            self._lane(lane, name)
        for number, line in enumerate(layout.cuts):
            self._cut(number, line)
        self._radius = {point: 6 for line in layout.cuts if line.snapshot is not None for point in line.crossings}
        self._from_above = {a.end for a in layout.arrows if a.end is not None and a.start.lane < a.lane}
        self._radius |= {dot.at: DOT + RING * len(dot.inside[:RINGS]) for dot in layout.dots}
        pending: dict[int, int] = {}
        for position, arrow in enumerate(layout.arrows):
            place = pending.get(arrow.lane, 0)
            if arrow.end is None:
                pending[arrow.lane] = place + 1
            self._arrow(position, arrow, place)
        for dot in layout.dots:
            self._dot(dot)
        for row, (classes, text) in enumerate(legend):
            self._entry(classes, text, self._bottom + LEGEND * (row + 1))

    def _xy(self, point: GridPoint) -> tuple[float, float]:
        return self._left + self._pitch * (point.column + 0.5), TOP + LANE * point.lane

    def _lane(self, lane: int, name: str) -> None:
        y = str(TOP + LANE * lane)
        group = SubElement(self.root, "g", {"class": "process"})
        ends = {"x1": str(self._left), "y1": y, "x2": str(self._right + self._tail), "y2": y}
        SubElement(group, "line", {"class": "lane", **ends})
        place = {"x": str(self._left - 8), "y": y, "dy": "4", "class": "who"}
        self._text(group, "text", shown(name, 16), place)

    def _dot(self, dot: Dot) -> None:
        x, y = self._xy(dot.at)
        named = f"{dot.event.process}.{dot.event.number}"
        group = SubElement(self.root, "g", {"class": "event", "data-event": _clean(named)})
        self._text(group, "title", shown(str(dot.event), 200))
        at = {"cx": f"{x:g}", "cy": f"{y:g}"}
        for ring, cut in enumerate(dot.inside[:RINGS]):
            circle = {"class": f"ring cut{cut % 6}", "data-cut": str(cut), **at}
            SubElement(
                group, "circle", {**circle, "r": str(DOT + RING * (ring + 1)), "stroke-dasharray": DASHES[cut % 6]}
            )
        SubElement(group, "circle", {"class": "dot", **at, "r": str(DOT)})
        away = DOT + RING * len(dot.inside[:RINGS])
        beside = y + away + 14 if dot.at in self._from_above else y - away - 6
        self._text(group, "text", dot.name, {"class": "name", "x": f"{x:g}", "y": f"{beside:g}"})

    def _arrow(self, position: int, arrow: Arrow, place: int) -> None:
        (x1, y1), (x2, y2) = self._xy(arrow.start), self._end(arrow, place)
        kind = "message" if arrow.cut is None else f"marker cut{arrow.cut % 6}"  # reports are drawn like markers
        wrong = any([position in line.backwards for line in self._layout.cuts])
        classes = kind + (" open" if arrow.end is None else "") + (" backwards" if wrong else "")
        group = SubElement(self.root, "g", {"class": classes, "data-channel": _clean(str(arrow.channel))})
        what = arrow.what or arrow.label
        self._text(group, "title", f"{what}, {shown(str(arrow.channel))}")
        if y1 == y2:  # a process that sends to itself: a bow above its line
            path, slope, labelled = (
                f"M{x1:g} {y1:g}Q{(x1 + x2) / 2:g} {y1 - 60:g} {x2:g} {y2:g}",
                (1.0, 1.5),
                (0.5, -32.0),
            )
        else:
            path, slope, labelled = f"M{x1:g} {y1:g}L{x2:g} {y2:g}", (x2 - x1, y2 - y1), (0.45, -4.0)
        back = 0 if arrow.end is None else self._radius.get(arrow.end, 0)
        SubElement(group, "path", {"class": "shaft", "d": path})
        SubElement(group, "polygon", {"class": "tip", "points": _tip(x2, y2, slope, back)})
        markers = [line for line in self._layout.cuts if line.snapshot is not None]
        if arrow.cut is None or len(markers) > 1:
            share, up = labelled
            middle = {"x": f"{x1 + (x2 - x1) * share + 5:g}", "y": f"{y1 + (y2 - y1) * share + up:g}"}
            self._text(group, "text", shown(arrow.label, 14), {"class": "label", **middle})

    def _end(self, arrow: Arrow, place: int) -> tuple[float, float]:
        if arrow.end is not None:
            return self._xy(arrow.end)
        y1, y2 = self._xy(arrow.start)[1], TOP + LANE * arrow.lane
        return self._right + self._tail - 8, y2 - (y2 - y1) / max(abs(arrow.lane - arrow.start.lane), 1) * 0.25 * (
            1 + place % 3
        )

    def _cut(self, number: int, line: CutLine) -> None:
        group = SubElement(self.root, "g", {"class": f"cut cut{number % 6}", "data-cut": str(number)})
        self._text(group, "title", shown(line.title, 200))
        dashes = {"stroke-dasharray": DASHES[number % 6]}
        by_lane = {point.lane: self._xy(point) for point in line.crossings}
        for x, y in by_lane.values():
            tick = {"x1": f"{x:g}", "y1": f"{y - 16:g}", "x2": f"{x:g}", "y2": f"{y + 16:g}"}
            SubElement(group, "line", {"class": "crossing", **tick})
            if line.snapshot is not None:
                points = f"{x:g},{y - 6:g} {x + 6:g},{y:g} {x:g},{y + 6:g} {x - 6:g},{y:g}"
                SubElement(group, "polygon", {"class": "records", "points": points})
        for lane, (x1, y1) in by_lane.items():
            if lane + 1 in by_lane:  # no line between lanes that a snapshot has not reached yet
                x2, y2 = by_lane[lane + 1]
                path = f"M{x1:g} {y1 + 16:g}L{x2:g} {y2 - 16:g}"
                SubElement(group, "path", {"class": "through", "d": path, **dashes})
        if by_lane:
            x, y = by_lane[max(by_lane)]
            self._text(group, "text", shown(line.short, 16), {"class": "short", "x": f"{x:g}", "y": f"{y + 28:g}"})

    def _entry(self, classes: str, text: str, y: int) -> None:
        group = SubElement(self.root, "g", {"class": f"legend {classes}".strip()})
        if classes:
            dashes = DASHES[int(classes.removeprefix("cut"))]
            sample = {"x1": "16", "x2": "48", "y1": str(y - 4), "y2": str(y - 4), "stroke-dasharray": dashes}
            SubElement(group, "line", {"class": "through", **sample})
        self._text(group, "text", text, {"x": "56", "y": str(y)})

    def _text(self, parent: Element, tag: str, text: str, attributes: Mapping[str, str] | None = None) -> None:
        SubElement(parent, tag, dict(attributes or {})).text = text


def _tip(x: float, y: float, slope: tuple[float, float], back: float) -> str:
    """Return the corners of an arrow's head that ends ``back`` pixels before (x, y)."""
    angle = math.atan2(slope[1], slope[0])
    corners = ((back, 0.0), (back + 9, 3.5), (back + 9, -3.5))
    turned = [(x - a * math.cos(angle) - b * math.sin(angle), y - a * math.sin(angle) + b * math.cos(angle))
              for a, b in corners]  # fmt: skip
    return " ".join([f"{a:.1f},{b:.1f}" for a, b in turned])


def _legend(layout: DiagramLayout) -> list[tuple[str, str]]:
    """Return lines of text, each as a pair of the class of its cut and the text."""
    lines_by_class: list[tuple[str, str]] = []
    for number, title, lines in cut_lines(layout):
        lines_by_class.append((f"cut{number % 6}", shown(title, 110)))
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


def _clean(text: str) -> str:
    return shown(text, 200)


def _style() -> str:
    """Return the style sheet. Each rule is restricted to this picture, and none uses CSS variables.

    So it does not change the page around it, and works in viewers without variables.
    """
    still = {
        "text": "font:12px ui-sans-serif,system-ui,Helvetica,Arial,sans-serif",
        ".name,.who,.short": "font-weight:650",
        ".name,.label,.short": "paint-order:stroke;stroke-width:4px",
        ".name,.short": "text-anchor:middle",
        ".who": "text-anchor:end",
        ".lane": "stroke-width:1.6",
        ".shaft": "fill:none;stroke-width:1.4",
        ".marker .shaft": "stroke-dasharray:1.5 3.5;stroke-linecap:round",
        ".backwards .shaft": "stroke-width:3.2",
        ".ring,.crossing,.through,.records": "stroke-width:2",
        ".ring,.through": "fill:none",
    }
    dark = _coloured("#15191f", "#e6e9ee", "#7d8794", DARK)
    light = _coloured("#ffffff", "#1b222c", "#98a2b0", LIGHT)
    return _bound(still) + _bound(light) + f"@media (prefers-color-scheme:dark){{{_bound(dark)}}}"


def _coloured(ground: str, ink: str, soft: str, cuts: Sequence[str]) -> dict[str, str]:
    rules = {
        ".page": f"fill:{ground}",
        "text,.dot": f"fill:{ink}",
        ".name,.label,.short": f"stroke:{ground}",
        ".lane": f"stroke:{soft}",
        ".shaft": f"stroke:{ink}",
        ".tip": f"fill:{ink};stroke:{ink}",
    }
    for i, colour in enumerate(cuts):
        drawn = ("shaft", "crossing", "through", "records", "tip")
        rules[",".join([f".cut{i} .{name}" for name in drawn] + [f".cut{i}.ring"])] = f"stroke:{colour}"
        rules[",".join([f".cut{i} .{name}" for name in ("tip", "label", "short")])] = f"fill:{colour}"
    return {**rules, ".open .tip,.records": f"fill:{ground}"}


def _bound(rules: Mapping[str, str]) -> str:
    parts = [(",".join([f".spacetime {name}" for name in names.split(",")]), rule) for names, rule in rules.items()]
    return "".join([f"{names}{{{rule}}}\n" for names, rule in parts])
