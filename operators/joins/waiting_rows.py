"""Rows that wait for the watermark to pass their times: a log whose deltas have new rows.

Rows stay in the batches in which they came. A *run* is some rows, sorted when the watermark first divides them; then a
part of it is a slice, so nothing is copied as the watermark moves on. A restore drops the rows that the watermark of
the checkpoint had passed, so deltas say nothing of rows that left.

>>> waiting = WaitingRows(pa.schema({"k": pa.int64()}))
>>> waiting.add(pa.record_batch({"k": [7, 8, 9]}), np.array([30, 10, 20]))
>>> [(batch["k"].to_pylist(), times.tolist()) for batch, times in waiting.take(25)]
[([8, 9], [10, 20])]
>>> waiting.count
1
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Numbers
from dataflow.state.parts import LIVE_FIELD, marked, number_field, rows_since_base, small_batches
from operators.joins.time_order import by_time

__all__ = ["TIME", "WaitingRows"]

TIME = "barrierflow:time"
_ROWS, _BATCHES = 16_384, 256
"""The rows, and the batches, after which a run takes no more."""
_FEW = 256
"""A run with fewer rows stays open when the watermark divides it: else each watermark could leave a run of few rows."""


class _Run:
    """Rows with their times. ``first``: the first checkpoint that has them; None: none has."""

    __slots__ = ("_batches", "_is_sorted", "_times", "count", "first", "low")

    def __init__(self, batches: list[pa.RecordBatch], times: list[Numbers], first: int | None = None) -> None:
        self._batches, self._times = batches, times
        self._is_sorted = False
        self.first = first
        self.count = sum([len(each) for each in times])
        self.low = min([int(each.min()) for each in times])

    def add(self, batch: pa.RecordBatch, times: Numbers) -> None:
        self._batches.append(batch)
        self._times.append(times)
        self._is_sorted = False
        self.count += len(times)
        self.low = min(self.low, int(times.min()))

    @property
    def is_full(self) -> bool:
        return self.count >= _ROWS or len(self._batches) >= _BATCHES

    def rows(self) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows as one batch, and their times."""
        if len(self._batches) > 1:
            self._batches, self._times = [pa.concat_batches(self._batches)], [np.concatenate(self._times)]
        return self._batches[0], self._times[0]

    def parts(self) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
        """Yield the rows as they are kept, with their times."""
        return zip(self._batches, self._times, strict=True)

    def take(self, below: int) -> tuple[pa.RecordBatch, Numbers]:
        """Remove and return the rows before ``below``, of which there are some."""
        batch, times = self.rows()
        if not self._is_sorted and int(times.max()) >= below:
            order = by_time(times)
            batch, times = batch.take(to_array(order)), times[order]
            self._is_sorted = True
        if not self._is_sorted or int(times[-1]) < below:
            self.count = 0
            return batch, times
        stop = int(np.searchsorted(times, below, side="left"))
        self._batches, self._times = [batch.slice(stop)], [times[stop:]]
        self.count -= stop
        self.low = int(times[stop])
        return batch.slice(0, stop), times[:stop]


class WaitingRows:
    """Rows by time. It is state for `Snapshot.logs`. Only its task calls it.

    Args:
        schema: the columns of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        """The number of rows."""
        self._stored = pa.schema([*schema, number_field(TIME), LIVE_FIELD])
        self._heap: list[tuple[int, int, _Run]] = []  # the earliest time of each run that takes no more rows
        self._sequence = 0  # decides between runs of one time, in the order of arrival
        self._open: _Run | None = None

    @property
    def entries(self) -> int:
        """The number of rows."""
        return self.count

    def add(self, batch: pa.RecordBatch, times: Numbers) -> None:
        """Add rows, at least one, with their times."""
        if self._open is None:
            self._open = _Run([batch], [times])
        else:
            self._open.add(batch, times)
        self.count += len(times)
        if self._open.is_full:
            self._close()

    def take(self, below: int) -> list[tuple[pa.RecordBatch, Numbers]]:
        """Remove and return the rows before ``below`` with their times, in batches.

        Rows of equal times come in the order of arrival, also in different batches.
        """
        found: list[tuple[int, pa.RecordBatch, Numbers]] = []
        while self._heap and self._heap[0][0] < below:
            _, sequence, run = heapq.heappop(self._heap)
            found.append((sequence, *run.take(below)))
            if run.count:
                heapq.heappush(self._heap, (run.low, sequence, run))
        found.sort(key=lambda each: each[0])
        if self._open is not None and self._open.low < below:
            found.append((self._sequence, *self._open.take(below)))
            if not self._open.count:
                self._open = None
            elif self._open.count >= _FEW:
                self._close()
        self.count -= sum([len(times) for _, _, times in found])
        return [(batch, times) for _, batch, times in found]

    def _close(self) -> None:
        """Let the open run take no more rows."""
        if self._open is not None:
            heapq.heappush(self._heap, (self._open.low, self._sequence, self._open))
            self._sequence += 1
            self._open = None

    # --- checkpoints

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return a reader of all rows, or of those that came after checkpoint ``since``."""
        self._close()
        frozen: list[tuple[int, pa.RecordBatch, Numbers]] = []
        for _, sequence, run in self._heap:
            if run.first is None:
                run.first = checkpoint
            if since is None or run.first > since:
                frozen += [(sequence, *part) for part in run.parts()]
        schema = marked(self._stored, base=since is None)
        return {"rows": pa.RecordBatchReader.from_batches(schema, _batches(schema, frozen))}

    def durable(self, checkpoint: int) -> None:
        """Do nothing: a run knows its first checkpoint."""

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint."""
        return {"rows": self._stored}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Add the rows of checkpoints: the tables of a base and of the deltas after it. Raises: CheckpointDamaged."""
        for table in rows_since_base(parts, self._stored):
            for batch in table.to_batches():
                if batch.num_rows:
                    rows = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
                    self.add(rows, to_numbers(batch.column(TIME)))
        self._close()
        for _, _, run in self._heap:
            run.first = 0


def _batches(schema: pa.Schema, frozen: list[tuple[int, pa.RecordBatch, Numbers]]) -> Iterator[pa.RecordBatch]:
    """Yield frozen rows, in the order of arrival where their times are equal."""
    for _, batch, times in sorted(frozen, key=lambda each: each[0]):
        own = [to_array(times), to_array(np.ones(len(times), np.bool_))]
        yield from small_batches(pa.RecordBatch.from_arrays([*batch.columns, *own], schema=schema))
