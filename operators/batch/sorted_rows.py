"""Sorts any number of rows by columns of integers, in bounded memory: an external merge sort.

Rows gather until they reach the limit of memory; then they are sorted and written to a file, a *run*. At the end the
runs are merged. A file has no name, so the disk gets its space back even if the process is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from typing import Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import StoreError
from dataflow.state.arrays import Numbers

__all__ = ["SortedRows"]


_BATCH: Final = 16_384
"""Rows of a batch in a file, and at most of one that is returned."""


class SortedRows:
    """Rows of ``schema`` that are sorted by ``keys`` columns of int64, which come with the rows.

    Rows with equal keys keep the order in which they were added.

    Args:
        schema: the columns of the rows.
        keys: how many numbers each row is sorted by; the first one counts most. 0: rows keep their order.
        directory: where files are written; None: the system's directory for temporary files.
        memory: bytes that are kept before a file is written.

    >>> rows = SortedRows(pa.schema({"x": pa.string()}), 1)
    >>> rows.add(pa.record_batch({"x": ["late", "early"]}), [np.array([7, 3])])
    >>> [(batch["x"].to_pylist(), numbers[0].tolist()) for batch, numbers in rows.take()]
    [(['early', 'late'], [3, 7])]
    """

    def __init__(self, schema: pa.Schema, keys: int, directory: str | None = None, memory: int = 128 << 20) -> None:
        self._names = [f"barrierflow:key {number}" for number in range(keys)]
        self._schema = schema
        fields = [pa.field(name, pa.int64()) for name in self._names]
        self._stored = pa.schema([*_plain(schema), *fields])
        self._directory = directory
        self._memory = memory
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[_Run] = []
        self.spilled = 0
        """Bytes that were written to files."""

    def add(self, batch: pa.RecordBatch, keys: Sequence[Numbers]) -> None:
        """Add rows with their keys. Raises: StoreError if a file cannot be written."""
        columns = [_decoded(column, field) for column, field in zip(batch.columns, self._stored, strict=False)]
        columns += [to_array(numbers) for numbers in keys]
        stored = pa.RecordBatch.from_arrays(columns, schema=self._stored)
        self._waiting.append(stored)
        self._bytes += stored.nbytes
        if self._bytes >= self._memory:
            self._spill()

    def take(self) -> Iterator[tuple[pa.RecordBatch, list[Numbers]]]:
        """Yield all rows in order, in batches, each with its keys; afterwards there are none."""
        merged: Iterator[pa.RecordBatch]
        if not self._runs:
            merged = self._sorted()
        else:
            if self._waiting:
                self._spill()
            runs, self._runs = self._runs, []
            merged = self._merge(runs)
        count = len(self._schema)
        for batch in merged:
            keys = [to_numbers(column) for column in batch.columns[count:]]
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns[:count], self._schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema), keys

    def take_whole(self, count: int) -> Iterator[tuple[pa.RecordBatch, list[Numbers]]]:
        """Yield all rows as ``take`` does, but rows that agree in their first ``count`` keys in one batch."""
        held: list[tuple[pa.RecordBatch, list[Numbers]]] = []
        for batch, keys in self.take():
            ends = np.ones(batch.num_rows, np.bool_)
            for numbers in keys[:count]:
                ends &= numbers == numbers[-1]
            last = int(np.argmax(ends))
            begins_anew = held and any(held[0][1][n][0] != keys[n][0] for n in range(count))
            if begins_anew:
                yield _joined(held)
                held = []
            if last:
                yield _joined([*held, (batch.slice(0, last), [numbers[:last] for numbers in keys])])
                held = []
            held.append((batch.slice(last), [numbers[last:] for numbers in keys]))
        if held:
            yield _joined(held)

    def close(self) -> None:
        """Drop all rows and files."""
        self._waiting, self._bytes = [], 0
        for run in self._runs:
            run.close()
        self._runs = []

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in memory, in order, and forget them."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        keys = [np.concatenate([to_numbers(batch.column(name)) for batch in waiting]) for name in self._names]
        (rows,) = _batches(pa.Table.from_batches(waiting))
        order = _order(keys, rows.num_rows)
        for start in range(0, len(order), _BATCH):
            yield rows.take(to_array(order[start : start + _BATCH]))

    def _spill(self) -> None:
        """Write the rows in memory to a file, in order."""
        self.spilled += self._bytes
        try:
            self._runs.append(_Run(self._directory, self._stored, self._sorted(), self._names))
        except OSError as error:
            raise StoreError(
                f"cannot write sorted rows to {self._directory or tempfile.gettempdir()}: {error}; free space there, "
                "or choose another directory with LocalRunner(spill=...)"
            ) from error

    def _merge(self, runs: list[_Run]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all runs in order. Each step takes the rows up to the least last key of any batch."""
        try:
            while runs:
                bound = min((run.last, number) for number, run in enumerate(runs))
                taken = [run.take_upto(bound[0], inclusive=number <= bound[1]) for number, run in enumerate(runs)]
                for run in runs:
                    if run.ended:
                        run.close()
                runs = [run for run in runs if not run.ended]
                rows = pa.Table.from_batches([batch for batch in taken if batch.num_rows], schema=self._stored)
                if len([batch for batch in taken if batch.num_rows]) > 1:
                    keys = [to_numbers(rows.column(name).combine_chunks()) for name in self._names]
                    rows = rows.take(to_array(_order(keys, rows.num_rows)))
                yield from _batches(rows)
        finally:
            for run in runs:
                run.close()


