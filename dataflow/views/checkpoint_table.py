"""The checkpoints of a run as a table, and its slowest checkpoints.

Columns of ``Events.checkpoints``; times and durations are in microseconds, and null where events do not tell:

===========================  ===========================================================================================
column                       meaning
===========================  ===========================================================================================
``attempt``, ``checkpoint``  which one; after a restart, an id may occur again in the next attempt
``kind``                     checkpoint, savepoint, or final: the last one, at the end of the input
``mode``                     of its attempt; null: without ``checkpoint=``, for the commit at the end alone
``guarantee``                of the engine in this mode; sources and sinks may weaken it
``state``                    durable, committed (durable, and all sinks have committed), failed, under way,
                             abandoned: the attempt ended before the checkpoint did; or restored: it did so as well, but
                             a later attempt began from the checkpoint, so it was durable
``triggered``                time since the start of the attempt
``duration``                 from the trigger until it was durable, or failed
``travel``                   the first part of it: until every task had its barriers and its snapshot
``write``                    the second part: until the last task's state was written
``manifest``                 the third part, of a durable checkpoint
``bytes``                    written by it
``rows_in_flight``           stored with it
``rows_overtaken``           that barriers overtook
``blocked``                  the sum over all channels
``longest_blocked``          the channel blocked longest
``longest_blocked_time``     how long
``barriers``                 channels where a barrier arrived that a task had sent
``repeats``                  for each operator, upstream first, the rows that a restore would deliver twice there, and
                             the precision of this count: a `Precision`; of a durable checkpoint
``failure``                  why it failed
===========================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dataflow.events.kinds import Arrival, Kind
from dataflow.views.attempt_mode import mode_of
from dataflow.views.repeats import repeats_in_order
from dataflow.views.select_events import EventRow, event_rows, numbers, restored_later, select, texts, written_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.views.events import Events

__all__ = ["SlowCheckpoint", "checkpoint_table", "slowest"]

_Key = tuple[int, int]
"""An attempt and a checkpoint."""

_BLOCKED_COLUMNS: Final = ("attempt", "checkpoint", "channel", "duration")
_TASK_KINDS: Final = (Kind.SNAPSHOT, Kind.COMPLETE, Kind.PART)


def checkpoint_table(events: Events) -> pa.Table:
    """Return a row for each checkpoint of the run, by attempt and id; see the columns in this module's docstring."""
    import pyarrow as pa

    from dataflow.arrow_values import to_array

    rows = [row for _, row in sorted(_rows(events).items())]
    names = {"kind", "mode", "guarantee", "state", "longest_blocked", "failure"}
    columns = _Row.columns()
    repeat = pa.struct([("operator", pa.string()), ("rows", pa.int64()), ("precision", pa.string())])
    types = {"repeats": pa.list_(repeat), **dict.fromkeys(names, pa.string())}
    arrays = {name: to_array([getattr(row, name) for row in rows], types.get(name, pa.int64())) for name in columns}
    return pa.table(arrays)


@dataclass(slots=True)
class _Row:
    """A row of the table while it is computed. Times that are not known are None."""

    attempt: int
    checkpoint: int
    kind: str = "checkpoint"
    mode: str | None = None
    guarantee: str | None = None
    state: str = "under way"
    triggered: int = 0
    duration: int | None = None
    travel: int | None = None
    write: int | None = None
    manifest: int | None = None
    bytes: int | None = None
    rows_in_flight: int | None = None
    rows_overtaken: int | None = None
    blocked: int | None = None
    longest_blocked: str | None = None
    longest_blocked_time: int | None = None
    barriers: int | None = None
    repeats: Sequence[Mapping[str, Any]] | None = None
    failure: str | None = None
    tasks: dict[Kind, dict[str, EventRow]] = field(default_factory=dict)

    @staticmethod
    def columns() -> list[str]:
        return [name for name in _Row.__dataclass_fields__ if name != "tasks"]


def _rows(events: Events) -> dict[_Key, _Row]:
    rows: dict[_Key, _Row] = {}
    for attempt in events.attempts:
        begun = _begun(events, attempt)
        for event in event_rows(events, _TASK_KINDS, attempt=attempt):
            if (row := begun.get(event.checkpoint)) is not None:
                row.tasks.setdefault(Kind[event.kind.upper()], {})[event.task] = event
        ended = {event.task: event.time for event in event_rows(events, [Kind.ENDED], attempt=attempt)}
        mode = mode_of(events, attempt)
        for row in begun.values():
            row.mode, row.guarantee = mode.mode or None, mode.of_engine
            _add_parts(row, events.plan.tasks, ended)
            rows[attempt, row.checkpoint] = row
    if not events.plan.is_measured:  # 0 would be wrong
        for row in rows.values():
            row.rows_in_flight = None
        return rows
    for row in rows.values():
        row.rows_overtaken = row.blocked = row.longest_blocked_time = row.barriers = 0
    _add_repeats(rows, events)
    _add_blocked(rows, select(events, [Kind.UNBLOCKED], _BLOCKED_COLUMNS))
    _add_arrivals(rows, select(events, [Kind.ARRIVED], ("attempt", "checkpoint", "channel", "rows", "detail")))
    return rows


