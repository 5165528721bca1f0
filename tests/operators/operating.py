"""Operators by themselves: what an engine gives them, and a place for what they emit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from dataflow.clock import ManualClock, OperatorClock
from dataflow.contracts.declared_state import restore_state
from dataflow.contracts.incremental import Incremental
from dataflow.contracts.live_splits import LiveSplits
from dataflow.contracts.operator import Operator, OperatorContext, Snapshot
from dataflow.contracts.row_errors import RowTally
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.parts import TaskState
from operators.aggregation.records import Records

__all__ = ["Emitted", "ManualSplits", "context_of", "drained", "frozen", "joined", "made", "read_stored"]
__all__ += ["records_table", "restore_records", "rows_of", "stored"]


Made = TypeVar("Made", bound=Operator)


class Emitted:
    """An Out that keeps batches by tag, and what is said about time."""

    def __init__(self) -> None:
        self.batches: dict[str | None, list[pa.RecordBatch]] = {}
        self.times: list[int | str] = []

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        batch.validate(full=True)
        self.batches.setdefault(tag, []).append(batch)

    def watermark(self, time: int) -> None:
        self.times.append(time)

    def idle(self) -> None:
        self.times.append("idle")

    def take(self, tag: str | None = None) -> list[tuple[object, ...]]:
        """The rows emitted since the last call, as tuples."""
        return [tuple(row.values()) for batch in self.batches.pop(tag, []) for row in batch.to_pylist()]


class ManualSplits:
    """Splits whose life a test decides."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.current = names[0] if names else ""
        self.ended: list[str] = []
        self.silence: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.current_batch = 0
        self.told: list[int | None] = []

    def all(self) -> Sequence[str]:
        return self.names

    def live(self) -> Sequence[str]:
        return [name for name in self.names if name not in self.ended]

    def ended_splits(self) -> Sequence[str]:
        return self.ended

    def poll(self, split: str, *, cut: bool) -> None:
        """Rows of ``split`` are at hand; with ``cut`` more of their batch are to come."""
        self.current, self.current_batch = split, self.next_batch(split)
        self.read[split] = self.current_batch + (not cut)
        self.silence.pop(split, None)

    def next_batch(self, split: str) -> int:
        return self.read.get(split, 0)

    def earliest(self, split: str, column: str) -> int | None:
        return self.begins.get(split)

    def quiet(self, split: str) -> int:
        return self.silence.get(split, 0)

    def reached(self, clock: str, time: int | None, drift: int) -> None:
        self.told.append(time)


def context_of(
    schema: pa.Schema,
    output: pa.Schema,
    *,
    restored: Snapshot | None = None,
    splits: LiveSplits | None = None,
    groups: range = range(128),
    clock: OperatorClock | None = None,
    due: list[int] | None = None,
) -> OperatorContext:
    """What an operator called ``op`` is born with."""
    timers = [] if due is None else due
    return OperatorContext(
        "op",
        0,
        1,
        (schema,),
        output,
        groups,
        128,
        restored,
        clock or ManualClock(),
        timers.append,
        tally=RowTally(),
        splits=splits,
        schedule_at=timers.append,
    )


def made(operator: Made, context: OperatorContext) -> Made:
    """``operator``, which was built with ``context``, with its declared state restored, as the engine does it."""
    restore_state(operator, context)
    return operator


def drained(emission: Iterator[None] | None) -> None:
    """Carry a long emission to its end, as the engine does."""
    for _ in emission or ():
        pass


_CHECKPOINTS = count(1)


def frozen(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` with a base of every log, which can be read later: what a task makes of it at a barrier."""
    checkpoint = next(_CHECKPOINTS)
    states, _ = LogChain().freeze({"it": snapshot}, checkpoint, since=0)
    for log in snapshot.logs.values():
        cast(Incremental, log).durable(checkpoint)
    return states["it"]


def stored(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` as it comes back from a disk."""
    return read_stored(frozen(snapshot))


def read_stored(snapshot: Snapshot) -> Snapshot:
    """A ``frozen`` snapshot as it comes back from a disk."""
    return TaskState.decode(TaskState("task", operators={"it": snapshot}).encode("rows")).operators["it"]


def rows_of(snapshot: Snapshot) -> pa.Table:
    """The rows of the only part of keyed state in a ``stored`` snapshot."""
    (part,) = cast(list[Mapping[str, pa.Table]], snapshot.logs["state"])
    return part["keys"]


def joined(*snapshots: Snapshot) -> Snapshot:
    """The ``stored`` state of several subtasks, each with one part, as that of one."""
    rows = pa.concat_tables([rows_of(snapshot) for snapshot in snapshots])
    return Snapshot(snapshots[0].values, {}, {"state": [{"keys": rows}]}, snapshots[0].rules)


def records_table(records: Records, slots: int) -> pa.Table:
    """The first records as rows of a checkpoint."""
    return pa.Table.from_arrays(records.freeze().columns(records._records.rows[:slots].copy()), schema=records.stored)


def restore_records(records: Records, table: pa.Table) -> None:
    """Put the rows of a checkpoint into empty records, row i into record i."""
    slots = np.arange(table.num_rows, dtype=np.int32)
    records._make_room(table.num_rows)
    columns = [column.combine_chunks() for column in table.columns]
    records.restore(records._records.rows[: table.num_rows], slots, columns)
    records.restored(slots)
