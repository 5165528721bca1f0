"""Blocked inputs: bars that say for how long, and whose barrier the task waited for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dataflow.clock import duration_text
from dataflow.drawing import Box
from dataflow.drawing.words import words_width
from dataflow.events.kinds import Unblocked
from dataflow.views.causes import Causes
from dataflow.views.checkpoint_facts import BlockedInput, CheckpointFacts
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, LanePlace, Sheet

__all__ = ["BlockedLabel", "blocked_words", "draw_blocked", "write_blocked"]

BAR: Final = 14.0
MIN_WIDTH: Final = 1.5
"""A bar is at least so wide, so that it is seen. A narrower one has no words."""


def blocked_words(blocked: BlockedInput, awaited: str | None, end: int) -> tuple[str, ...]:
    """Return how long an input was blocked and why, in words, the longest form first.

    >>> blocked_words(BlockedInput("a[0] -> c[0]", "c[0]", 0, 337_000, Unblocked.COMPLETE), "b[0]", 337_000)
    ('blocked 337.0 ms, waits for b[0]', 'blocked 337.0 ms', '337.0 ms')
    """
    length = duration_text(end - blocked.begin)
    match blocked.why:
        case Unblocked.TIMEOUT:
            reason = "until the timeout"
        case Unblocked.ABORTED:
            reason = "until the checkpoint was aborted"
        case Unblocked.ENDED:
            reason = f"waits for the last rows of {awaited}" if awaited else "until another input ended"
        case Unblocked.COMPLETE:
            reason = f"waits for {awaited}" if awaited else "waits for other barriers"
        case None:
            reason = f"still waits for {awaited}" if awaited else "still waits"
    return f"blocked {length}, {reason}", f"blocked {length}", length


class BlockedLabel(NamedTuple):
    """Words to be written in or beside a bar, the longest form first. ``is_shared``: others share its lane."""

    bar: Box
    forms: tuple[str, ...]
    is_shared: bool


def draw_blocked(
    sheet: Sheet, facts: CheckpointFacts, scale: Scale, places: Sequence[LanePlace]
) -> Sequence[BlockedLabel]:
    """Draw the bar of each blocked input, in the lane of the input or, thin, in the lane that it shares.

    Return the labels, which are written when all lines are drawn: lines do not cross out words then.
    """
    labels: list[BlockedLabel] = []
    by_channel: dict[str, list[BlockedInput]] = {}
    for blocked in facts.blocked:
        by_channel.setdefault(blocked.channel, []).append(blocked)
    by_task: dict[str, list[BlockedInput]] = {}
    for blocked in facts.blocked:
        by_task.setdefault(blocked.task, []).append(blocked)
    for place in places:
        for lane, y in place.inputs:
            together = [blocked for channel in lane.channels for blocked in by_channel.get(channel.name, ())]
            labels += _draw_lane(sheet, together, facts, scale, y, others=len(lane.channels) - 1)
        if not place.inputs:
            together = [blocked for task in place.lane.tasks for blocked in by_task.get(task, ())]
            _draw_shared(sheet, together, facts, scale, place.y + 10)
    return labels


def write_blocked(sheet: Sheet, labels: Sequence[BlockedLabel]) -> None:
    """Write how long inputs were blocked and why, inside of their bars or beside them.

    Of bars that lie on each other, which only contradictory events make, the first has words.
    """
    written: dict[float, list[Box]] = {}
    for bar, forms, is_shared in labels:
        lane = written.setdefault(bar.top, [])
        if any([bar.overlaps(before) for before in lane]):
            continue
        lane.append(bar)
        width, y = bar.right - bar.left, (bar.top + bar.bottom) / 2
        inside = [form for form in forms if words_width(form, 11) <= width - 10]
        if inside and (len(inside) == len(forms) or width > CHART / 4):
            sheet.canvas.text(bar.left + width / 2, y + 4, inside[0], "strong on-blocked", anchor="middle", size=11)
        elif width >= (CHART / 40 if is_shared else MIN_WIDTH + 0.1):
            _ = any(_beside(sheet, bar, y, form) for form in forms[-3:-1])


def _draw_lane(
    sheet: Sheet, together: Sequence[BlockedInput], facts: CheckpointFacts, scale: Scale, y: float, others: int
) -> Iterator[BlockedLabel]:
    if others > 0 and together:
        together = [_longest(together, facts)]
    for blocked in together:
        end = blocked.ended_by(facts.until)
        left, right = scale.x(blocked.begin), scale.x(end)
        bar = Box(left, y - BAR / 2, max(right, left + MIN_WIDTH), y + BAR / 2)
        forms = blocked_words(blocked, _awaited(facts, blocked), end)
        if others:
            forms = (f"{forms[0]} (longest of {others + 1})", *forms)
        title = f"{blocked.channel}: {forms[0]}"
        sheet.canvas.rect(bar.left, bar.top, bar.right - bar.left, BAR, sheet.use("blocked"), radius=1, title=title)
        sheet.canvas.reserve(bar)
        yield BlockedLabel(bar, forms, is_shared=others > 0)


def _beside(sheet: Sheet, bar: Box, y: float, words: str) -> bool:
    breadth = words_width(words, 11)
    for left, anchor, x in ((bar.right + 8, "start", bar.right + 8), (bar.left - 8 - breadth, "end", bar.left - 8)):
        box = Box(left, y - 7, left + breadth, y + 7)
        if box.left >= 0 and box.right <= CHART and sheet.canvas.is_free(box):
            sheet.canvas.text(x, y + 4, words, "halo blocked", anchor=anchor, size=11)
            return True
    return False


def _draw_shared(
    sheet: Sheet, together: Sequence[BlockedInput], facts: CheckpointFacts, scale: Scale, y: float
) -> None:
    """Draw the longest of several blocked inputs as a thin bar at the bottom of a lane that subtasks share."""
    if not together:
        return
    blocked = _longest(together, facts)
    end = blocked.ended_by(facts.until)
    left, right = scale.x(blocked.begin), scale.x(end)
    words = f"{blocked.channel}: {blocked_words(blocked, _awaited(facts, blocked), end)[0]}"
    title = f"{words}; the longest of {len(together)}" if len(together) > 1 else words
    sheet.canvas.rect(left, y - 2, max(right - left, 1.5), 4, sheet.use("blocked"), title=title)


def _awaited(facts: CheckpointFacts, blocked: BlockedInput) -> str | None:
    """Return the task whose barrier, or whose last rows, a blocked input waited for."""
    awaited = blocked.awaited
    if blocked.why is Unblocked.ENDED and blocked.end is not None:
        ended = Causes(facts).ended_inputs(blocked.task, blocked.end)
        awaited = max(ended, key=lambda name: facts.queued.get(name, 0), default=None)
    return facts.plan.channels_by_name[awaited].source if awaited else None


def _longest(together: Sequence[BlockedInput], facts: CheckpointFacts) -> BlockedInput:
    return max(together, key=lambda blocked: blocked.length(facts.until))
