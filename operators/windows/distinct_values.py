"""The number of distinct values in the sliding windows of keys: how many rows in the window have each value.

Nothing here is stored: it is counted again from the rows after a restore.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels

__all__ = ["DistinctValues", "Segments", "counted_apart"]


Segments = tuple[Numbers, Slots, Numbers]
"""Rows by segment: the first row of each segment and after them their number, the slot of each segment, the times."""


class DistinctValues:
    """The distinct values of one argument, of type ``dtype``, by slot; rows are known by their numbers."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._schema = _pairs(dtype)
        self._index = KeyIndex(self._schema)
        self._counts = np.zeros(0, np.int64)  # by pair of slot and value: the rows in the window
        self._distinct = np.zeros(0, np.int64)  # by slot
        self._pair_of = np.empty(0, np.int64)  # by row; -1: it has no value, or is not counted

    @property
    def kernels(self) -> tuple[str, ...]:
        """The modules with the kernels that are called."""
        return index_kernels(self._schema)

    def slide(
        self, rows: Segments, numbers: Slots, values: pa.Array, gone: Segments, gone_numbers: Slots, period: int
    ) -> Numbers:
        """Count rows as they come and go; return the number of distinct values in the window of each.

        Args:
            rows: the rows that come, by key; their slots have room (``grow``).
            numbers: their numbers.
            values: their values; null: none.
            gone: by key, the rows that leave a window of these rows.
            gone_numbers: their numbers.
            period: the length of a window.
        """
        from operators.kernels.sliding import count_distinct

        starts, slots, times = rows
        pairs = self._enter(np.repeat(slots, np.diff(starts)), values)
        self._pair_of[numbers] = pairs
        gone_pairs, results = self._pair_of[gone_numbers], np.empty(len(times), np.int64)
        count_distinct(
            starts, slots, times, pairs, gone[0], gone[2], gone_pairs, period, self._counts, self._distinct, results
        )
        self._pair_of[gone_numbers] = -1
        self._drop_empty(gone_pairs)
        return results

    def evict(self, slots: Slots, numbers: Slots) -> None:
        """Count rows no more, each of the key of its slot; those that were not counted stay so."""
        from operators.kernels.sliding import evict_values

        pairs = self._pair_of[numbers]
        evict_values(slots, pairs, self._counts, self._distinct)
        self._pair_of[numbers] = -1
        self._drop_empty(pairs)

    def grow(self, slots: int, rows: int) -> None:
        """Make room for ``slots`` slots and ``rows`` numbers of rows."""
        self._distinct = _longer(self._distinct, slots, 0)
        self._pair_of = _longer(self._pair_of, rows, -1)

    def _enter(self, slots: Slots, values: pa.Array) -> Numbers:
        pairs = _numbered(self._index, slots, values)
        self._counts = _longer(self._counts, len(self._index), 0)
        return pairs

    def _drop_empty(self, pairs: Numbers) -> None:
        pairs = np.unique(pairs[pairs >= 0])
        empty = pairs[self._counts[pairs] == 0].astype(np.int32)
        if len(empty):
            self._index.remove(empty)
            self._index.release(empty)


def counted_apart(starts: Numbers, times: Numbers, values: pa.Array, period: int) -> Numbers:
    """Return the number of distinct values in the window of each row.

    ``starts`` has the first row of each segment, which has all rows of its windows, and after them the number of rows.

    >>> counted_apart(np.array([0, 3]), np.array([1, 2, 12]), pa.array(["a", "b", "b"]), 10).tolist()
    [1, 2, 1]
    """
    from operators.kernels.sliding import count_distinct

    segments = np.arange(len(starts) - 1, dtype=np.int32)
    index = KeyIndex(_pairs(values.type))
    pairs = _numbered(index, np.repeat(segments, np.diff(starts)), values)
    counts, distinct = np.zeros(len(index), np.int64), np.zeros(len(segments), np.int64)
    results = np.empty(len(times), np.int64)
    count_distinct(starts, segments, times, pairs, starts, times, pairs, period, counts, distinct, results)
    return results


def _pairs(dtype: pa.DataType) -> pa.Schema:
    return pa.schema({"slot": pa.int32(), "value": dtype})


def _numbered(index: KeyIndex, slots: Slots, values: pa.Array) -> Numbers:
    """Return the number of each pair of slot and value; -1 where the value is null."""
    pairs = np.full(len(values), -1, np.int64)
    present = to_numbers(values.is_valid())
    if present.any():
        pairs[present] = index.slots([to_array(slots[present]), values.drop_null()])
    return pairs


def _longer(array: Numbers, length: int, fill: int) -> Numbers:
    """Return ``array`` with at least ``length`` entries, twice as many if it grows; new ones are ``fill``."""
    if length <= len(array):
        return array
    grown = np.full(max(512, 2 * length), fill, np.int64)
    grown[: len(array)] = array
    return grown
