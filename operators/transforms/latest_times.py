"""Watermarks of rows that Spark has read: after each batch of rows, the latest time so far, less a delay.

A subtask has the rows of one partition of a micro-batch, and knows no splits. The tasks after it take the latest of
the watermarks of all partitions, after all rows of the micro-batch.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.row_errors import OnError, RowErrors
from operators.aggregation.window_times import latest
from operators.transforms.null_times import without_null_times

__all__ = ["LatestTimesOperator"]


class LatestTimesOperator(Operator):
    """Passes rows on, and after each batch the watermark if it moved.

    Raises: ValueError for a null event time, unless ``on_error`` says otherwise.
    """

    stateless = True
    makes_time = True

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
        self._delay = delay
        self._errors = RowErrors(on_error, context.tally)
        self._latest: int | None = None

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.column(self._position).null_count:
            batch = without_null_times(batch, self._column, self._errors, self._name, out)
        if not batch.num_rows:
            return
        out.emit(batch)
        time = latest(batch.column(self._position))
        if self._latest is None or time > self._latest:
            self._latest = time
            out.watermark(time - self._delay)

    def advance(self, watermark: int, out: Out) -> None:
        """Ignore the watermark from upstream, which this operator replaces."""
