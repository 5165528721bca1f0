"""Charts of what checkpoints cost in each mode: how long they took, how many bytes they wrote, how long inputs waited.

A row is a mode. Its bar is the checkpoint nearest to the median, a tick is each one. All rows of a chart have one
scale, which begins at 0. Only periodic checkpoints count: savepoints and the last one wait for other things.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from dataflow.clock import duration_text
from dataflow.drawing import CAUSES, Box, Canvas, Word, text_width
from dataflow.views.sentence import size_text

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["Bar", "cost_charts", "draw_chart"]

_BAR: Final = 20
_ROW: Final = 34
"""Pixels: the height of a bar, and the distance of two rows."""
_GAP: Final = 12
_SCALE: Final = 420
"""Pixels: the gap beside a column, and the width of the largest value."""
_UNKNOWN: Final = "not measured"


@dataclass(frozen=True, slots=True)
class Bar:
    """The row of a mode: the parts of the checkpoint nearest to the median, each a cause and a value; all values.

    No ``values``: there was no periodic checkpoint. ``is_measured`` is False if the runner does not measure this.
    """

    name: str
    parts: Sequence[tuple[str, int]]
    values: Sequence[int]
    is_measured: bool = True


def cost_charts(runs: Mapping[str, Events]) -> list[str]:
    """Return the charts of several runs, by the name of the run, each as an SVG element."""
    charts = [
        ("Time from the trigger of a checkpoint until it is durable", _durations, duration_text),
        ("Bytes that a checkpoint wrote", _sizes, size_text),
        ("Time that a checkpoint blocked inputs, added up over all channels", _blocked, duration_text),
    ]
    return [draw_chart(title, [bar(name, runs[name]) for name in runs], text).svg() for title, bar, text in charts]


def _durations(name: str, events: Events) -> Bar:
    values = _column(events, "duration")
    known = [value for value in values if value is not None]
    if not known:
        return Bar(name, (), ())
    middle = _middle(known)
    at = values.index(middle)
    causes = {"barrier": "travel", "state": "write", "manifest": "manifest"}
    parts = [(cause, _column(events, column)[at]) for cause, column in causes.items()]
    whole = [(cause, length) for cause, length in parts if length is not None]
    return Bar(name, whole if len(whole) == len(parts) else [("", middle)], known)


def _sizes(name: str, events: Events) -> Bar:
    return _simple(name, events, "bytes", "state")


def _blocked(name: str, events: Events) -> Bar:
    return _simple(name, events, "blocked", "blocked")


def _simple(name: str, events: Events, column: str, cause: str) -> Bar:
    values = _column(events, column)
    known = [value for value in values if value is not None]
    if not known:
        return Bar(name, (), (), is_measured=not values)
    return Bar(name, [(cause, _middle(known))], known)


def _middle(values: Sequence[int]) -> int:
    """Return the value nearest to the median, the smaller one of two."""
    return sorted(values)[(len(values) - 1) // 2]


def _column(events: Events, name: str) -> list[int | None]:
    """Return a column of the table of checkpoints, of the periodic ones that were durable."""
    table = events.checkpoints
    kinds, states = table["kind"].to_pylist(), table["state"].to_pylist()
    return [
        value
        for value, kind, state in zip(table[name].to_pylist(), kinds, states, strict=True)
        if kind == "checkpoint" and state in ("durable", "committed")
    ]


def draw_chart(title: str, bars: Sequence[Bar], text: Callable[[int], str]) -> Canvas:
    """Return a chart, drawn.

    Args:
        title: what is measured.
        bars: the rows.
        text: returns a value with its unit.

    >>> chart = draw_chart("Bytes", [Bar("aligned (exactly once)", [("state", 40)], [30, 40, 90])], str)
    >>> [words for _, words in chart.texts][:3]
    ['Bytes', 'aligned (exactly once)', 'median 40, most 90, of 3 checkpoints']
    """
    canvas = Canvas("chart", title)
    canvas.text(0, 0, [Word(title, "strong")], size=14)
    left = max([text_width(bar.name, 12) for bar in bars], default=0) + _GAP
    most = max([max(bar.values, default=0) for bar in bars], default=0)
    for number, bar in enumerate(bars):
        _draw_row(canvas, bar, Box(left, 18 + number * _ROW, left + _SCALE, 18 + number * _ROW + _BAR), most, text)
    _draw_legend(canvas, bars, 18 + len(bars) * _ROW)
    return canvas


def _draw_row(canvas: Canvas, bar: Bar, box: Box, most: int, text: Callable[[int], str]) -> None:
    baseline = box.bottom - 6
    canvas.text(box.left - _GAP, baseline, bar.name, anchor="end")
    canvas.line(box.left, box.top - 4, box.left, box.bottom + 4, "edge")
    if not bar.values:
        canvas.text(box.left + _GAP, baseline, "no periodic checkpoint" if bar.is_measured else _UNKNOWN, "soft")
        return
    pixel = (box.right - box.left) / most if most else 0.0
    x = box.left
    for cause, value in bar.parts:
        title = f"{CAUSES[cause].words}: {text(value)}" if cause else text(value)
        canvas.rect(x, box.top, value * pixel, _BAR, cause or "panel edged", title=title)
        x += value * pixel
    for offset in sorted({round(value * pixel, 1) for value in bar.values}):
        canvas.line(box.left + offset, box.top - 3, box.left + offset, box.bottom + 3)
    count = f"{len(bar.values):,} checkpoint{'s' * (len(bar.values) != 1)}"
    middle, largest = text(round(median(bar.values))), text(max(bar.values))
    words = [Word(f"median {middle}", "strong"), Word(f", most {largest}, of {count}")]
    canvas.text(box.right + _GAP, baseline, words)


def _draw_legend(canvas: Canvas, bars: Sequence[Bar], top: float) -> None:
    """Explain colours where a bar has several, and the ticks."""
    causes = list(dict.fromkeys(cause for bar in bars for cause, _ in bar.parts if cause))
    x = 0.0
    for cause in causes if len(causes) > 1 else ():
        canvas.rect(x, top + 4, 14, 14, cause)
        box = canvas.text(x + 20, top + 16, CAUSES[cause].words, "soft")
        x = box.right + 2 * _GAP
    canvas.text(x, top + 16, "bar: the checkpoint nearest to the median; line: each checkpoint", "soft")
