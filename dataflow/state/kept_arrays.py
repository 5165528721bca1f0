"""Arrow values of any type that records refer to by number.

Arrays are only appended to, and rebuilt from the live values when most of them are dead.

>>> from dataflow.state.copy_on_write import CopyOnWriteRows
>>> rows = CopyOnWriteRows(np.zeros((3, 2), np.int64))
>>> kept = KeptArrays(word=1, flag=2, dtype=pa.list_(pa.int64()))
>>> kept.put(rows, np.array([0, 1], np.int32), pa.array([[1], [2, 3]]))
>>> kept.values().read(rows.rows).to_pylist()
[[1], [2, 3], None]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.appended_columns import FewArrays, taken_from
from dataflow.state.copy_on_write import CopyOnWriteRows, Rows
from dataflow.state.index import Slots

__all__ = ["ArrayValues", "KeptArrays"]

_FEW = 1024


@dataclass(frozen=True, slots=True)
class ArrayValues:
    """The values at one point in time, readable on any thread."""

    arrays: tuple[pa.Array, ...]
    word: int
    flag: int
    dtype: pa.DataType

    def read(self, records: Rows) -> pa.Array:
        """Return the values that ``records`` refer to; null where they have none."""
        present = records[:, 0] & self.flag != 0
        numbers = to_array(np.where(present, records[:, self.word], 0), mask=~present)
        return taken_from(self.arrays, self.dtype, numbers)


class KeptArrays:
    """The values that word ``word`` of records with ``flag`` refers to."""

    def __init__(self, word: int, flag: int, dtype: pa.DataType) -> None:
        self._word, self._flag, self._dtype = word, flag, dtype
        self._arrays = FewArrays(dtype)
        self._alive = 0

    def values(self) -> ArrayValues:
        """Return all present values; later changes do not affect them."""
        return ArrayValues(self._arrays.present(), self._word, self._flag, self._dtype)

    def put(self, rows: CopyOnWriteRows, slots: Slots, array: pa.Array) -> None:
        """Store row i of ``array`` in the record of ``slots[i]``, each once. May renumber the values of all ``rows``.

        The records of ``slots`` must have been saved.
        """
        rows.rows[slots, self._word] = self._append(array)
        rows.rows[slots, 0] |= self._flag
        if self._arrays.count > 2 * self._alive + _FEW:
            self._gather(rows)

    def restore(self, records: Rows, array: pa.Array) -> None:
        """Add the values of a snapshot, row i for record i; flags are already restored."""
        present = records[:, 0] & self._flag != 0
        records[:, self._word] = np.where(present, self._append(array), 0)
        self._alive = self._arrays.count

    def shrink(self, rows: CopyOnWriteRows) -> None:
        """Give back the memory of values that no record of ``rows`` refers to. What readers have stays as it is."""
        self._gather(rows)

    def _append(self, array: pa.Array) -> npt.NDArray[np.int64]:
        """Add the rows of ``array``, and return their numbers."""
        first = self._arrays.count
        self._arrays.append(array)
        return np.arange(first, self._arrays.count)

    def _gather(self, rows: CopyOnWriteRows) -> None:
        """Copy the values that records refer to, and drop the others."""
        holders = np.flatnonzero(rows.rows[:, 0] & self._flag).astype(np.int32)
        values = self.values().read(rows.rows[holders])
        self._arrays = FewArrays(self._dtype)
        rows.save(holders)
        rows.rows[holders, self._word] = self._append(values)
        self._alive = self._arrays.count
