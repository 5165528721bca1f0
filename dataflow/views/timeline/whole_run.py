"""The picture of a whole run: the lanes of the job, all checkpoints, crashes and restores, and rows per second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from dataflow.clock import duration_text
from dataflow.drawing import Box, Word
from dataflow.drawing.text_width import text_width
from dataflow.drawing.words import plain
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput
from dataflow.views.timeline.lanes import Interest, Lanes, choose_lanes
from dataflow.views.timeline.row_rates import draw_rates
from dataflow.views.timeline.run_facts import CheckpointSpan, RunFacts
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, NOT_ON_SPARK, SHARES, LanePlace, Sheet
from dataflow.views.timeline.strips import column_width, draw_strip

__all__ = ["draw_run", "run_interest", "run_scale"]

MOST_BARRIERS: Final = 1_200
"""So many barriers are drawn; of longer runs only those of the slowest checkpoints."""


def run_scale(begin: int, length: int) -> Scale:
    """Return the axis of a run of which so many microseconds are shown."""
    return Scale(begin, begin + max(length, 1_000), 0.0, CHART)


def run_interest(run: RunFacts) -> Interest:
    """Return what is worth a lane of its own: the inputs that were blocked longest in all."""
    blocked = _sums(run.blocked)
    slowness: defaultdict[str, int] = defaultdict(int)
    for input_ in run.blocked:
        slowness[input_.task] += input_.length(input_.begin)
    return Interest((), slowness, blocked, least=max(blocked.values(), default=0) // 20)


def draw_run(sheet: Sheet, run: RunFacts, length: int) -> Lanes:
    """Draw a whole run from ``sheet.y`` on, and return its lanes."""
    scale = run_scale(run.begin, length)
    lanes = choose_lanes(run.plan, run_interest(run))
    sheet.y += 16
    axis = sheet.y
    with sheet.canvas.group():
        sheet.y += 12
        bar = sheet.y + 9
        sheet.y += 84 if len(run.attempts) > 1 else 54
        places = sheet.place_lanes(lanes)
        bottom, sheet.y = sheet.y, axis
        sheet.axis(scale, _ticks(run, scale), "blocked in all" if run.plan.is_measured else "", bottom)
    sheet.y = bottom
    for place in places:
        if not run.plan.is_measured and not any(span.is_measured for span in run.work.get(place.lane.shown, ())):
            sheet.canvas.text(0, place.y + 4, NOT_ON_SPARK, "soft", size=11)
        draw_strip(sheet, place, run.work.get(place.lane.shown, ()), scale, column_width(len(places)))
    _draw_blocked(sheet, run, scale, places)
    _draw_barriers(sheet, run, scale, places)
    _draw_checkpoints(sheet, run, scale, bar)
    _draw_attempts(sheet, run, scale, bar, bottom)
    draw_rates(sheet, run, scale)
    return lanes


def _ticks(run: RunFacts, scale: Scale) -> list[tuple[int, str]]:
    """Return the labelled moments. After time that is left out, labels go on with the time since the first start."""
    ticks: list[tuple[int, str]] = []
    starts = [attempt.begin for attempt in run.attempts[1:]] + [scale.end]
    for attempt, until in zip(run.attempts, starts, strict=True):
        shown = Scale(scale.begin, scale.end + attempt.left_out, 0.0, 1.0).ticks(0)
        ticks += [
            (time - attempt.left_out, words)
            for time, words in shown
            if (attempt.begin if attempt.left_out else 0) <= time - attempt.left_out <= until
        ]
    return ticks


def _draw_checkpoints(sheet: Sheet, run: RunFacts, scale: Scale, y: float) -> None:
    """Draw all checkpoints in one lane, in their parts; those that overlap in time are lower."""
    sheet.row_label(y, "checkpoints", is_task=True)
    levels = [0, 0, 0]
    for span in run.checkpoints:
        end = span.ended if span.ended is not None else _end_of(run, span)
        level = next((level for level, free in enumerate(levels) if free <= span.triggered), 2)
        levels[level] = end
        top = y - 8 + 5 * level
        _draw_parts(sheet, scale, span, end, top, 16 if level == 0 else 4)
    widths = sorted(run.checkpoints, key=lambda span: -((span.ended or span.triggered) - span.triggered))
    for span in widths:
        _name_checkpoint(sheet, scale, span, y)


def _draw_parts(sheet: Sheet, scale: Scale, span: CheckpointSpan, end: int, top: float, height: float) -> None:
    title = _title(span)
    begin = span.triggered
    parts = [("barrier", span.travelled), ("state", span.written), ("manifest", end)]
    if not span.is_durable:
        parts = [("failed" if span.failure is not None else "barrier", end)]
    elif span.travelled is None or span.written is None:
        parts = [("panel edged", end)]
    for cause, moment in parts:
        moment = max(begin, min(moment if moment is not None else begin, end))
        if moment > begin or len(parts) == 1:
            left = scale.x(begin)
            sheet.canvas.rect(left, top, max(scale.x(moment) - left, 1.2), height, sheet.use(cause), title=title)
        begin = moment


def _name_checkpoint(sheet: Sheet, scale: Scale, span: CheckpointSpan, y: float) -> None:
    """Write id and duration below the bar if there is room, else only the id, else nothing."""
    length = "" if span.ended is None else f": {duration_text(span.ended - span.triggered)}"
    kind = "failed" if span.failure is not None and not span.is_durable else "soft"
    for words in (f"{span.checkpoint}{length}", str(span.checkpoint)):
        for below in (y + 20, y + 33):
            x = min(scale.x(span.triggered), CHART + SHARES - 8 - text_width(words, 10))
            if sheet.canvas.is_free(Box(x - 3, below - 10, x + text_width(words, 10) + 3, below + 3)):
                title = _title(span)
                sheet.canvas.text(x, below, words, kind, size=10, title=title)
                return


def _title(span: CheckpointSpan) -> str:
    mode = f", in mode {span.mode.text}" if span.mode.mode else ""
    return f"{span.kind} {span.checkpoint}{mode}: {_outcome(span)}"


def _outcome(span: CheckpointSpan) -> str:
    if span.ended is None:
        return "neither durable nor failed"
    length = duration_text(span.ended - span.triggered)
    return f"durable after {length}" if span.is_durable else f"failed after {length}: {span.failure}"


def _end_of(run: RunFacts, span: CheckpointSpan) -> int:
    return next((attempt.end for attempt in run.attempts if attempt.number == span.attempt), run.end)


def _draw_blocked(sheet: Sheet, run: RunFacts, scale: Scale, places: Sequence[LanePlace]) -> None:
    by_channel: defaultdict[str, list[BlockedInput]] = defaultdict(list)
    by_task: defaultdict[str, list[BlockedInput]] = defaultdict(list)
    for blocked in run.blocked:
        by_channel[blocked.channel].append(blocked)
        by_task[blocked.task].append(blocked)
    sums = _sums(run.blocked)
    longest = max(sums.values(), default=0)
    for place in places:
        if not place.inputs:
            together = [blocked for task in place.lane.tasks for blocked in by_task[task]]
            _draw_bars(sheet, together, scale, place.y + 8, 4)
            _write_sum(sheet, place.y, together, sums, longest)
        for lane, y in place.inputs:
            together = [blocked for channel in lane.channels for blocked in by_channel[channel.name]]
            _draw_bars(sheet, together, scale, y - 7, 14)
            _write_sum(sheet, y, together, sums, longest)


def _write_sum(sheet: Sheet, y: float, together: Sequence[BlockedInput], sums: dict[str, int], longest: int) -> None:
    """Write how long an input was blocked in all; of several that share the lane, the one that was blocked longest."""
    channels = {blocked.channel: sums[blocked.channel] for blocked in together}
    if not channels:
        return
    most = max(channels.values())
    words = f"{'at most ' if len(channels) > 1 else ''}{duration_text(most)}"
    title = "; ".join([f"{name}: {duration_text(length)}" for name, length in list(channels.items())[:20]])
    sheet.share(y, [Word(words, "strong blocked" if most == longest else "blocked")], title)


def _draw_bars(sheet: Sheet, together: Iterable[BlockedInput], scale: Scale, y: float, height: float) -> None:
    """Draw blocked times of one lane; those closer than a pixel are drawn as one."""
    merged: list[list[float]] = []
    titles: list[str] = []
    for blocked in sorted(together, key=lambda blocked: blocked.begin):
        end = blocked.ended_by(blocked.begin)
        left, right = scale.x(blocked.begin), max(scale.x(end), scale.x(blocked.begin) + 1.2)
        if merged and left <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], right)
            titles[-1] = ""
        else:
            merged.append([left, right])
            waits = f", waits for {blocked.awaited}" if blocked.awaited else ""
            titles.append(f"{blocked.channel}: blocked {duration_text(end - blocked.begin)}{waits}")
    for (left, right), title in zip(merged, titles, strict=True):
        sheet.canvas.rect(left, y, right - left, height, sheet.use("blocked"), title=title)


def _sums(blocked: Iterable[BlockedInput]) -> dict[str, int]:
    sums: defaultdict[str, int] = defaultdict(int)
    for one in blocked:
        sums[one.channel] += one.length(one.begin)
    return dict(sums)


def _draw_barriers(sheet: Sheet, run: RunFacts, scale: Scale, places: Sequence[LanePlace]) -> None:
    """Draw the slowest barrier from lane to lane of each checkpoint; of the slowest ones if there are many."""
    senders = {task: place.y for place in places for task in place.lane.tasks}
    targets = {channel.name: y for place in places for lane, y in place.inputs for channel in lane.channels}
    shared = {task: place.y for place in places if not place.inputs for task in place.lane.tasks}
    lengths = {(c.attempt, c.checkpoint): (c.ended or c.triggered) - c.triggered for c in run.checkpoints}
    room = MOST_BARRIERS
    for key in sorted(run.barriers, key=lambda key: -lengths.get(key, 0)):
        slowest: dict[tuple[float, float], BarrierTravel] = {}
        for barrier in run.barriers[key]:
            source, target = senders.get(barrier.source), targets.get(barrier.channel, shared.get(barrier.target))
            if source is None or target is None or barrier.sent is None or barrier.arrived is None:
                continue
            before = slowest.get((source, target))
            if before is None or barrier.arrived - barrier.sent > (before.arrived or 0) - (before.sent or 0):
                slowest[source, target] = barrier
        room -= len(slowest)
        if room < 0:
            break
        for (source, target), barrier in slowest.items():
            cause = "overtaken" if barrier.overtakes else "barrier"
            length = duration_text((barrier.arrived or 0) - (barrier.sent or 0))
            title = f"{barrier.channel}: barrier {key[1]}, {length} in the queue"
            start, end = scale.x(barrier.sent or 0), scale.x(barrier.arrived or 0)
            sheet.canvas.line(start, source, end, target, f"{sheet.use(cause)} thin", title=title)


def _draw_attempts(sheet: Sheet, run: RunFacts, scale: Scale, bar: float, bottom: float) -> None:
    """Mark where attempts ended and where the next ones began, with the checkpoint that they restored."""
    rows = (bar + 49, bar + 64)
    for index, attempt in enumerate(run.attempts):
        if attempt.outcome in ("crashed", "failed", "cancelled") or index + 1 < len(run.attempts):
            x = scale.x(attempt.end)
            words = [Word(attempt.outcome, "strong")] + ([Word(f": {attempt.error}")] if attempt.error else [])
            sheet.canvas.line(x, bar - 12, x, bottom, f"{sheet.use('failed')} heavy solid", title=plain(words))
            places = [place for y in rows for place in ((x - 5, y, "end"), (x + 5, y, "start"))]
            sheet.note_at(places, words, "failed", right=CHART + SHARES)
        if index:
            before = run.attempts[index - 1]
            left, x = scale.x(before.end), scale.x(attempt.begin)
            gap = duration_text(attempt.begin + attempt.left_out - before.end - before.left_out)
            start = "started again" if attempt.restored is None else f"restored {attempt.restored}"
            sheet.canvas.rect(left, bar - 8, x - left, 16, "panel edged", title=f"{gap} between two attempts")
            sheet.canvas.line(x, bar - 12, x, bottom, title=f"{start}, {gap} later")
            places = [place for y in rows for place in ((x + 5, y, "start"), (x - 5, y, "end"))]
            sheet.note_at(places, [Word(start, "strong"), f", {gap} later"], "", right=CHART + SHARES)
