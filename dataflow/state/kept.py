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
from dataflow.state.copy_on_write import CopyOnWriteRows, Rows
from dataflow.state.index import Slots
from dataflow.state.interning import InternedValues

__all__ = ["KEPT_KERNELS", "KeptBytes", "KeptValues"]

KEPT_KERNELS = ("dataflow.state.kernels.kept", "dataflow.state.kernels.interning")
"""The modules with the kernels that ``KeptBytes`` calls."""

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

    def text_bytes(self, records: Rows, bitmap: pa.Buffer | None) -> int:
        """Return the bytes of these values."""
        return self.interned.text_bytes(records[:, self.word], bitmap)


class KeptBytes:
    """The values that word ``word`` of records with ``flag`` refers to."""

    def __init__(self, word: int, flag: int, dtype: pa.DataType) -> None:
        self._word = word
        self._flag = flag
        self._dtype = dtype
        self._state = np.zeros(2, np.int64)  # number of values, bytes used of the arena
        self._places = np.zeros((_FEW, 2), np.int64)  # records without a value hold 0, and value 0 may not exist
        self._arena = np.empty(_FEW, np.uint8)
        self._alive = (0, 0)  # the state after the last rebuild of the arena

    def row_numbers(self, rows: int) -> Rows:
        """Return the provisional numbers of a batch's rows, valid until ``settle``."""
        return np.arange(-2, -2 - rows, -1, dtype=np.int64)

    def memory(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return arena and places, for a kernel that compares values."""
        return self._arena, self._places

    def values(self) -> KeptValues:
        """Return all present values; later changes do not affect them."""
        return KeptValues(InternedValues(self._places, self._arena), self._word, self._dtype)

    def settle(self, rows: CopyOnWriteRows, slots: Slots, array: pa.Array) -> None:
        """Store the rows of ``array`` that records of ``slots`` chose; may renumber the values of all ``rows``."""
        from dataflow.state.kernels.kept import settle

        data, offsets = byte_ranges(array)
        self._make_room(len(slots), int(offsets[-1] - offsets[0]))
        settle(rows.rows, slots, self._word, data, offsets, self._arena, self._places, self._state)
        values, size = self._alive
        if self._state[0] > 2 * values + _FEW or self._state[1] > 2 * size + _SOME_BYTES:
            self._gather(rows)

    def restore(self, records: Rows, array: pa.Array) -> None:
        """Add the values of a snapshot, row i for record i."""
        data, offsets = byte_ranges(array)
        known, size = self._state.tolist()
        rows, more = len(records), int(offsets[-1] - offsets[0])
        self._make_room(rows, more)
        self._arena[size : size + more] = data[int(offsets[0]) : int(offsets[-1])]
        self._places[known : known + rows, 0] = offsets[:-1] - offsets[0] + size
        self._places[known : known + rows, 1] = offsets[1:] - offsets[0] + size
        self._state += (rows, more)
        self._alive = (int(self._state[0]), int(self._state[1]))
        seen = records[:, 0] & self._flag != 0  # other records have no value; the next rebuild drops theirs
        records[:, self._word] = np.where(seen, np.arange(known, known + rows), 0)

    def shrink(self, rows: CopyOnWriteRows) -> None:
        """Give back the memory of values that no record of ``rows`` refers to. What readers have stays as it is."""
        self._gather(rows)

    def _make_room(self, values: int, size: int) -> None:
        known, used = self._state.tolist()
        if known + values > len(self._places):
            places = np.zeros((2 * (known + values), 2), np.int64)
            places[:known] = self._places[:known]
            self._places = places
        if used + size > len(self._arena):
            arena = np.empty(2 * (used + size), np.uint8)
            arena[:used] = self._arena[:used]
            self._arena = arena

    def _gather(self, rows: CopyOnWriteRows) -> None:
        """Rebuild the arena from the values that records refer to."""
        from dataflow.state.kernels.interning import gather_bytes

        holders = np.flatnonzero(rows.rows[:-1, 0] & self._flag).astype(np.int32)
        codes = rows.rows[holders, self._word]
        held = self._places[codes]
        ends = np.cumsum(held[:, 1] - held[:, 0])
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        gather_bytes(self._arena, self._places, codes, np.empty(0, np.uint8), ends, data)
        self._places = np.zeros((len(holders) + _FEW, 2), np.int64)
        self._places[: len(holders), 1] = ends
        self._places[1 : len(holders), 0] = ends[:-1]
        self._arena = data
        self._state[:] = self._alive = (len(holders), len(data))
        rows.save(holders)
        rows.rows[holders, self._word] = np.arange(len(holders))
