"""Combine: rows of a batch are folded per key before they are dealt out by key, so that fewer have to move.

What comes out of a batch depends on that batch alone: no state, no flush, and checkpoints need not know of it. Where
folding does not pay, because most rows of the last batch had a key of their own or the batch is small, rows pass as
they are; the aggregate behind takes both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.graph import Aggregate, WindowAggregate
from dataflow.operator import Operator, OperatorContext, Out
from dataflow.state.dictionaries import wide_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from dataflow.state.partition import gather_rows, order_by_target
from operators.partials import partial_schema
from operators.records import Records, SumOverflow
from operators.sums import overflow_of
from operators.windows.times import window_numbers

__all__ = ["Combine"]

_SMALL = 4_096
"""Rows of a batch below which folding costs more than it saves."""
_PAYS = 2
"""Rows a record must hold on average."""
_PAUSE = 16
"""Batches that pass as they are, after one that did not pay, until the next attempt."""
_MOST_WINDOWS = 32
"""Windows of one batch beyond which there is hardly a row to fold with another."""
_MOST_KEYS = 1 << 20
"""Keys that are remembered from batch to batch, to save their hashing."""


class Combine(Operator):
    """Emits batches of partial records (``operators.partials``), or rows as they came. See the module's text."""

    stateless = True

    def __init__(self, context: OperatorContext, spec: Aggregate | WindowAggregate) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._key_schema = wide_schema(pa.schema([schema.field(key) for key in spec.keys]))
        self._schema = wide_schema(partial_schema(spec, schema))
        needed = {*spec.keys, *(name for a in spec.aggregations for name in a.columns())}
        self._needed = [name for name in schema.names if name in needed]
        self._rows = pa.schema([schema.field(name) for name in self._needed])
        self._pause = 0
        self._start()

    def _start(self) -> None:
        self._index = KeyIndex(self._key_schema)
        self._records = Records(self._spec.aggregations, self._rows, self._context.name)
        self._counts = np.zeros(0, np.int64)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if self._pause:
            self._pause -= 1
        elif batch.num_rows >= _SMALL:
            folded = self._fold(batch)
            if folded is not None:
                out.emit(folded)
                return
        out.emit(batch)

    def _fold(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The records of a batch; None where it is spread too thin."""
        spec, rows = self._spec, batch.select(self._needed)
        if len(self._index) > _MOST_KEYS:
            self._start()
        if isinstance(spec, Aggregate):
            keys, _, record = self._fold_part(rows)
            columns = [*keys, record]
        else:
            parts = self._windows(spec, rows, batch.column(spec.time))
            if parts is None:
                self._pause = _PAUSE
                return None
            columns = self._fold_windows(parts)
        if len(columns[-1]) * _PAYS > batch.num_rows:
            self._pause = _PAUSE
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _windows(
        self, spec: WindowAggregate, rows: pa.RecordBatch, times: pa.Array
    ) -> list[tuple[int, pa.RecordBatch]] | None:
        """The rows of each window; None where there are many, or a time that is null: the aggregate refuses it."""
        if times.null_count:
            return None
        numbers = window_numbers(times, spec.window)
        low, high = int(numbers.min()), int(numbers.max())
        if low == high:
            return [(low, rows)]
        if high - low >= _MOST_WINDOWS:
            return None
        order, offsets = order_by_target((numbers - low).astype(np.int32), high - low + 1)
        rows = gather_rows(rows, order)
        bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [(low + i, rows.slice(a, b - a)) for i, (a, b) in enumerate(bounds) if b > a]

    def _fold_windows(self, parts: Sequence[tuple[int, pa.RecordBatch]]) -> list[pa.Array]:
        found = []
        for number, rows in parts:
            keys, slots, record = self._fold_part(rows)
            counts = pa.array(self._counted(slots))
            found.append([*keys, pa.array(np.full(len(record), number, np.int64)), counts, record])
        return [pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0] for pieces in zip(*found, strict=True)]

    def _fold_part(self, rows: pa.RecordBatch) -> tuple[list[pa.Array], Slots, pa.Array]:
        """Keys and record of each group, and the slot of each row."""
        slots = self._index.slots([rows.column(key) for key in self._spec.keys])
        try:
            self._records.fold(rows, slots, len(self._index))
        except SumOverflow as error:
            key = self._index.keys(slots[error.row : error.row + 1])
            raise overflow_of(self._context.name, error, key, self._key_schema) from error
        touched = self._records.touched
        made = self._index.keys(touched), slots, self._records.partials(touched)
        self._touched = touched.copy()
        self._records.clear()
        return made

    def _counted(self, slots: Slots) -> npt.NDArray[np.int64]:
        """The rows of each group of the last part."""
        from operators.kernels.windows import count_rows

        if len(self._counts) < len(self._index):
            self._counts = np.zeros(2 * len(self._index), np.int64)
        counted = np.empty(len(self._touched), np.int64)
        count_rows(slots, self._touched, self._counts, counted)
        return counted
