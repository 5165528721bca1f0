"""Event times of rows without watermarks that move between them: in a batch, and in the tasks of Spark's readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.row_errors import OnError
from operators.stateful.times import latest
from operators.transforms.checked_times import CheckedTimes

__all__ = ["EventTimesOperator", "LatestTimesOperator"]


class EventTimesOperator(Operator):
    """Passes on the rows that have a time in ``column``. It makes no watermark: for batches.

    Raises: ValueError for an event time that is null or further ``ahead`` of the clock, unless ``on_error`` says
    otherwise. In a batch ``ahead`` is None.
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
        max_drift: int | None = None,
        close_after: int | None = None,
        ahead: int | None = None,
    ) -> None:
        self._position = context.input_schemas[0].get_field_index(column)
        self._delay = delay
        self._times = CheckedTimes(context, column, on_error, ahead)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        batch = self._times.usable(batch, out)
        if batch.num_rows:
            out.emit(batch)
            self._note(batch.column(self._position))

    def _note(self, times: pa.Array) -> None:
        """Take the times of rows that were passed on."""


class LatestTimesOperator(EventTimesOperator):
    """Keeps also the latest time of each split, of rows that Spark has read.

    A subtask has the rows of one partition of a micro-batch. After them, the runner asks for the watermarks. The tasks
    after it take those of all partitions together, after all rows of the micro-batch.
    """

    def __init__(self, context: OperatorContext, *settings: Any) -> None:
        super().__init__(context, *settings)
        assert context.splits is not None, f"{context.name} must run in the tasks that have the rows of a source"
        self._splits = context.splits
        self._latest: dict[str, int] = {}

    def _note(self, times: pa.Array) -> None:
        time, split = latest(times), self._splits.current
        self._latest[split] = max(time, self._latest.get(split, time))

    def split_times(self) -> Mapping[str, int]:
        """Return the watermark of each split that had rows."""
        return {split: time - self._delay for split, time in self._latest.items()}
