"""The picture of one checkpoint: its bar, the lanes of the job, and what barriers did in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dataflow.clock import duration_text
from dataflow.drawing import fitted, printable
from dataflow.views.checkpoint_facts import CheckpointFacts, TaskFacts
from dataflow.views.repeats import repeats_in_order
from dataflow.views.sentence import counted, size_text
from dataflow.views.timeline.barriers import draw_barriers, write_barriers
from dataflow.views.timeline.blocked import draw_blocked, write_blocked
from dataflow.views.timeline.checkpoint_bar import draw_bar
from dataflow.views.timeline.lanes import Interest, Lanes, choose_lanes
from dataflow.views.timeline.marks import Emphasis
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, NOT_ON_SPARK, LanePlace, Sheet
from dataflow.views.timeline.strips import column_width, draw_strip, write_busy, write_share
from dataflow.views.work_spans import activity

__all__ = ["draw_checkpoint", "draw_lanes", "interest_of", "scale_of", "shown_length"]


def shown_length(facts: CheckpointFacts) -> int:
    """Return the microseconds from the trigger until all is over; until the commit, if it followed soon."""
    length = max(facts.until - facts.triggered, 0)
    commit = length if facts.committed is None else facts.committed - facts.triggered
    return max(length, commit) if commit <= length + length // 4 else length


def scale_of(facts: CheckpointFacts, length: int) -> Scale:
    """Return the axis of a checkpoint of which ``length`` microseconds are shown, from just before its trigger."""
    length = max(length, 50)
    return Scale(facts.triggered - length // 20, facts.triggered + length + length // 25, 0.0, CHART)


def interest_of(facts: CheckpointFacts, marks: Emphasis) -> Interest:
    """Return what is worth a lane of its own."""
    end = facts.until
    slowness = {name: task.complete or task.snapshot or end for name, task in facts.tasks.items()}
    slowness |= {b.channel: (b.arrived or end) - (b.sent or facts.triggered) for b in facts.barriers}
    blocked = {b.channel: b.length(end) for b in facts.blocked}
    return Interest(marks.names, slowness, blocked, least=(end - facts.triggered) // 20)


def draw_checkpoint(sheet: Sheet, facts: CheckpointFacts, marks: Emphasis, length: int) -> Lanes:
    """Draw one checkpoint from ``sheet.y`` on, and return its lanes."""
    scale = scale_of(facts, length)
    lanes = choose_lanes(facts.plan, interest_of(facts, marks))
    sheet.y += 16
    axis = sheet.y
    with sheet.canvas.group():  # the ground: everything else is drawn over it
        sheet.y += 12
        bar = sheet.y + 9
        sheet.y += 44
        places = sheet.place_lanes(lanes)
        bottom, sheet.y = sheet.y, axis
        caption = "while barriers travel" if facts.plan.is_measured else ""
        sheet.axis(scale, scale.ticks(facts.triggered, first="trigger"), caption, bottom)
    sheet.y = bottom
    draw_bar(sheet, facts, scale, bar)
    draw_lanes(sheet, facts, marks, scale, places, column_width(len(places)))
    return lanes


def draw_lanes(
    sheet: Sheet, facts: CheckpointFacts, marks: Emphasis, scale: Scale, places: Sequence[LanePlace], column: float
) -> None:
    """Draw what happened in the lanes: work, parts, blocked inputs, barriers, snapshots."""
    end = facts.travelled or facts.until
    for place in places:
        task = place.lane.shown
        spans = facts.work.get(task, ())
        draw_strip(sheet, place, spans, scale, column)
        did = activity(spans, facts.triggered, end)
        if facts.plan.is_measured:
            write_share(sheet, place.y, did, is_culprit=task == marks.culprit)
        elif did is not None:
            write_busy(sheet, place.y, did)
        else:
            sheet.canvas.text(0, place.y + 4, NOT_ON_SPARK, "soft", size=11)
        _draw_part(sheet, facts, scale, place)
    labels = draw_blocked(sheet, facts, scale, places)
    barriers = draw_barriers(sheet, facts, marks, scale, places)
    for place in places:
        _draw_snapshot(sheet, facts, scale, place)
    write_blocked(sheet, labels)
    write_barriers(sheet, facts, marks, scale, barriers)
    for place in places:
        _write_notes(sheet, facts, scale, place)


def _draw_part(sheet: Sheet, facts: CheckpointFacts, scale: Scale, place: LanePlace) -> None:
    task = facts.tasks.get(place.lane.shown)
    if task is None or task.part_begin is None or task.part_end is None:
        return
    left, right = scale.x(task.part_begin), scale.x(task.part_end)
    time = duration_text(max(task.part_end - task.part_begin, 0))
    words = f"{task.task}: {size_text(task.part_bytes)} of state written in {time}"
    sheet.canvas.rect(left, place.floor + 1, max(right - left, 1.5), 3.5, sheet.use("state"), title=words)


def _draw_snapshot(sheet: Sheet, facts: CheckpointFacts, scale: Scale, place: LanePlace) -> None:
    task = facts.tasks.get(place.lane.shown)
    if task is None:
        return
    if task.snapshot is not None:
        words = f"{task.task}: snapshot {duration_text(max(task.snapshot - facts.triggered, 0))} after the trigger"
        if task.complete is not None:
            words += f", complete {duration_text(max(task.complete - facts.triggered, 0))} after it"
        words = "; ".join(
            [f"{words}; copied in {duration_text(task.copy)}", *[note.words for note in _notes(facts, task)]]
        )
        sheet.canvas.diamond(scale.x(task.snapshot), place.y, 6.5, f"{sheet.use('snapshot')} outline", title=words)


def _write_notes(sheet: Sheet, facts: CheckpointFacts, scale: Scale, place: LanePlace) -> None:
    task = facts.tasks.get(place.lane.shown)
    for note in _notes(facts, task) if task is not None else ():
        x, y = scale.x(note.time), place.y + 4
        places = [(x + 11, y, "start"), (x - 11, y, "end"), (x + 60, y, "start")]
        sheet.note_at(places, fitted(printable(note.words), 0.7 * CHART, 11), f"strong {sheet.use(note.cause)}")


class _Note(NamedTuple):
    """Words about a task, at a moment."""

    words: str
    time: int
    cause: str


def _notes(facts: CheckpointFacts, task: TaskFacts) -> Iterator[_Note]:
    """Yield what is worth words in the lane of a task: where it stopped, what it stored, what would come twice."""
    end = facts.until if facts.ended is None else facts.ended
    if task.declined:
        yield _Note(f"declined: {task.declined}", end if task.snapshot is None else task.snapshot, "failed")
    elif task.ended is not None and task.ended <= facts.triggered and task.snapshot is None:
        yield _Note("had ended", facts.triggered, "soft")
    elif facts.failure is not None and task.part_end is None and facts.plan.is_measured:
        stage = "no snapshot" if task.snapshot is None else "not complete" if task.complete is None else "not written"
        yield _Note(stage, end, "failed")
    repeats = [each for each in repeats_in_order(facts.plan, task.repeats) if each.operator in task.repeats]
    if repeats:
        counts = ", ".join([f"{each.amount_of_rows} at {each.operator}" for each in repeats])
        yield _Note(f"a restore repeats {counts}", task.snapshot or facts.triggered, "repeated")
    elif task.stored_rows:
        stored = f"{counted(task.stored_rows, 'row')} in flight stored"
        yield _Note(stored, task.complete or facts.triggered, "stored")