class _Run:
    """Sorted rows in a file, and the batch of them that is read."""

    def __init__(
        self, directory: str | None, schema: pa.Schema, rows: Iterator[pa.RecordBatch], names: Sequence[str]
    ) -> None:
        with tempfile.TemporaryFile(prefix="barrierflow-sort-", dir=directory) as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in rows:
                    writer.write_batch(batch)
            file.flush()
            self._map = mmap(file.fileno(), 0, access=ACCESS_READ)  # keeps the rows when the file is closed
        self._names = names
        self._reader = pa.ipc.open_stream(pa.py_buffer(self._map))
        self.ended = False
        self._batch: pa.RecordBatch
        self._keys: list[Numbers]
        self._read()

    @property
    def last(self) -> tuple[int, ...]:
        """The keys of the last row of the batch."""
        return tuple(int(numbers[-1]) for numbers in self._keys)

    def take_upto(self, bound: tuple[int, ...], *, inclusive: bool) -> pa.RecordBatch:
        """Return the next rows whose keys are below ``bound``, or equal to it if that is ``inclusive``."""
        low, high = 0, self._batch.num_rows
        while low < high:
            middle = (low + high) // 2
            keys = tuple(int(numbers[middle]) for numbers in self._keys)
            if keys < bound or (inclusive and keys == bound):
                low = middle + 1
            else:
                high = middle
        taken = self._batch.slice(0, low)
        self._batch, self._keys = self._batch.slice(low), [numbers[low:] for numbers in self._keys]
        if not self._batch.num_rows:
            self._read()
        return taken

    def close(self) -> None:
        """Drop the rows. Batches that were taken keep the file until they are dropped."""
        del self._reader, self._map
        self._batch, self._keys = pa.RecordBatch.from_arrays([], []), []

    def _read(self) -> None:
        for batch in self._reader:
            if batch.num_rows:
                self._batch = batch
                self._keys = [to_numbers(batch.column(name)) for name in self._names]
                return
        self.ended = True


def _joined(parts: Sequence[tuple[pa.RecordBatch, list[Numbers]]]) -> tuple[pa.RecordBatch, list[Numbers]]:
    """Return parts of rows, with their keys, as one."""
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_batches([batch for batch, _ in parts])
    return rows, [np.concatenate(numbers) for numbers in zip(*[keys for _, keys in parts], strict=True)]


def _order(keys: Sequence[Numbers], count: int) -> Numbers:
    """Return the numbers of ``count`` rows in order of their keys; rows with equal keys, or none, stay as they are."""
    if not keys:
        return np.arange(count)
    return np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0], kind="stable")


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table, which fit into one batch."""
    return iter(rows.combine_chunks().to_batches())


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the columns as they are kept: batches of a column may have different dictionaries."""
    types = pa.types
    return pa.schema(
        [field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field for field in schema]
    )


def _decoded(column: pa.Array, field: pa.Field) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
