"""Watermarks of rows that Spark has read: for each split, the latest time so far, less a delay.

A subtask has the rows of one partition of a micro-batch. After them, the runner asks for the watermarks. The tasks
after it take those of all partitions together, after all rows of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.row_errors import OnError, RowErrors
from operators.aggregation.window_times import latest
from operators.transforms.null_times import without_null_times

__all__ = ["LatestTimesOperator"]


class LatestTimesOperator(Operator):
    """Passes rows on, and keeps the latest time of each split.

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
        self._delay = delay
        self._errors = RowErrors(on_error, context.tally)
        assert context.splits is not None, f"{context.name} must run in the tasks that have the rows of a source"
        self._splits = context.splits
        self._latest: dict[str, int] = {}

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.column(self._position).null_count:
            batch = without_null_times(batch, self._column, self._errors, self._name, out)
        if not batch.num_rows:
            return
        out.emit(batch)
        time, split = latest(batch.column(self._position)), self._splits.current
        self._latest[split] = max(time, self._latest.get(split, time))

    def split_times(self) -> Mapping[str, int]:
        """Return the watermark of each split that had rows."""
        return {split: time - self._delay for split, time in self._latest.items()}
