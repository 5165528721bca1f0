"""The rows of a table by key, which any number of threads may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import Numbers, fresh, validity, words
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from dataflow.state.partition import order_by_target
from operators.stateful.columns import has_null

__all__ = ["TableIndex", "found_rows"]

_SPARSE = 16
"""The most places for each key in an array of slots by key, which takes 4 bytes a place."""


class TableIndex:
    """The rows of ``table`` that have a key, in the order of their slots. Rows with a null key are left out.

    The rows of slot s are ``offsets[s]`` to ``offsets[s + 1]``, in the order of the table. If the keys are ``unique``,
    that is row s.

    Args:
        table: all rows.
        keys: the names of the key columns.
        columns: the names of the other columns that are needed.

    >>> rows = pa.table({"k": [7, None, 8, 7], "v": [1, 2, 3, 4]})
    >>> index = TableIndex(rows, ["k"], ["v"])
    >>> index.find([pa.array([8, None, 9, 7])]).tolist(), index.unique
    ([1, -1, -1, 0], False)
    >>> index.offsets.tolist(), index.columns["v"].to_pylist()
    ([0, 2, 3], [1, 4, 3])
    """

    def __init__(self, table: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> None:
        table = table.combine_chunks()
        values = [_array(table.column(name)) for name in keys]
        null = has_null(values)
        rows: Numbers | Slots | None = None
        if null is not None:
            rows = np.flatnonzero(~null)
            values = [column.take(to_array(rows)) for column in values]
        count = len(values[0])
        self._keys = KeyIndex(pa.schema([table.schema.field(name) for name in keys]), count)
        slots = self._keys.slots(values) if count else np.empty(0, np.int32)
        self.unique = len(self._keys) == count
        self._dense = _Dense.of(values[0], slots) if len(values) == 1 and count else None
        if self.unique:
            self.offsets = np.arange(count + 1)
        else:
            order, self.offsets = order_by_target(slots.copy(), len(self._keys))
            rows = order if rows is None else rows[order]
        taken = None if rows is None else to_array(rows)
        self.columns = {
            name: _array(table.column(name)) if taken is None else _array(table.column(name)).take(taken)
            for name in columns
        }

    @staticmethod
    def kernels_for(keys: pa.Schema) -> Sequence[str]:
        """Return the modules with the kernels that are called for such keys."""
        return *index_kernels(keys), "dataflow.state.kernels.partition", "operators.kernels.lookup"

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each row's key, or -1 if the table does not have it."""
        if not len(self._keys):
            return np.full(len(keys[0]), -1, np.int32)
        return self._keys.find(keys) if self._dense is None else self._dense.find(keys[0])


@dataclass(frozen=True, slots=True)
class _Dense:
    """The slots of integer keys that are close to each other: ``slots[key - low]``, or -1."""

    low: int
    slots: Slots

    @classmethod
    def of(cls, keys: pa.Array, slots: Slots) -> _Dense | None:
        """Return the slots of ``keys``; None: the keys are no integers, or too far apart."""
        if not pa.types.is_integer(keys.type):
            return None
        values = words(keys)
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span > _SPARSE * len(values):
            return None
        table = np.full(span, -1, np.int32)
        table[values - low] = slots
        return cls(low, table)

    def find(self, keys: pa.Array) -> Slots:
        from operators.kernels.lookup import seek_dense

        found = fresh(np.int32, len(keys))
        seek_dense(words(keys), *validity(keys), self.low, self.slots, found)
        return found


def found_rows(slots: Slots) -> tuple[Slots, Slots]:
    """Return the rows that have a slot, and their slots.

    >>> [numbers.tolist() for numbers in found_rows(np.array([4, -1, 2], np.int32))]
    [[0, 2], [4, 2]]
    """
    from operators.kernels.lookup import keep_found

    rows, found = fresh(np.int32, len(slots) + 1), fresh(np.int32, len(slots) + 1)
    count = keep_found(slots, rows, found)
    return rows[:count], found[:count]


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
