"""The rows of a table by key, which any number of threads may read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from dataflow.state.partition import order_by_target
from operators.aggregation.window_times import Numbers
from operators.joins.result import has_null

__all__ = ["TableIndex"]


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
        return *index_kernels(keys), "dataflow.state.kernels.partition"

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each row's key, or -1 if the table does not have it."""
        if not len(self._keys):
            return np.full(len(keys[0]), -1, np.int32)
        return self._keys.find(keys)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
