"""Gives an operator the rows of a batch in order: they are sorted first, and come when the input has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataflow.contracts.execution import RowOrder
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.planning.batch_specs import Sorted
from dataflow.planning.operator_table import make_operator
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers, words
from operators.batch.sorted_rows import SortedRows
from operators.stateful.times import time_column

__all__ = ["SortedOperator", "place_numbers", "time_numbers"]


class SortedOperator(Operator):
    """Collects the rows, and passes them to an operator in order before the last watermark. See the module's text."""

    def __init__(self, context: OperatorContext, spec: Sorted) -> None:
        (schema,) = context.input_schemas
        self._order = spec.order
        self._where = context.name
        self._rows = SortedRows(schema, len(spec.order.columns), context.spill.directory, context.spill.memory)
        own = spec.inner_schema(schema)
        self._columns = None if own is schema else own.names
        self._inner = make_operator(spec.inner, replace(context, input_schemas=(own,)))

    @property
    def kernels(self) -> Sequence[str]:
        return self._inner.kernels

    def open(self) -> None:
        self._inner.open()

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.num_rows:
            keys = [*time_numbers(batch, self._order, self._where), *place_numbers(batch, self._order)]
            self._rows.add(batch, keys)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        return self._emit(out) if watermark == MAX_WATERMARK else None

    def _emit(self, out: Out) -> Iterator[None]:
        for batch, _ in self._rows.take():
            rows = batch if self._columns is None else batch.select(self._columns)
            yield from self._inner.process(0, rows, out) or ()
            yield
        yield from self._inner.advance(MAX_WATERMARK, out) or ()

    def held(self, watermark: int) -> int:
        return -MAX_WATERMARK

    def ended(self, port: int, out: Out) -> Iterator[None] | None:
        return None

    def finish(self, out: Out) -> Iterator[None]:
        yield from self._inner.ended(0, out) or ()
        yield from self._inner.finish(out) or ()

    def close(self) -> None:
        self._rows.close()
        self._inner.close()


def time_numbers(batch: pa.RecordBatch, order: RowOrder, where: str) -> list[Numbers]:
    """Return the event times of rows, in the unit of their column; none if they have none.

    Raises: ValueError for a null.
    """
    return [] if order.time is None else [words(time_column(batch, order.time.column, where))]


def place_numbers(batch: pa.RecordBatch, order: RowOrder) -> list[Numbers]:
    """Return the places of rows in their sources; none if they do not come straight from sources."""
    return [] if order.place is None else [np.asarray(words(batch.column(order.place)))]
