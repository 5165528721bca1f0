"""Windows of event time, and the one window of all rows, whose results come by triggers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.panes import Panes, Trigger
from dataflow.contracts.windows import EventTime, Window
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers
from operators.stateful.columns import key_columns
from operators.stateful.entries import entry_rows, weights_of
from operators.stateful.late_rows import LateRows
from operators.stateful.window_numbers import numbering
from operators.windows.triggered import TriggeredOperator

__all__ = ["TriggeredGlobalOperator", "TriggeredWindowOperator"]


class TriggeredWindowOperator(TriggeredOperator):
    """Windows of event time that are complete, and over, by the watermark."""

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        emit: Emit,
        early: Trigger | None,
        late: Trigger | None,
        panes: Panes,
        time: EventTime,
        window: Window,
        lateness: int,
    ) -> None:
        self._numbering = numbering(window, time, mergeable=False)
        self._lateness = lateness
        super().__init__(context, keys, aggregations, emit, early, late, panes, self._numbering.key_fields)
        self._late_rows = LateRows(context, self._passed, lateness, keys)

    def _entries(self, batch: pa.RecordBatch, out: Out) -> tuple[pa.RecordBatch, Numbers, Numbers] | None:
        batch, entries = self._late_rows.split_numbers(batch, self._numbering, out)
        if entries is None:
            return None
        rows = entry_rows(batch, entries, self._keys, self._columns.names, self._row_keys)
        return rows, entries.numbers, weights_of(batch, entries)

    def _complete(self) -> int:
        return self._numbering.over(self._passed.reached)

    def _over(self) -> int:
        return self._numbering.over(self._passed.less(self._lateness))

    def _labels(self, keys: Sequence[pa.Array], numbers: Numbers) -> list[pa.Array]:
        kind = self._context.output_schema.field("window_start").type
        starts = np.asarray(keys[-1]) if self._numbering.key_fields else None
        return [self._numbering.unit.edges(times, kind) for times in self._numbering.edges(numbers, starts)]

    def _check_numbers(self, numbers: pa.Array) -> None:
        self._numbering.check(numbers)


class TriggeredGlobalOperator(TriggeredOperator):
    """One window of all rows of a key, with the number 0, which is complete at the end of the input."""

    def _entries(self, batch: pa.RecordBatch, out: Out) -> tuple[pa.RecordBatch, Numbers, Numbers]:
        rows = batch.select(self._columns.names)
        if not self._keys:
            rows = batch.select(self._columns.names).append_column(self._row_keys.field(0), key_columns(batch, ())[0])
        return rows, np.zeros(batch.num_rows, np.int64), np.ones(batch.num_rows, np.int64)

    def _complete(self) -> int:
        return 0 if self._passed.watermark == MAX_WATERMARK else -1

    def _over(self) -> int:
        return self._complete()

    def _labels(self, keys: Sequence[pa.Array], numbers: Numbers) -> list[pa.Array]:
        return [to_array(numbers)]
