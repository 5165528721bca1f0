"""Rows per second over a whole run, as lines: what sources emitted, and what the most blocked vertex took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from dataflow.drawing import Word
from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.timeline.run_facts import RunFacts
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, LABELS, SHARES, Sheet

__all__ = ["draw_rates"]

HEIGHT: Final = 44.0
COLUMN: Final = 4.0


def draw_rates(sheet: Sheet, run: RunFacts, scale: Scale) -> None:
    """Draw up to two lines of rows per second from ``sheet.y`` on; none if there are no samples."""
    if not any(run.work.values()):
        return
    targets = {link.target for link in run.plan.links}
    sources = [vertex for vertex in run.plan.vertices if vertex.name not in targets]
    tasks = [task for vertex in sources for task in vertex.tasks]
    name = sources[0].name if len(sources) == 1 else "sources"
    _draw_line(sheet, f"rows/s out of {name}", _rates(run, tasks, scale, "rows_out"), scale)
    blocked: defaultdict[str, int] = defaultdict(int)
    vertex_of = {task: vertex for vertex in run.plan.vertices for task in vertex.tasks}
    for one in run.blocked:
        blocked[one.task] += one.length(one.begin)
    if blocked:
        vertex = vertex_of[max(blocked, key=lambda task: blocked[task])]
        _draw_line(sheet, f"rows/s into {vertex.name}", _rates(run, vertex.tasks, scale, "rows_in"), scale)


def _rates(run: RunFacts, tasks: Iterable[str], scale: Scale, column: str) -> list[float]:
    """Return rows per second in each column of pixels. A sample's rows are spread evenly over its time."""
    count = round((scale.right - scale.left) / COLUMN)
    step = (scale.end - scale.begin) / count
    totals = [0.0] * count
    for task in tasks:
        for span in run.work.get(task, ()):
            _spread(totals, span, getattr(span, column), scale.begin, step)
    return [total / step * 1_000_000 for total in totals]


def _spread(totals: list[float], span: WorkSpan, rows: int, begin: int, step: float) -> None:
    length = span.end - span.begin
    if length <= 0 or rows <= 0:
        return
    first = max(0, int((span.begin - begin) / step))
    last = min(len(totals) - 1, int((span.end - begin) / step))
    for index in range(first, last + 1):
        left = begin + index * step
        totals[index] += rows * max(0.0, min(span.end, left + step) - max(span.begin, left)) / length


def _draw_line(sheet: Sheet, words: str, rates: list[float], scale: Scale) -> None:
    most = max(rates, default=0.0)
    if most <= 0:
        return
    sheet.y += 8
    top, floor = sheet.y, sheet.y + HEIGHT
    sheet.row_label((top + floor) / 2, words, is_task=True)
    sheet.canvas.line(0, floor, CHART, floor, "grid thin")
    width = (scale.right - scale.left) / len(rates)
    points = [(scale.left + (i + 0.5) * width, floor - HEIGHT * rate / most) for i, rate in enumerate(rates)]
    sheet.canvas.polyline(_thinned(points))
    sheet.share(top + 6, [Word(f"at most {_short(most)}", "soft")], title=f"at most {round(most):,} rows per second")
    sheet.canvas.rect(-LABELS, floor + 2, LABELS + CHART + SHARES, 0.5, "panel")
    sheet.y = floor


def _short(rate: float) -> str:
    """Return a rate in few characters.

    >>> _short(830.4), _short(12_345.0), _short(5_958_123.0)
    ('830', '12.3 k', '5.96 M')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.0f}"


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those on a level line."""
    heights = [round(y, 1) for _, y in points]
    inner = range(1, len(points) - 1)
    kept = [points[i] for i in inner if not heights[i - 1] == heights[i] == heights[i + 1]]
    return [points[0], *kept, points[-1]]
