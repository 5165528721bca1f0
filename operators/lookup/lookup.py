"""Joins each row with the rows of a table that have its key. The order of the rows is kept.

The subtasks of a process share the table and its index, which the first one of them makes. If its keys are unique, each
batch becomes at most one batch, whose columns are taken at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.planning.lookup_specs import Lookup
from dataflow.planning.lookup_tables import LoadedTable
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.index import Slots
from operators.lookup.table_index import TableIndex, found_rows
from operators.stateful.chunks import CHUNK, adjacent_pairs, pieces
from operators.stateful.columns import typed

__all__ = ["LookupOperator"]


class LookupOperator(Operator):
    """Looks rows up in a table; see the module's text."""

    stateless = True

    def __init__(self, context: OperatorContext, spec: Lookup) -> None:
        right = dict(spec.columns.right)
        self._spec = spec
        self._output = context.output_schema
        self._origins = [(field, right.get(field.name)) for field in self._output]
        self._keys = [(name, context.output_schema.field(name).type) for name in spec.columns.keys.left]
        self._kernels = TableIndex.kernels_for(pa.schema([self._output.field(name) for name, _ in self._keys]))

    @property
    def kernels(self) -> Sequence[str]:
        return self._kernels

    def open(self) -> None:
        table, columns = self._spec.table, self._spec.columns
        assert isinstance(table, LoadedTable), "a job loads its plan before it opens operators"
        self._index = table.made(
            lambda rows: TableIndex(rows, columns.keys.right, list(dict.fromkeys(old for _, old in columns.right)))
        )

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        slots = self._index.find([typed(batch.column(name), type_) for name, type_ in self._keys])
        if not self._index.unique:
            return self._several(batch, slots, _missing(slots), out)
        if self._spec.how == "left":
            out.emit(self._joined(batch, None, slots, _missing(slots)))
            return None
        rows, found = found_rows(slots)
        if len(rows):
            out.emit(self._joined(batch, to_array(rows) if len(rows) < len(slots) else None, found, None))
        return None

    def _several(self, batch: pa.RecordBatch, slots: Slots, missing: Mask | None, out: Out) -> Iterator[None]:
        """Emit one row for each counterpart, at most ``CHUNK`` of them at a time."""
        index = self._index
        counts = np.diff(index.offsets)[slots]
        if missing is not None:
            counts[missing] = self._spec.how == "left"
        for start, stop in pieces(counts):
            at, places = adjacent_pairs(counts[start:stop], index.offsets[slots[start:stop]])
            rows = at + start
            lost = None if missing is None else missing[rows]
            for begin in range(0, len(rows), CHUNK):
                chosen = slice(begin, begin + CHUNK)
                none = None if lost is None else lost[chosen]
                out.emit(self._joined(batch, to_array(rows[chosen]), places[chosen], none))
                yield

    def _joined(
        self, batch: pa.RecordBatch, rows: pa.Array | None, places: Numbers | Slots, missing: Mask | None
    ) -> pa.RecordBatch:
        """Return the result for ``rows`` of ``batch`` (None: all), which have the rows ``places`` of the table.

        Rows that are ``missing`` have none: the columns of the table are null.
        """
        found = to_array(places) if missing is None else to_array(places, mask=missing)
        columns = []
        for field, origin in self._origins:
            if origin is not None:
                columns.append(self._index.columns[origin].take(found))
            else:
                column = typed(batch.column(field.name), field.type)
                columns.append(column if rows is None else column.take(rows))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)


def _missing(slots: Slots) -> Mask | None:
    """Return which rows have no counterpart; None: all have one."""
    missing: Mask = slots < 0
    return missing if missing.any() else None
