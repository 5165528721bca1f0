"""Aggregates per key and window of event time, emitted when the watermark completes the window.

A window is *over* when it is complete for the watermark less the allowed lateness. A row is late if all of its windows
are over when its batch is processed, and partly late if some are: it is then folded for the others. If a window is
complete but not over, each batch with rows for it emits the changed results again.

Windows that emit updates have ``lateness``. Windows that emit final results with allowed lateness have it as ``lag``
instead: they go by the watermark less ``lag``, and hold back the watermark downstream by that much. So a row is late at
the same watermark as with updates, each window is emitted once, when it accepts no more rows, and its results are on
time for a window downstream.

State: panes (see ``panes``) of records by slice or by window (``operators.stateful.window_numbers``), and the
watermark. Without it, a window would fire twice after a restore, and late rows would count as on time.
``emission`` makes results of the panes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful, naming_state
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.windows import EventTime, Sliced, Window
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregates import identities
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.arrays import LEAST
from dataflow.state.dictionaries import key_schema
from dataflow.state.keyed import index_kernels
from dataflow.state.keyed_state import KeyedState
from dataflow.untrusted import Time, parsed
from operators.aggregation.partials import folded_columns, is_by_window, merge_column, with_arrivals
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of
from operators.stateful.columns import RECORD, WINDOW, is_partial, state_keys
from operators.stateful.entries import entry_rows
from operators.stateful.late_rows import LateRows
from operators.stateful.window_numbers import BySlice, ByWindow, Numbered, numbering
from operators.windows.emission import MergedResults, Part, Results
from operators.windows.panes import LivePanes, Pane
from operators.windows.slices_to_windows import by_windows
from operators.windows.slot_results import SlotResults

__all__ = ["WindowAggregateOperator"]


class WindowAggregateOperator(Stateful):
    """Windowed aggregates; see the module's text, and ``WindowedStream.agg`` for the output.

    Takes plain rows, or partial records (``operators.aggregation.combine``), each counted as the rows it holds.

    Raises: SchemaMismatch when built; ValueError for a null event time; OverflowError when a sum of integers exceeds 64
    bits, naming key and column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        window: Window,
        lateness: int,
        aggregations: Sequence[Aggregation],
        lag: int = 0,
        emit: Emit = Emit.FINAL,
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._lateness = lateness
        self._lag = lag
        self._signed = emit is Emit.CHANGES
        self._aggregations = list(aggregations)
        self._keys = list(keys)
        self._rows = folded_columns(schema, keys, aggregations)
        self._merged_by = None
        mergeable = self._new_records().mergeable and not is_by_window(context.restored)
        self._numbering = numbering(window, time, mergeable=mergeable)
        self._merged_by = merge_column(self._numbering)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        self._key_schema = pa.schema([*self._user_keys, *self._numbering.key_fields])
        self._panes = LivePanes(self._key_schema, self._numbering, self._aggregations, self._rows, context.name)
        self._goes_by_arrival = self._new_records().goes_by_arrival
        self._next_arrival = 0
        self._results = self._new_results()
        self._passed = Passed()
        self._late = LateRows(context, self._passed, lag + lateness, keys)

    def _new_records(self) -> Records:
        return Records(self._aggregations, self._rows, self._context.name, merged_by=self._merged_by)

    def _new_results(self) -> Results:
        if self._merged_by is not None:
            return MergedResults(self._panes, self._numbering, self._key_schema, self._new_records, self._overflow)
        return SlotResults(self._panes, self._numbering, self._new_records())

    @property
    def kernels(self) -> Sequence[str]:
        return (
            "operators.kernels.windows",
            "dataflow.state.kernels.partition",
            *index_kernels(self._key_schema.append(pa.field(WINDOW, pa.int64()))),
            *KeyedState(self._key_schema, self._new_records()).kernels,
            *self._results.kernels,
        )

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        batch, entries = self._late.split_numbers(batch, self._numbering, out)
        if entries is None:
            return None
        rows = entry_rows(batch, entries, self._keys, self._rows.names, self._key_schema)
        if not self._lateness or self._passed.watermark is None:
            self._fold(rows, entries)
            return None
        watermark, closed, results = self._passed.less(self._lag), self._closed(), self._results
        begun = self._numbering.begun(watermark)
        is_late = entries.low <= begun
        if is_late and self._signed:
            results.keep([rows.column(name) for name in self._key_schema.names], entries.numbers, closed, watermark)
        panes = [pane for pane in self._fold(rows, entries) if pane.first <= begun]
        if not is_late:
            return None
        again = results.changes if self._signed else results.again
        return self._emit(again(panes, closed, watermark), out)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the windows that the watermark, less ``lag``, completes, in order of time."""
        before = self._passed.less(self._lag)
        self._passed.advance(watermark)
        if not len(self._panes):
            return None
        return self._fire(None if before == LEAST else before, out)

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._lag

    def _closed(self) -> int:
        """Return the watermark at which windows are over when they are complete."""
        return self._passed.less(self._lag + self._lateness)

    # --- rows

    def _fold(self, rows: pa.RecordBatch, entries: Numbered) -> list[Pane]:
        """Fold rows or records, one for each entry; return the panes that hold them."""
        panes = []
        names = self._key_schema.names
        if self._goes_by_arrival:
            assert not is_partial(rows.schema), "records of rows do not say when each arrived"
            rows = with_arrivals(rows, len(self._rows), self._next_arrival)
            self._next_arrival += rows.num_rows
        for pane, part, numbers in self._panes.deal(rows, entries.numbers, entries.low, entries.high):
            known = len(pane)
            slots = pane.slots([part.column(name) for name in names], numbers)
            self._results.changing(pane, slots, known, numbers)
            try:
                if is_partial(part.schema):
                    pane.records.merge(part.column(RECORD), slots)
                else:
                    pane.records.fold(part, slots)
            except SumOverflow as error:
                key, _ = pane.keys(slots[error.row : error.row + 1])
                raise self._overflow(error, key) from error
            self._results.changed(pane, slots, numbers)
            panes.append(pane)
        return panes

    def _overflow(self, error: SumOverflow, key: Sequence[pa.Array]) -> OverflowError:
        """Return the error for a sum of ``key``, one row of the key columns of the state."""
        return overflow_of(self._context.name, error, key[: len(self._user_keys)], self._user_keys)

    # --- emission

    def _fire(self, before: int | None, out: Out) -> Iterator[None]:
        yield from self._emit(self._results.fire(before, self._passed.less(self._lag)), out)
        self._panes.drop(self._numbering.over(self._closed()))

    def _emit(self, parts: Iterator[Part], out: Out) -> Iterator[None]:
        schema = self._context.output_schema
        kind = schema.field("window_start").type
        for part in parts:
            bounds = [self._numbering.unit.edges(times, kind) for times in (part.starts, part.ends)]
            columns = [*part.keys[: len(self._keys)], *bounds, *part.values]
            if self._signed:
                weights = np.ones(len(part.ends), np.int8) if part.weights is None else part.weights
                columns.append(to_array(weights))
            out.emit(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield

    # --- state

    def state(self) -> Mapping[str, Piece]:
        low = self._numbering.low(WINDOW, self._closed())  # the log also holds windows that are over
        panes = self._panes
        log = Log(panes, len(self._user_keys), low=low, owners=panes.owners, initial=panes.initial)
        return {"time": self._passed, "state": log}

    def converted(self, stored: Snapshot) -> Snapshot:
        """Return the state by window, if it was by slice, and an aggregate was added whose records cannot be merged."""
        by_window = self._numbering
        if not (isinstance(by_window, ByWindow) and isinstance(by_window.window, Sliced)):
            return stored
        if is_by_window(stored) or "state" not in stored.logs:
            return stored
        named = zip(self._aggregations, identities(self._aggregations), strict=True)
        known = [aggregation for aggregation, identity in named if identity not in stored.added]
        slices = BySlice(by_window.window, by_window.time)
        with naming_state(f"{self._context.name}: state", self):
            passed = Passed(parsed(Time | None, stored.values["time"], "the watermark"))
            low = by_window.low(WINDOW, passed.less(self._lag + self._lateness))
            rows = by_windows(stored, slices, by_window, self._user_keys, known, self._rows, self._context.name)
        columns = [name for name in rows.column_names if name in self._panes.stored["keys"].names]
        parts = [{"keys": rows.select(columns)}]
        rule = msgspec.structs.replace(stored.rules["state"], low=low)
        return replace(stored, logs={**stored.logs, "state": parts}, rules={**stored.rules, "state": rule})

    def restored(self) -> None:
        if self._goes_by_arrival:
            self._next_arrival = max([pane.next_arrival() for pane in self._panes], default=0)