def _begun(events: Events, attempt: int) -> dict[int, _Row]:
    """Return the checkpoints of an attempt, as far as the job's events tell."""
    rows: dict[int, _Row] = {}
    kinds = (Kind.TRIGGERED, Kind.DURABLE, Kind.FAILED, Kind.COMMITTED, Kind.STATE)
    is_over = attempt != events.attempts[-1]
    restored = restored_later(events, attempt)
    for event in event_rows(events, kinds, attempt=attempt):
        n = event.checkpoint
        match event.kind:
            case "triggered":
                rows[n] = _Row(attempt, n, event.detail or "checkpoint", triggered=event.time)
            case "durable" | "failed":
                row = rows.setdefault(n, _Row(attempt, n, triggered=event.time - event.duration))
                row.state, row.duration = event.kind, event.time - row.triggered
                if event.kind == "durable":
                    row.bytes, row.rows_in_flight = written_bytes(events.plan, event), event.rows
                else:
                    row.failure = event.detail
            case "committed":
                for row in rows.values():
                    if row.checkpoint <= n and row.state == "durable":
                        row.state = "committed"
            case _:
                is_over = is_over or event.detail != "running"
    for row in rows.values():
        if is_over and row.state == "under way":
            row.state = "restored" if row.checkpoint in restored else "abandoned"
    return rows


def _add_parts(row: _Row, tasks: Sequence[str], ended: Mapping[str, int]) -> None:
    """Split the duration into three parts, as far as the events of all tasks that take part are there."""
    snapshots, complete, written = [row.tasks.get(kind, {}) for kind in _TASK_KINDS]
    awaited = [task for task in tasks if task in snapshots or ended.get(task, row.triggered + 1) > row.triggered]
    travelled = _last_of(awaited, complete)
    if travelled is None:
        return
    row.travel = travelled - row.triggered
    end = _last_of(awaited, written)
    if end is None:
        return
    row.write = end - travelled
    if row.state in ("durable", "committed") and row.duration is not None:
        row.manifest = row.triggered + row.duration - end


def _last_of(tasks: Sequence[str], events: Mapping[str, EventRow]) -> int | None:
    """Return the time of the last event; None if a task has none."""
    times = [events[task].time for task in tasks if task in events]
    return max(times) if times and len(times) == len(tasks) else None


def _add_repeats(rows: Mapping[_Key, _Row], events: Events) -> None:
    """Add the rows that a restore would deliver twice, of durable checkpoints of which no event is missing."""
    counts: dict[_Key, dict[str, int]] = {}
    for attempt in events.attempts:
        for event in event_rows(events, [Kind.REPEATS], attempt=attempt):
            by_operator = counts.setdefault((attempt, event.checkpoint), {})
            by_operator[event.operator] = by_operator.get(event.operator, 0) + event.rows
    for key, row in rows.items():
        if row.travel is not None and row.state in ("durable", "committed"):
            some = repeats_in_order(events.plan, counts.get(key, {}))
            row.repeats = [{"operator": r.operator, "rows": r.rows, "precision": r.precision.value} for r in some]


def _add_blocked(rows: Mapping[_Key, _Row], unblocked: pa.Table) -> None:
    import numpy as np

    if unblocked.num_rows == 0:
        return
    duration, channels = numbers(unblocked, "duration"), texts(unblocked, "channel")
    order, keys, starts = _groups(unblocked, duration)
    sums = np.add.reduceat(duration[order], starts).tolist()
    last = [*(starts[1:] - 1).tolist(), len(order) - 1]
    for key, total, at in zip(keys, sums, last, strict=True):
        if (row := rows.get(key)) is not None:
            row.blocked, row.longest_blocked = total, channels[order[at]]
            row.longest_blocked_time = int(duration[order[at]])


def _add_arrivals(rows: Mapping[_Key, _Row], arrived: pa.Table) -> None:
    import numpy as np

    if arrived.num_rows == 0:
        return
    codes = arrived["channel"].combine_chunks().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    started_here = np.array([detail == Arrival.STARTED_HERE.value for detail in texts(arrived, "detail")])
    overtaken = numbers(arrived, "rows")
    order, keys, starts = _groups(arrived, codes)
    codes, counts = codes[order], ~started_here[order]
    counts[1:] &= (codes[1:] != codes[:-1]) | np.isin(np.arange(1, len(codes)), starts)
    sums = np.add.reduceat(overtaken[order], starts).tolist()
    barriers = np.add.reduceat(counts.astype(np.int64), starts).tolist()
    for key, rows_overtaken, channels in zip(keys, sums, barriers, strict=True):
        if (row := rows.get(key)) is not None:
            row.rows_overtaken, row.barriers = rows_overtaken, channels


def _groups(table: pa.Table, by: Any) -> tuple[Any, list[_Key], Any]:
    """Return an order by attempt, checkpoint and ``by``, the groups of the first two, and where each begins."""
    import numpy as np

    attempts, checkpoints = numbers(table, "attempt"), numbers(table, "checkpoint")
    order = np.lexsort((by, checkpoints, attempts))
    attempts, checkpoints = attempts[order], checkpoints[order]
    changes = (np.diff(attempts) != 0) | (np.diff(checkpoints) != 0)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    return order, list(zip(attempts[starts].tolist(), checkpoints[starts].tolist(), strict=True)), starts


@dataclass(frozen=True, slots=True)
class SlowCheckpoint:
    """A durable checkpoint and the three parts of its duration, each None where events do not tell."""

    attempt: int
    checkpoint: int
    kind: str
    duration: int
    travel: int | None
    write: int | None
    manifest: int | None


def slowest(events: Events, limit: int = 3) -> tuple[SlowCheckpoint, ...]:
    """Return the durable checkpoints that took longest, the slowest first, at most ``limit``."""
    table = events.checkpoints
    columns = [table[name].to_pylist() for name in SlowCheckpoint.__dataclass_fields__]
    rows: Iterable[SlowCheckpoint] = [SlowCheckpoint(*row) for row in zip(*columns, strict=True)]
    states = table["state"].to_pylist()
    durable = [row for row, state in zip(rows, states, strict=True) if state in ("durable", "committed")]
    return tuple(sorted(durable, key=lambda row: -row.duration)[:limit])
