"""What a task did, as the height of a strip: at work, only blocked inputs, no room downstream; and its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataflow.drawing import Box, Word
from dataflow.drawing.svg import number
from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.sentence import percent
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, NOT_ON_SPARK, STRIP, LanePlace, Sheet
from dataflow.views.work_spans import Activity

__all__ = ["column_width", "draw_strip", "write_share"]

_CAUSES: Final = ("work", "held", "full")
"""From the bottom of the strip to its top."""
_WORDS: Final = {"work": "busy", "held": "blocked", "full": "no room", "waiting": "waits", "": "no thread"}
MOST_COLUMNS: Final = 16_000
"""All strips of a picture together have so many columns."""


def column_width(strips: int) -> float:
    """Return the width of the columns in which the work of so many tasks is drawn, so that a picture stays small.

    >>> column_width(10), column_width(800)
    (3.0, 33.0)
    """
    return max(3.0, round(CHART * strips / MOST_COLUMNS, 1))


def draw_strip(sheet: Sheet, place: LanePlace, spans: Sequence[WorkSpan], scale: Scale, column: float) -> None:
    """Draw the strip of a task in columns of so many pixels, a cause above the other.

    Each area reaches down to the floor, and the next one covers its lower part: this halves the picture.
    """
    columns = _columns(spans, scale, column)
    width = (scale.right - scale.left) / max(len(columns), 1)
    bounds = Box(scale.left, place.floor - STRIP, scale.right, place.floor)
    for index in reversed(range(len(_CAUSES))):
        tops = [min(sum(heights[: index + 1]), STRIP) if heights[index] else 0.0 for heights in columns]
        d = "".join([_outline(tops, first, last, scale.left, width, place.floor) for first, last in _runs(tops)])
        if d:
            sheet.canvas.area(d, bounds, sheet.use(_CAUSES[index]))


def _columns(spans: Sequence[WorkSpan], scale: Scale, column: float) -> list[tuple[float, float, float]]:
    """Return the height of each cause in each column, in half pixels."""
    count = max(1, round((scale.right - scale.left) / column))
    step = (scale.end - scale.begin) / count
    totals = [[0.0, 0.0, 0.0, 0.0] for _ in range(count)]
    for span in spans:
        length = span.end - span.begin
        if length <= 0 or not scale.shows(span.begin, span.end):
            continue
        amounts = [max(value, 0) for value in (span.busy, span.blocked, span.back_pressured)]
        whole = max(length, sum(amounts) + max(span.waiting, 0))
        first = max(0, int((span.begin - scale.begin) / step))
        last = min(count - 1, int((span.end - scale.begin) / step))
        for index in range(first, last + 1):
            left, right = scale.begin + index * step, scale.begin + (index + 1) * step
            inside = max(0.0, min(span.end, right) - max(span.begin, left))
            for cause, amount in enumerate(amounts):
                totals[index][cause] += amount / whole * inside
            totals[index][3] += inside
    return [tuple([round(2 * STRIP * total / step) / 2 for total in row[:3]]) for row in totals]  # type: ignore[misc]


def _runs(tops: Sequence[float]) -> list[tuple[int, int]]:
    """Return begin and end of the runs of columns that are not empty."""
    runs: list[tuple[int, int]] = []
    for index, top in enumerate(tops):
        if top and runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        elif top:
            runs.append((index, index + 1))
    return runs


def _outline(tops: Sequence[float], first: int, last: int, left: float, width: float, floor: float) -> str:
    """Return the path around some columns: up to the first top, from top to top, and down to the floor."""
    steps = [f"M{number(left + first * width)} {number(floor)}"]
    for index in range(first, last):
        rise = tops[index] - (tops[index - 1] if index > first else 0.0)
        if rise:
            steps.append(f"H{number(left + index * width)}v{number(-rise)}" if index > first else f"v{number(-rise)}")
    return f"{''.join(steps)}H{number(left + last * width)}V{number(floor)}z"


def write_busy(sheet: Sheet, y: float, did: Activity) -> None:
    """Write how busy a task was right of the axis, where nothing else is measured."""
    sheet.share(y, [Word(f"{_WORDS['work']} {percent(did.busy)}%", sheet.use("work"))], f"the rest is {NOT_ON_SPARK}")


def write_share(sheet: Sheet, y: float, did: Activity | None, *, is_culprit: bool) -> None:
    """Write the largest share right of the axis, the culprit's in bold."""
    if did is None:
        sheet.share(y, [Word("not sampled", "soft")], "samples are missing, or too far apart to tell")
        return
    shares = {"work": did.busy, "held": did.blocked, "full": did.back_pressured, "waiting": did.waiting, "": did.ready}
    cause = max(shares, key=lambda name: shares[name])
    every = {name: f"{_WORDS[name]} {percent(share)}%" for name, share in shares.items()}
    kind = "soft" if cause in ("waiting", "") else sheet.use(cause)
    kind = f"strong {kind.removeprefix('soft')}" if is_culprit else kind
    sheet.share(y, [Word(every[cause], kind)], ", ".join(every.values()))
