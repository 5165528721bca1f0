"""A gate that halts all sources of a job, and a source that reads through it.

Invariant: between the return of ``halt()`` and ``resume()`` no reader returns a row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import dataflow as flow
from dataflow.contracts.source import Json, SourceContext

__all__ = ["EndlessRows", "Gate"]

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
LEAST_POOL = 1 << 18
"""The least number of rows before they repeat."""


class Gate:
    """Lets the rows of ``readers`` readers pass, unless it is closed. Readers and one controller call it."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._changed = threading.Condition()  # guards all that follows
        self._closed = False
        self._lifted = False
        self._halted: set[str] = set()
        self._moved: set[str] = set()

    def admits(self, reader: str) -> bool:
        """Return whether ``reader`` may return rows now; a False counts as its halt."""
        with self._changed:
            (self._halted if self._closed else self._moved).add(reader)
            self._changed.notify_all()
            return not self._closed

    def halt(self) -> None:
        """Close the gate, and return when every reader has come to a halt."""
        with self._changed:
            self._closed = not self._lifted
            self._halted.clear()
            self._changed.wait_for(lambda: self._lifted or len(self._halted) == self._readers)

    def resume(self) -> None:
        """Open the gate, and return when every reader has passed it again."""
        with self._changed:
            self._closed = False
            self._moved.clear()
            self._changed.wait_for(lambda: self._lifted or len(self._moved) == self._readers)

    def lift(self) -> None:
        """Open the gate for good: from now on nothing is halted or waited for."""
        with self._changed:
            self._closed, self._lifted = False, True
            self._changed.notify_all()


class EndlessRows(flow.Source):
    """Rows without end, the same in every run: ``keys`` keys in random order, again and again.

    Args:
        keys: the number of keys.
        skew: the share of the rows that have key 0; the other rows have all keys equally often.
        splits: the number of splits, each with the same rows.
        batch_rows: rows of a batch.
        gate: is asked at every poll; its ``readers`` are the splits.

    >>> source = EndlessRows(keys=1_000, skew=0.0, splits=2, batch_rows=100, gate=Gate(2))
    >>> source.pool_rows, [split.id for split in source.splits()]
    (262144, ['0', '1'])
    """

    def __init__(self, *, keys: int, skew: float, splits: int, batch_rows: int, gate: Gate) -> None:
        rng = np.random.default_rng([20_150_629, keys])
        rows = max(LEAST_POOL, 2 * keys)
        key = rng.permutation(np.arange(rows) % keys)
        key[rng.random(rows) < skew] = 0
        self._pool = pa.record_batch({"key": key, "value": key % 1_000}, schema=SCHEMA)
        self._splits = splits
        self._batch_rows = batch_rows
        self._gate = gate

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def pool_rows(self) -> int:
        """The number of rows of a split before they repeat."""
        rows: int = self._pool.num_rows
        return rows

    def splits(self) -> Sequence[flow.Split]:
        return [flow.Split(str(number)) for number in range(self._splits)]

    def reader(self, split: flow.Split, offset: Json, context: SourceContext) -> flow.SplitReader:
        return _Reader(self._pool, self._batch_rows, self._gate, split.id, int(offset or 0))  # type: ignore[arg-type]


class _Reader(flow.SplitReader):
    offset = 0

    def __init__(self, pool: pa.RecordBatch, batch_rows: int, gate: Gate, name: str, offset: int) -> None:
        self._pool, self._batch_rows, self._gate, self._name = pool, batch_rows, gate, name
        self.offset = offset

    def poll(self, max_rows: int) -> pa.RecordBatch | None:
        if not self._gate.admits(self._name):
            return None
        start = self.offset % self._pool.num_rows
        rows = self._pool.slice(start, min(max_rows, self._batch_rows - start % self._batch_rows))
        self.offset += rows.num_rows
        return rows

    @property
    def mid_batch(self) -> bool:
        return bool(self.offset % self._pool.num_rows % self._batch_rows)
