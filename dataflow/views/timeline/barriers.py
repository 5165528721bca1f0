"""Barriers as lines from the task that sent them to the input where they arrived: the slope is the delay.

Lanes are shared in large jobs, so many barriers may go from one lane to another one; the slowest of them is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dataflow.clock import duration_text
from dataflow.drawing import Word
from dataflow.events.kinds import Arrival
from dataflow.views.checkpoint_facts import BarrierTravel, CheckpointFacts
from dataflow.views.sentence import counted
from dataflow.views.timeline.marks import Emphasis
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, LanePlace, Sheet

__all__ = ["barrier_words", "draw_barriers", "write_barriers"]

MOST_WORDS: Final = 10
"""So many barriers of one picture carry words: the slowest, and those that overtook most rows."""
LONG: Final = CHART / 12
"""A barrier that took so many pixels of time is long."""


def barrier_words(barrier: BarrierTravel, checkpoint: int, end: int) -> str:
    """Return how long a barrier was in the queue, or what it overtook.

    >>> travel = BarrierTravel("a[0] -> b[0]", "a[0]", "b[0]", 0, 326_000, rows_ahead=678)
    >>> barrier_words(travel, 2, 400_000)
    'barrier 2: 326.0 ms in the queue, behind 678 rows'
    """
    if barrier.how is Arrival.OVERTAKING:
        return f"overtook {counted(barrier.overtaken, 'row')}"
    behind = f", behind {counted(barrier.rows_ahead, 'row')}" if barrier.rows_ahead else ""
    if barrier.arrived is None:
        waited = "" if barrier.sent is None else f" after {duration_text(end - barrier.sent)}{behind}"
        return f"barrier {checkpoint} has not arrived{waited}"
    if barrier.how is Arrival.STARTED_HERE:
        passed = f", ahead of {counted(barrier.overtaken, 'row')}" if barrier.overtaken else ""
        return f"all writers had ended: the checkpoint was started here{passed}"
    if barrier.sent is None:
        return f"barrier {checkpoint} arrived; when it was sent is not known"
    return f"barrier {checkpoint}: {duration_text(barrier.arrived - barrier.sent)} in the queue{behind}"


class _Drawn(NamedTuple):
    """A barrier that was drawn, from the height of a lane to that of another one."""

    barrier: BarrierTravel
    source: float | None
    target: float


def draw_barriers(
    sheet: Sheet, facts: CheckpointFacts, marks: Emphasis, scale: Scale, places: Sequence[LanePlace]
) -> Sequence[_Drawn]:
    """Draw the barriers of a checkpoint between lanes. Return those between two lanes, the slowest one of each."""
    senders = {task: place.y for place in places for task in place.lane.tasks}
    inputs = {channel.name: y for place in places for lane, y in place.inputs for channel in lane.channels}
    receivers = {task: place.y for place in places if not place.inputs for task in place.lane.tasks}
    end = facts.until
    slowest: dict[tuple[float | None, float], tuple[BarrierTravel, int]] = {}
    for barrier in facts.barriers:
        target = inputs.get(barrier.channel, receivers.get(barrier.target))
        if target is None:
            continue
        lanes = senders.get(barrier.source), target
        before, count = slowest.get(lanes, (barrier, 0))
        slower = barrier if _delay(barrier, end) >= _delay(before, end) else before
        slowest[lanes] = slower, count + 1
    for (source, target), (barrier, count) in slowest.items():
        _draw_one(sheet, facts, marks, scale, barrier, (source, target), count)
    return [_Drawn(barrier, source, target) for (source, target), (barrier, _) in slowest.items()]


def write_barriers(
    sheet: Sheet, facts: CheckpointFacts, marks: Emphasis, scale: Scale, drawn: Sequence[_Drawn]
) -> None:
    """Write words on barriers that were long on their way, or overtook rows, or have not arrived."""
    end = facts.until
    worth = [each for each in drawn if _is_worth_words(each.barrier, scale, end)]
    worth.sort(key=lambda each: (each.barrier.channel not in marks.names, -_delay(each.barrier, end)))
    for each in worth[:MOST_WORDS]:
        _write_one(sheet, facts, scale, each.barrier, (each.source, each.target), end)


def _delay(barrier: BarrierTravel, end: int) -> int:
    begin = barrier.arrived if barrier.sent is None else barrier.sent
    return (end if barrier.arrived is None else barrier.arrived) - (end if begin is None else begin)


def _is_worth_words(barrier: BarrierTravel, scale: Scale, end: int) -> bool:
    long = scale.x(scale.begin + _delay(barrier, end)) - scale.left >= LONG
    return (
        long or (barrier.overtakes and barrier.overtaken > 0) or (barrier.arrived is None and barrier.sent is not None)
    )


def _draw_one(
    sheet: Sheet,
    facts: CheckpointFacts,
    marks: Emphasis,
    scale: Scale,
    barrier: BarrierTravel,
    lanes: tuple[float | None, float],
    count: int,
) -> None:
    source, target = lanes
    end = facts.until
    title = f"{barrier.channel}: {barrier_words(barrier, facts.checkpoint, end)}"
    title += f"; the slowest of {count}" if count > 1 else ""
    x = scale.x(end if barrier.arrived is None else barrier.arrived)
    cause = "failed" if barrier.arrived is None else "overtaken" if barrier.overtakes else "barrier"
    weight = " heavy" if barrier.channel in marks.names else ""
    if barrier.arrived is None and barrier.sent is None:
        return
    if source is not None and barrier.sent is not None:
        sheet.arrow((scale.x(barrier.sent), source), (x, target), f"{sheet.use(cause)}{weight}", title)
    if barrier.arrived is None:
        sheet.cross(x, target, sheet.use("failed"))
    else:
        sheet.canvas.circle(x, target, 3.2, sheet.use("barrier"), title=title)


def _write_one(
    sheet: Sheet,
    facts: CheckpointFacts,
    scale: Scale,
    barrier: BarrierTravel,
    lanes: tuple[float | None, float],
    end: int,
) -> None:
    source, target = lanes
    x = scale.x(end if barrier.arrived is None else barrier.arrived)
    begin = x if barrier.sent is None else scale.x(barrier.sent)
    cause = "failed" if barrier.arrived is None else "overtaken" if barrier.overtakes else "barrier"
    words = [Word(barrier_words(barrier, facts.checkpoint, end), "strong")]
    places = [(x + 12, target + 4, "start")]
    if source is not None and x - begin > LONG:  # below the line, where it is high enough
        places.append((x - 14 * (x - begin) / max(target - source, 14), target + 4, "end"))
    places += [(x - 12, target + 4, "end"), (x + 40, target + 4, "start"), (x - 40, target + 4, "end")]
    sheet.note_at(places, words, cause)
