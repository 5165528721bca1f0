"""Operators by themselves: what an engine gives them, and a place for what they emit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.live_splits import LiveSplits
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.contracts.row_errors import RowTally
from dataflow.state.codec import decode, encode

__all__ = ["Emitted", "ManualSplits", "context_of", "drained", "stored"]


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
        self.ended: set[str] = set()
        self.silence: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.current_batch = 0
        self.told: list[int | None] = []

    def all(self) -> Sequence[str]:
        return self.names

    def live(self) -> Sequence[str]:
        return [name for name in self.names if name not in self.ended]

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
    clock: ManualClock | None = None,
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
    )


def drained(emission: Iterator[None] | None) -> None:
    """Carry a long emission to its end, as the engine does."""
    for _ in emission or ():
        pass


def stored(snapshot: Snapshot) -> Snapshot:
    """``snapshot`` as it comes back from a disk."""
    values, tables = decode(encode(snapshot.values, snapshot.tables))
    return Snapshot(values, tables)
