"""Event times in a batch: rows without one are refused or set aside, as in a stream, and no watermark is made."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.row_errors import OnError, RowErrors
from operators.transforms.null_times import without_null_times

__all__ = ["EventTimesOperator"]


class EventTimesOperator(Operator):
    """Passes on the rows that have a time in ``column``.

    Raises: ValueError for a null event time, unless ``on_error`` says otherwise.
    """

    stateless = True

    def __init__(
        self,
        context: OperatorContext,
        column: str,
        origin: str | None,
        delay: int,
        idle_after: int | None,
        on_error: OnError,
        *unused: Any,
    ) -> None:
        self._name = context.name
        self._column = column
        self._position = context.input_schemas[0].get_field_index(column)
        self._errors = RowErrors(on_error, context.tally)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.column(self._position).null_count:
            batch = without_null_times(batch, self._column, self._errors, self._name, out)
        if batch.num_rows:
            out.emit(batch)
