"""Byte values that records refer to by number: an append-only arena, rebuilt when most of it is dead.

A batch appends at most one value a record. The arena is rebuilt from the live values when it is twice as large as after
the last rebuild, so it holds at most about two values a record, and a value is copied about twice, whatever the
stream's length.

Invariant: a snapshot's records match the arena it refers to: values that existed at the snapshot are never overwritten,
and numbers change only in rows that have been saved for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.arrays import byte_ranges
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from dataflow.state.interning import InternedValues
from operators.steps.step import Rows

__all__ = ["KeptBytes", "KeptValues"]

_FEW = 1024
_SOME_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KeptValues:
    """The values at one point in time, readable on any thread."""

    interned: InternedValues
    word: int
    dtype: pa.DataType

    def read(self, records: Rows, bitmap: pa.Buffer | None) -> pa.Array:
        """Return the values that ``records`` refer to; null where ``bitmap`` is 0."""
        return self.interned.of(np.ascontiguousarray(records[:, self.word]), self.dtype, bitmap)


class KeptBytes:
    """The values that word ``word`` of records with ``flag`` refers to."""

    def __init__(self, word: int, flag: int, dtype: pa.DataType) -> None:
        self._word = word
        self._flag = flag
        self._dtype = dtype
        self._known = 0
        self._starts = np.zeros(_FEW, np.int64)
        self._arena = np.empty(_FEW, np.uint8)
        self._alive = (0, 0)  # values and bytes after the last rebuild of the arena

    def row_numbers(self, rows: int) -> Rows:
        """Return the provisional numbers of a batch's rows, valid until ``settle``."""
        return np.arange(-2, -2 - rows, -1, dtype=np.int64)

    def memory(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return arena and starts, for a kernel that compares values."""
        return self._arena, self._starts

    def values(self) -> KeptValues:
        """Return all present values; later changes do not affect them."""
        return KeptValues(InternedValues(self._starts, self._arena), self._word, self._dtype)

    def settle(self, rows: CopyOnWriteRows, slots: Slots, array: pa.Array) -> None:
        """Store the rows of ``array`` that records of ``slots`` chose; may renumber the values of all ``rows``."""
        from operators.kernels.kept import settle

        data, offsets = byte_ranges(array)
        self._make_room(len(slots), int(offsets[-1] - offsets[0]))
        self._known = settle(rows.rows, slots, self._word, data, offsets, self._arena, self._starts, self._known)
        values, size = self._alive
        if self._known > 2 * values + _FEW or int(self._starts[self._known]) > 2 * size + _SOME_BYTES:
            self._gather(rows)

    def restore(self, records: Rows, array: pa.Array) -> None:
        """Restore the values of a snapshot, row i for record i. The arena must be empty."""
        assert not self._known, f"restore needs an empty arena; this one has {self._known} values"
        data, offsets = byte_ranges(array)
        self._take(data[int(offsets[0]) : int(offsets[-1])].copy(), offsets - offsets[0])
        seen = records[:, 0] & self._flag != 0  # other records have no value; the next rebuild drops theirs
        records[:, self._word] = np.where(seen, np.arange(len(records)), 0)

    def _make_room(self, values: int, size: int) -> None:
        used = int(self._starts[self._known])
        if self._known + values + 1 > len(self._starts):
            starts = np.zeros(2 * (self._known + values + 1), np.int64)
            starts[: self._known + 1] = self._starts[: self._known + 1]
            self._starts = starts
        if used + size > len(self._arena):
            arena = np.empty(2 * (used + size), np.uint8)
            arena[:used] = self._arena[:used]
            self._arena = arena

    def _gather(self, rows: CopyOnWriteRows) -> None:
        """Rebuild the arena from the values that records refer to."""
        from dataflow.state.kernels.interning import gather_bytes

        holders = np.flatnonzero(rows.rows[:-1, 0] & self._flag).astype(np.int32)
        codes = rows.rows[holders, self._word]
        ends = np.cumsum(self._starts[codes + 1] - self._starts[codes])
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        gather_bytes(self._arena, self._starts, codes, np.empty(0, np.uint8), ends, data)
        self._take(data, np.concatenate([np.zeros(1, np.int64), ends]))
        rows.save(holders)
        rows.rows[holders, self._word] = np.arange(len(holders))

    def _take(self, arena: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> None:
        self._arena, self._known = arena, len(starts) - 1
        self._starts = np.append(starts, starts[-1])  # records without a value hold 0, and value 0 may not exist
        self._alive = (self._known, len(arena))
