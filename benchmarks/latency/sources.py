"""Sources of the measurements: rows that arrive at a constant rate, and batches that arrive one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

import dataflow as flow
from dataflow.contracts.source import EndOfSplit, Json, Source, SourceContext, Split, SplitReader

__all__ = ["KEYS", "Arriving", "Lone", "batch_of"]

KEYS = 1_000
SECOND = 1_000_000_000
_SCHEMA = pa.schema({"key": pa.int64(), "due": pa.int64()})


class Arriving(Source):
    """Rows of ``splits`` splits, together ``rate`` rows a second for ``seconds``; each has the time it was due.

    A poll returns the rows that are due. Its readers do not say when the next ones are, as most readers cannot.
    """

    bounded = False
    schema = _SCHEMA

    def __init__(self, rate: float, seconds: float, splits: int) -> None:
        self.rate, self.seconds, self.count = rate, seconds, splits

    def splits(self) -> Sequence[Split]:
        return [Split(str(number)) for number in range(self.count)]

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        assert offset is None or isinstance(offset, int), f"an offset of this source is a number, not {offset!r}"
        return _ArrivingReader(offset or 0, self.rate / self.count, self.seconds)


class _ArrivingReader(SplitReader):
    def __init__(self, offset: int, rate: float, seconds: float) -> None:
        self._given, self._rate, self._total = offset, rate, int(rate * seconds)
        self._started: int | None = None

    @property
    def offset(self) -> int:
        return self._given

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        now = time.monotonic_ns()
        if self._started is None:
            self._started = now - int(self._given * SECOND / self._rate)
        if self._given >= self._total:
            return flow.END
        rows = min(int((now - self._started) * self._rate / SECOND) - self._given, max_rows, self._total - self._given)
        if rows <= 0:
            return None
        numbers = np.arange(self._given + 1, self._given + rows + 1)
        self._given += rows
        due = self._started + (numbers * (SECOND / self._rate)).astype(np.int64)
        return pa.record_batch([_column(numbers % KEYS), _column(due)], schema=_SCHEMA)


def _column(values: np.ndarray) -> pa.Array:
    """Return an array without ``pa.array``, which imports pandas at its first call, within the measurement."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def batch_of(rows: int, seed: int) -> pa.RecordBatch:
    """Return ``rows`` random keys and numbers."""
    draw = np.random.default_rng(seed)
    columns = [_column(draw.integers(0, KEYS, rows)), _column(draw.integers(0, 1_000, rows))]
    return pa.record_batch(columns, names=["key", "value"])


class Lone(Source):
    """``batches`` batches of ``rows`` rows, one every ``pause`` seconds, so that none meets another."""

    bounded = False

    def __init__(self, batches: int, rows: int, pause: float) -> None:
        self.batches, self.pause = batches, pause
        self.made = [batch_of(rows, seed) for seed in range(16)]

    @property
    def schema(self) -> pa.Schema:
        return self.made[0].schema

    def splits(self) -> Sequence[Split]:
        return [Split("all")]

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _LoneReader(self, context)


class _LoneReader(SplitReader):
    offset = 0

    def __init__(self, source: Lone, context: SourceContext) -> None:
        self._source, self._clock = source, context.clock
        self._started = context.clock.now()

    @property
    def next_poll(self) -> int:
        return self._started + int(self.offset * self._source.pause * 1e6)

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        if self.offset == self._source.batches:
            return flow.END
        if self._clock.now() < self.next_poll:
            return None
        self.offset += 1
        return self._source.made[self.offset % len(self._source.made)]
