"""Find the facts of one checkpoint in a table of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dataflow.errors import EventsDamaged
from dataflow.events.kinds import SAMPLES, Arrival, Kind, Unblocked
from dataflow.events.plan_shape import ChannelShape, PlanShape
from dataflow.views.attempt_mode import mode_of
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput, CheckpointFacts, TaskFacts
from dataflow.views.choose_checkpoint import attempt_with
from dataflow.views.queued_rows import queued_rows
from dataflow.views.select_events import (
    EventRow,
    event_rows,
    numbers,
    restored_later,
    texts,
    where,
    written_bytes,
)
from dataflow.views.work_spans import work_spans

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["barriers_of", "blocked_of", "facts_of"]

_ARRIVALS: Final = {how.value: how for how in Arrival}
_REASONS: Final = {why.value: why for why in Unblocked}
_LEAST_MARGIN: Final = 20_000


def facts_of(events: Events, checkpoint: int, attempt: int | None = None) -> CheckpointFacts:
    """Return what happened in one checkpoint.

    Args:
        events: the events of a run.
        checkpoint: the id of the checkpoint.
        attempt: which attempt of the job; None: the last one that triggered this checkpoint. A job that crashed after
            it triggered a checkpoint may give its id again after the restart.

    Raises:
        EventsError: the checkpoint is not in the events; the message says which are.
        EventsDamaged: the events contradict the plan beside them.
    """
    attempt = attempt_with(events, checkpoint, attempt)
    plan, recorded, mode = events.plan, events.recorded, mode_of(events, attempt)
    found = list(event_rows(events, set(Kind) - SAMPLES, attempt=attempt, checkpoint=checkpoint))
    by_kind: dict[str, list[EventRow]] = {kind.label: [] for kind in Kind}
    for event in found:
        by_kind[event.kind].append(event)
    durable, failed = by_kind["durable"][-1:], by_kind["failed"][-1:]
    close = next(iter([*durable, *failed]), None)
    ended = None if close is None else close.time
    trigger = by_kind["triggered"][0] if by_kind["triggered"] else None
    triggered = trigger.time if trigger else close.time - close.duration if close else found[0].time
    tasks = _tasks(events, attempt, by_kind)
    awaited = [task for task in tasks.values() if task.snapshot is not None or not _has_ended(task, triggered)]
    parts = [(task.complete, task.part_end) for task in awaited]
    barriers = barriers_of(plan, by_kind["sent"], by_kind["arrived"])
    until = ended if ended is not None else _last_time(events, attempt)
    margin = max(_LEAST_MARGIN, (until - triggered) // 10)
    sent = {event.channel for event in by_kind["sent"]}
    without_barrier = [channel for channel in plan.channels if channel.name not in sent]
    return CheckpointFacts(
        plan=plan,
        pipeline=recorded.pipeline,
        mode=mode.mode,
        guarantee=mode.guarantee,
        attempt=attempt,
        checkpoint=checkpoint,
        kind=trigger.detail if trigger and trigger.detail else "checkpoint",
        triggered=triggered,
        travelled=_last([complete for complete, _ in parts]),
        written=_last([end for _, end in parts]),
        ended=ended,
        is_durable=bool(durable),
        failure=failed[0].detail if failed and not durable else None,
        committed=_committed(events, attempt, checkpoint) if durable else None,
        bytes=written_bytes(plan, durable[0]) if durable else sum([task.part_bytes for task in tasks.values()]),
        rows_in_flight=durable[0].rows if durable else sum([task.stored_rows for task in tasks.values()]),
        tasks=tasks,
        barriers=barriers,
        blocked=blocked_of(plan, by_kind["blocked"], by_kind["unblocked"], barriers),
        work=work_spans(events, attempt, triggered - margin, until + margin),
        missed=events.missed,
        until=until,
        queued=queued_rows(events, attempt, triggered, until, without_barrier),
        held_until=_held_until(events, attempt, checkpoint, triggered),
        is_abandoned=ended is None and _is_over(events, attempt),
        is_restored=ended is None and checkpoint in restored_later(events, attempt),
    )


def _has_ended(task: TaskFacts, triggered: int) -> bool:
    return task.ended is not None and task.ended <= triggered


def _last(times: Sequence[int | None]) -> int | None:
    """Return the last of the times; None if one is not known, or there are none."""
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _tasks(events: Events, attempt: int, by_kind: Mapping[str, Sequence[EventRow]]) -> dict[str, TaskFacts]:
    """Return the facts of each task of the plan."""
    plan = events.plan
    fields: dict[str, dict[str, Any]] = {task: {} for task in plan.tasks}
    repeats: dict[str, dict[str, int]] = {}

    def put(event: EventRow, **values: object) -> None:
        if event.task not in fields:
            raise EventsDamaged(f"events name the task {event.task!r}, which the plan beside them does not have")
        fields[event.task].update(values)

    for event in event_rows(events, [Kind.ENDED], attempt=attempt):
        put(event, ended=event.time)
    for event in by_kind["snapshot"]:
        put(event, snapshot=event.time, copy=event.duration)
    for event in by_kind["complete"]:
        put(event, complete=event.time, stored_rows=event.rows, stored_bytes=event.bytes)
    for event in by_kind["part"]:
        put(event, part_begin=event.time - event.duration, part_end=event.time, part_bytes=event.bytes)
    for event in by_kind["declined"]:
        put(event, declined=event.detail)
    for event in by_kind["repeats"]:
        rows = repeats.setdefault(event.task, {})
        rows[event.operator] = rows.get(event.operator, 0) + event.rows
        put(event, repeats=rows)
    return {task: TaskFacts(task, **values) for task, values in fields.items()}


def barriers_of(plan: PlanShape, sent: Iterable[EventRow], arrived: Iterable[EventRow]) -> tuple[BarrierTravel, ...]:
    """Return the barriers in the order in which they arrived; those that have not arrived come last."""
    sending = {event.channel: event for event in sent}
    travels: dict[str, BarrierTravel] = {}
    for event in arrived:
        if event.channel not in travels:
            travels[event.channel] = replace(
                _travel(plan, event.channel, sending.pop(event.channel, None)),
                arrived=event.time,
                overtaken=event.rows,
                overtaken_bytes=event.bytes,
                how=_ARRIVALS.get(event.detail, Arrival.IN_ORDER),
            )
    late = [_travel(plan, channel, event) for channel, event in sending.items() if channel not in travels]
    return (*travels.values(), *late)


def _travel(plan: PlanShape, channel: str, sent: EventRow | None) -> BarrierTravel:
    ends = _channel(plan, channel)
    if sent is None:
        return BarrierTravel(channel, ends.source, ends.target, None, None)
    return BarrierTravel(channel, ends.source, ends.target, sent.time, None, sent.rows, sent.bytes)


def _channel(plan: PlanShape, name: str) -> ChannelShape:
    channel = plan.channels_by_name.get(name)
    if channel is None:
        raise EventsDamaged(f"events name the channel {name!r}, which the plan beside them does not have")
    return channel


def blocked_of(
    plan: PlanShape, blocked: Iterable[EventRow], unblocked: Iterable[EventRow], barriers: Sequence[BarrierTravel]
) -> tuple[BlockedInput, ...]:
    """Return the blocked inputs in the order in which they were unblocked; those that still are come last."""
    arrivals: dict[str, list[BarrierTravel]] = {}
    for barrier in barriers:
        arrivals.setdefault(barrier.target, []).append(barrier)
    inputs, ends = [], set()
    for event in unblocked:
        task, why = _channel(plan, event.channel).target, _REASONS.get(event.detail)
        awaited = None
        if why is Unblocked.COMPLETE:
            until = [b.channel for b in arrivals.get(task, ()) if b.arrived is not None and b.arrived <= event.time]
            awaited = until[-1] if until else None
        inputs.append(BlockedInput(event.channel, task, event.time - event.duration, event.time, why, awaited))
        ends.add(event.channel)
    still = [event for event in blocked if event.channel not in ends]
    inputs += [BlockedInput(e.channel, _channel(plan, e.channel).target, e.time, None, None) for e in still]
    return tuple(inputs)


def _committed(events: Events, attempt: int, checkpoint: int) -> int | None:
    commits = event_rows(events, [Kind.COMMITTED], attempt=attempt)
    return next((event.time for event in commits if event.checkpoint >= checkpoint), None)


def _held_until(events: Events, attempt: int, checkpoint: int, triggered: int) -> dict[str, int]:
    """Return when channels were unblocked that an earlier checkpoint had blocked, after the trigger of this one."""
    import pyarrow.compute as pc

    table = events.unified.select(["time", "channel", "checkpoint"])
    table = table.filter(where(events, [Kind.UNBLOCKED], attempt=attempt))
    table = table.filter(pc.and_(pc.greater(table["time"], triggered), pc.less(table["checkpoint"], checkpoint)))
    return dict(zip(texts(table, "channel"), numbers(table, "time").tolist(), strict=True))


def _is_over(events: Events, attempt: int) -> bool:
    """Return whether an attempt has ended."""
    states = event_rows(events, [Kind.STATE], attempt=attempt)
    return attempt != events.attempts[-1] or any(event.detail != "running" for event in states)


def _last_time(events: Events, attempt: int) -> int:
    import pyarrow.compute as pc

    table = events.unified.select(["attempt", "time"])
    return int(numbers(table.filter(pc.equal(table["attempt"], attempt)), "time").max())
