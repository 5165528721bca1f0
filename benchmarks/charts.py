"""Line charts with error bars as SVG, with the colours and dashes of all pictures (``dataflow.drawing``).

A chart is built as an element tree, so labels are always text. It has a background of its own and follows the reader's
light or dark scheme. Series differ in colour and in the dashes of their lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from dataflow.drawing import fitted
from dataflow.drawing.palette import DARK, FONT, LIGHT, Scheme, series

__all__ = ["Chart", "Mark", "as_svg"]

WIDTH, HEIGHT = 640, 400
SERIES = list(series("s").values())
LEFT, RIGHT, TOP, BOTTOM = 76, 190, 44, 56
"""Pixels around the plot; the legend is at the right."""


@dataclass(frozen=True)
class Mark:
    """A point of a series: where it is on the x axis, its value, and the half-width of its error bar."""

    x: float
    y: float
    half_width: float = 0.0


@dataclass(frozen=True)
class Chart:
    """A chart of ``series`` by name.

    Args:
        title: a line above the chart.
        x_title: the name of the x axis.
        y_title: the name of the y axis.
        ticks: the positions on the x axis that have a label; all marks lie between the first and the last.
        series: the marks of each line, in the order of x. A series without marks is not drawn; its colour stays free.
        log: whether the y axis is logarithmic; else it begins at zero.
    """

    title: str
    x_title: str
    y_title: str
    ticks: Mapping[float, str]
    series: Mapping[str, Sequence[Mark]]
    log: bool = False


def as_svg(chart: Chart) -> str:
    """Return the chart as an ``svg`` element, valid as a file or inside a page.

    >>> line = {"ours": [Mark(0, 5.0, 1.0), Mark(1, 7.0)]}
    >>> as_svg(Chart("Speed", "threads", "rows/s", {0: "1", 1: "2"}, line)).count("<circle")
    2
    """
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT)}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "chart", "role": "img", **size})
    _text(root, "title", chart.title)
    _text(root, "style", _style())
    SubElement(root, "rect", {"class": "page", "width": str(WIDTH), "height": str(HEIGHT), "rx": "10"})
    _text(root, "text", chart.title, x=LEFT, y=26, kind="head")
    scale = _Scale(chart)
    _axes(root, chart, scale)
    for number, (name, marks) in enumerate(chart.series.items()):
        if drawn := [mark for mark in marks if mark.y > 0 or not chart.log]:
            _line(root, number, name, drawn, scale)
    for child in root:
        child.tail = "\n"
    return ElementTree.tostring(root, encoding="unicode") + "\n"


class _Scale:
    """Turns values into pixels."""

    def __init__(self, chart: Chart) -> None:
        marks = [mark for marks in chart.series.values() for mark in marks]
        tops = [mark.y + mark.half_width for mark in marks if mark.y > 0] or [1.0]
        self._first, self._last = min(chart.ticks), max(chart.ticks)
        self.log = chart.log
        if self.log:
            lows = [mark.y for mark in marks if mark.y > 0] or [1.0]
            self.low, self.high = (10.0 ** math.floor(math.log10(min(lows))), 10.0 ** math.ceil(math.log10(max(tops))))
            self.high = max(self.high, 10 * self.low)
        else:
            self.low, self.high = 0.0, max(tops) * 1.05

    def x(self, value: float) -> float:
        span = self._last - self._first
        share = 0.5 if span == 0 else (value - self._first) / span
        return LEFT + 16 + share * (WIDTH - LEFT - RIGHT - 32)

    def y(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = math.log10(value / self.low) / math.log10(self.high / self.low) if self.log else value / self.high
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            first, last = (round(math.log10(value)) for value in (self.low, self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = 10.0 ** math.floor(math.log10(self.high))
        step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if self.high / (step * part) <= 6)
        return [step * number for number in range(int(self.high / step) + 1)]


def _axes(root: Element, chart: Chart, scale: _Scale) -> None:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in scale.ticks:
        y = scale.y(value)
        _rule(root, "grid", LEFT, y, right, y)
        _text(root, "text", f"{value:g}", x=LEFT - 8, y=y + 4, kind="end")
    _rule(root, "axis", LEFT, floor, right, floor)
    for position, label in chart.ticks.items():
        _rule(root, "axis", scale.x(position), floor, scale.x(position), floor + 5)
        _text(root, "text", label, x=scale.x(position), y=floor + 19, kind="middle")
    _text(root, "text", chart.x_title, x=(LEFT + right) / 2, y=HEIGHT - 14, kind="middle")
    title = _text(root, "text", chart.y_title, x=18, y=(TOP + floor) / 2, kind="middle")
    title.set("transform", f"rotate(-90 18 {(TOP + floor) / 2:g})")


def _line(root: Element, number: int, name: str, marks: Sequence[Mark], scale: _Scale) -> None:
    group = SubElement(root, "g", {"class": f"series s{number % len(SERIES)}", "data-series": name})
    dashes = SERIES[number % len(SERIES)].dashes
    points = " ".join([f"{scale.x(mark.x):.1f},{scale.y(mark.y):.1f}" for mark in marks])
    SubElement(group, "polyline", {"points": points, "stroke-dasharray": dashes})
    for mark in marks:
        x, y = scale.x(mark.x), scale.y(mark.y)
        _text(SubElement(group, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3.5"}), "title", f"{mark.y:g}")
        if mark.half_width:
            _rule(group, "bar", x, scale.y(mark.y - mark.half_width), x, scale.y(mark.y + mark.half_width))
    y = TOP + 12 + 20 * number
    SubElement(group, "polyline", {"points": f"{WIDTH - 178},{y} {WIDTH - 148},{y}", "stroke-dasharray": dashes})
    shown = fitted(name, 136, 12)
    label = _text(group, "text", shown, x=WIDTH - 140, y=y + 4)
    if shown != name:
        _text(label, "title", name)


def _rule(parent: Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    SubElement(parent, "line", {"class": kind, **ends})


def _text(parent: Element, tag: str, text: str, *, x: float = 0, y: float = 0, kind: str = "") -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind} if tag == "text" else {}
    child = SubElement(parent, tag, place)
    child.text = text
    return child


def _style() -> str:
    """Return the style sheet, restricted to this chart."""
    still = {
        "text": f"{FONT};font-size:12px",
        ".head": "font-weight:650;font-size:14px",
        ".end": "text-anchor:end",
        ".middle": "text-anchor:middle",
        "polyline": "fill:none;stroke-width:2",
        ".bar": "stroke-width:1.4",
    }
    light, dark = (_coloured(scheme) for scheme in (LIGHT, DARK))
    return _bound(still) + _bound(light) + f"@media (prefers-color-scheme:dark){{{_bound(dark)}}}"


def _coloured(scheme: Scheme) -> dict[str, str]:
    rules = {
        ".page": f"fill:{scheme.page}",
        "text": f"fill:{scheme.ink}",
        ".axis": f"stroke:{scheme.ink}",
        ".grid": f"stroke:{scheme.grid}",
    }
    for cause in SERIES:
        colour = (cause.light if scheme is LIGHT else cause.dark).fill
        rules[f".{cause.name} polyline"] = rules[f".{cause.name} .bar"] = f"stroke:{colour}"
        rules[f".{cause.name} circle"] = f"fill:{colour}"
    return rules


def _bound(rules: Mapping[str, str]) -> str:
    return "".join([f".chart {name}{{{rule}}}\n" for name, rule in rules.items()])
