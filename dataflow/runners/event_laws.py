"""The laws of events, asserted after each attempt of a simulated run: they hold for every schedule and every fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dataflow.events.event_rows import Event
from dataflow.events.kinds import Arrival, Kind
from dataflow.runtime.job.job import Job

__all__ = ["check_events"]


def check_events(job: Job) -> None:
    """Assert the laws for the attempt of ``job``, which is over or crashed, and drained.

    1. The blocked time of a channel is the sum over its ``unblocked`` events, plus the current wait; for a
       durable checkpoint it is the sum over the events of its barriers.
    2. Each ``triggered`` has one ``durable`` or ``failed``, unless the attempt ended first; its duration is the time
       between them.
    3. Of a durable checkpoint, each task that had not ended has one ``snapshot``, ``complete`` and ``part``, in this
       order; each ``sent`` has one ``arrived``, not earlier; the rows of ``complete`` add up to those in its record.
    4. The events of one writer are in the order of time.
    """
    log = job.recorder.log
    if log.has_converted:
        return  # a very long run
    with log.lock:
        events, samples = log.raw_facts(), log.raw_samples()
    assert log.attempt, f"{job.identity.pipeline}: nothing was recorded"
    _check_order([*events, *samples])
    by_kind: Mapping[Kind, list[Event]] = defaultdict(list)
    for event in events:
        by_kind[event.kind].append(event)
    _check_blocked(job, by_kind)
    _check_blocked_in_checkpoints(job, by_kind)
    _check_outcomes(job, by_kind)
    durable = {event.checkpoint for event in by_kind[Kind.DURABLE]}
    _check_tasks(by_kind, durable)
    _check_barriers(by_kind, durable)
    _check_rows(job, by_kind)


def _check_order(events: Sequence[Event]) -> None:
    """Parts are written by other writers than the rest of a task, so they have numbers of their own."""
    last: dict[tuple[str, bool], Event] = {}
    for event in sorted(events, key=lambda event: event.seq):
        writer = event.task, event.kind is Kind.PART
        before = last.get(writer)
        assert before is None or before.seq < event.seq, f"two events have one number: {before} and {event}"
        in_time = before is None or before.time <= event.time or event.kind is Kind.TRIGGERED
        assert in_time, f"{event} comes after {before}, which has a later time"
        last[writer] = event


def _check_blocked(job: Job, by_kind: Mapping[Kind, list[Event]]) -> None:
    total: Counter[str | None] = Counter()
    since: dict[str | None, int] = {}
    for event in sorted([*by_kind[Kind.BLOCKED], *by_kind[Kind.UNBLOCKED]], key=lambda event: (event.task, event.seq)):
        if event.kind is Kind.BLOCKED:
            assert event.channel not in since, f"{event}: it was blocked already"
            since[event.channel] = event.time
        else:
            assert event.duration is not None, f"{event} has no duration"
            begun = since.pop(event.channel, None)
            assert begun == event.time - event.duration, f"{event}: it was blocked at {begun}"
            total[event.channel] += event.duration
    now = job.clock.now()
    for task in job.tasks.values():
        for channel in task.task_input.channels(now):
            open_wait = now - since[channel.name] if channel.name in since else 0
            recorded = total[channel.name] + open_wait
            assert channel.blocked == recorded, f"{channel.name} was blocked for {channel.blocked}, not {recorded} us"


def _check_blocked_in_checkpoints(job: Job, by_kind: Mapping[Kind, list[Event]]) -> None:
    waits: dict[int | None, Counter[str | None]] = defaultdict(Counter)
    for event in by_kind[Kind.UNBLOCKED]:
        waits[event.checkpoint][event.channel] += event.duration or 0
    for record in job.history.checkpoints:
        recorded = +waits[record.checkpoint]
        assert record.blocked == recorded, f"{record.checkpoint} blocked {record.blocked}, events say {recorded}"


def _check_outcomes(job: Job, by_kind: Mapping[Kind, list[Event]]) -> None:
    triggered = Counter([event.checkpoint for event in by_kind[Kind.TRIGGERED]])
    outcomes = Counter([event.checkpoint for event in (*by_kind[Kind.DURABLE], *by_kind[Kind.FAILED])])
    assert max(triggered.values(), default=1) == 1, f"a checkpoint was triggered twice: {triggered}"
    began = {event.checkpoint: event.time for event in by_kind[Kind.TRIGGERED]}
    for event in (*by_kind[Kind.DURABLE], *by_kind[Kind.FAILED]):
        assert event.time - (event.duration or 0) == began.get(event.checkpoint), f"{event}: its duration is wrong"
    missing = triggered - outcomes
    assert not outcomes - triggered, f"outcomes without a trigger, or two of one: {outcomes - triggered}"
    assert set(missing) == set(job.history.under_way), (
        f"{missing} have no outcome, {job.history.under_way} have none yet"
    )


def _check_tasks(by_kind: Mapping[Kind, list[Event]], durable: set[int | None]) -> None:
    kinds = (Kind.SNAPSHOT, Kind.COMPLETE, Kind.PART)
    times = [
        {(e.checkpoint, e.task): e.time - (0 if kind is not Kind.PART else e.duration or 0)
         for e in by_kind[kind] if e.checkpoint in durable}
        for kind in kinds
    ]  # fmt: skip
    for kind, some in zip(kinds, times, strict=True):
        count = sum([event.checkpoint in durable for event in by_kind[kind]])
        assert count == len(some), f"a task has two {kind.label} of one checkpoint"
        assert some.keys() == times[0].keys(), f"{kind.label} and snapshot differ: {some.keys() ^ times[0].keys()}"
    for key, snapshot in times[0].items():
        assert snapshot <= times[1][key] <= times[2][key], f"{key}: {[time[key] for time in times]} is out of order"
    ended = {event.task: event.time for event in by_kind[Kind.ENDED]}
    for event in by_kind[Kind.TRIGGERED]:
        if event.checkpoint in durable:
            tasks = {task for checkpoint, task in times[0] if checkpoint == event.checkpoint}
            missing = [task for task, end in ended.items() if end > event.time and task not in tasks]
            assert not missing, f"{missing} have no part of checkpoint {event.checkpoint}"


def _check_barriers(by_kind: Mapping[Kind, list[Event]], durable: set[int | None]) -> None:
    sent = {(e.checkpoint, e.channel): e.time for e in by_kind[Kind.SENT] if e.checkpoint in durable}
    count = sum([event.checkpoint in durable for event in by_kind[Kind.SENT]])
    assert count == len(sent), "a barrier of one checkpoint was sent twice on a channel"
    arrived: set[tuple[int | None, str | None]] = set()
    for event in by_kind[Kind.ARRIVED]:
        key = event.checkpoint, event.channel
        if event.checkpoint not in durable or event.detail == Arrival.STARTED_HERE.value:
            continue
        assert key in sent, f"{event}: nobody sent it"
        assert sent[key] <= event.time, f"{event}: it was sent later, at {sent[key]}"
        assert key not in arrived, f"{event}: it arrived twice"
        arrived.add(key)
    missing = sent.keys() - arrived
    assert not missing, f"barriers of durable checkpoints never arrived: {missing}"


def _check_rows(job: Job, by_kind: Mapping[Kind, list[Event]]) -> None:
    rows: Counter[int | None] = Counter()
    for event in by_kind[Kind.COMPLETE]:
        rows[event.checkpoint] += event.rows or 0
    for record in job.history.checkpoints:
        stored = record.in_flight_rows
        assert rows[record.checkpoint] == stored, f"{record.checkpoint}: {rows[record.checkpoint]}, not {stored} rows"
