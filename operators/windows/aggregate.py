"""Aggregates per key and window of event time, emitted when the watermark reaches the end of the window.

A row is late if its window's end plus the allowed lateness is at or below the watermark when its batch is processed. If
a window is complete but still accepts rows, each batch with such rows emits the changed results again.

Windows that emit updates have ``lateness``. Windows that emit final results with allowed lateness have it as ``lag``
instead: they go by the watermark less ``lag``, and hold back the watermark downstream by that much. So a row is late at
the same watermark as with updates, each window is emitted once, when it accepts no more rows, and its results are on
time for a window downstream.

State: panes (see ``panes``) and the watermark that they go by. Without it, a window would fire twice after a restore,
and late rows would count as on time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.source import Json
from dataflow.contracts.windows import EventTime, Tumbling
from dataflow.errors import OTHER_PIPELINE, CheckpointMismatch
from dataflow.expressions import Aggregation
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import index_kernels
from dataflow.state.keyed_state import KeyedState
from dataflow.state.parts import check_columns, owned
from dataflow.untrusted import Time, parsed
from operators.aggregation.partials import OPEN, RECORD, ROWS, WINDOW, check_windows, folded_columns, is_partial
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.restoring import first_format, restoring
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of
from operators.aggregation.window_times import Numbers, edges, window_numbers
from operators.windows.panes import Pane, Panes

__all__ = ["WindowAggregateOperator"]

CHUNK = 65_536
"""The largest batch, in rows, of an emission."""


class WindowAggregateOperator(Operator):
    """Windowed aggregates; see the module's text, and ``WindowedStream.agg`` for the output.

    Takes plain rows, or partial records (``operators.aggregation.combine``), each counted as the rows it holds.

    Raises: SchemaMismatch when built; ValueError for a null event time; OverflowError when a sum of integers exceeds 64
    bits, naming key and column; CheckpointMismatch for the state of another aggregate.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        window: Tumbling,
        lateness: int,
        aggregations: Sequence[Aggregation],
        lag: int = 0,
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._window = window
        self._lateness = lateness
        self._lag = lag
        self._aggregations = list(aggregations)
        self._keys = list(keys)
        self._time = time
        self._key_schema = key_schema(context.output_schema, keys)
        self._rows = folded_columns(schema, keys, aggregations)
        self._panes = Panes(self._key_schema, self._aggregations, self._rows, context.name)
        self._watermark: int | None = None
        if context.restored is not None:
            self._restore(context.restored)

    @property
    def kernels(self) -> Sequence[str]:
        return (
            "operators.kernels.windows",
            "dataflow.state.kernels.partition",
            *index_kernels(self._key_schema.append(pa.field(WINDOW, pa.int64()))),
            *KeyedState(self._key_schema, Records(self._aggregations, self._rows, self._context.name)).kernels,
        )

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        if is_partial(batch.schema):
            numbers = to_numbers(batch.column(WINDOW))
            low, high = int(numbers.min()), int(numbers.max())
            rows = batch.select([*self._keys, RECORD, ROWS])
            self._context.tally.lateness.checked += int(np.sum(to_numbers(rows.column(ROWS))))
        else:
            times = batch.column(self._time.column)
            if times.null_count:
                raise ValueError(
                    f"{self._context.name}: {times.null_count} event times are null in {self._time.column!r}; "
                    "filter such rows out, or give on_error= to with_watermark"
                )
            numbers, low, high = window_numbers(times, self._window, self._time.back)
            rows = batch
            self._context.tally.lateness.checked += rows.num_rows
        if self._watermark is not None and low <= (gone := self._window.complete(self._watermark - self._lateness)):
            rows, numbers = self._without_late(rows, numbers, gone, self._watermark, out)
            if not rows.num_rows:
                return None
            low = int(numbers.min())
        if not is_partial(batch.schema):
            rows = rows.select(self._rows.names)
        changed = [pane for pane in self._fold(rows, numbers, low, high) if self._has_fired(pane)]
        return self._emit_again(changed, out) if changed else None

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the windows that end at or before the watermark, less ``lag``, in order of time."""
        watermark = watermark if watermark == MAX_WATERMARK else self.held(watermark)
        before, self._watermark = self._watermark, watermark
        if not len(self._panes):
            return None
        return self._fire(before, watermark, out)

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._lag

    def snapshot(self) -> Snapshot:
        values: dict[str, Json] = {"watermark": self._watermark, "aggregations": self._described()}
        if self._watermark is not None:  # the tables also hold windows before it, which nobody needs any more
            values[OPEN] = self._window.complete(self._watermark - self._lateness) + 1
        return Snapshot(values, logs={"state": self._panes})

    # --- rows

    def _without_late(
        self, rows: pa.RecordBatch, numbers: Numbers, gone: int, watermark: int, out: Out
    ) -> tuple[pa.RecordBatch, Numbers]:
        """Remove the rows of windows up to ``gone``, count how late they are, and emit them unless they are records."""
        late = numbers <= gone
        lost = rows.filter(to_array(late))
        window, tally = self._window, self._context.tally
        lateness = watermark - self._lateness - (numbers[late] * window.size + window.offset + window.size)
        if is_partial(rows.schema):
            counts = to_numbers(lost.column(ROWS))
            tally.late += int(np.sum(counts))
            tally.lateness.add(lateness, counts)
        else:
            tally.late += lost.num_rows
            tally.lateness.add(lateness)
            out.emit(lost, LATE)
        return rows.filter(to_array(~late)), numbers[~late]

    def _fold(self, rows: pa.RecordBatch, numbers: Numbers, low: int, high: int) -> Iterator[Pane]:
        for pane, part, windows in self._panes.deal(rows, numbers, low, high):
            slots = pane.slots([part.column(key) for key in self._keys], windows)
            try:
                if is_partial(part.schema):
                    pane.records.merge(part.column(RECORD), slots)
                else:
                    pane.records.fold(part, slots)
            except SumOverflow as error:
                key, _ = pane.keys(slots[error.row : error.row + 1])
                raise overflow_of(self._context.name, error, key, self._key_schema) from error
            yield pane

    # --- emission

    def _has_fired(self, pane: Pane) -> bool:
        return self._watermark is not None and pane.first <= self._window.complete(self._watermark)

    def _fire(self, before: int | None, watermark: int, out: Out) -> Iterator[None]:
        window = self._window
        last = window.complete(watermark)
        for pane in list(self._panes):
            if pane.first > last:
                break
            first = pane.first if before is None else max(pane.first, window.complete(before) + 1)
            if first < pane.stop:
                yield from self._emit(pane, pane.within(first, last), out)
                pane.forget_touched()
        self._panes.drop(window.complete(watermark - self._lateness))

    def _emit_again(self, panes: Sequence[Pane], out: Out) -> Iterator[None]:
        """Emit the results that the last batch changed in windows already emitted."""
        assert self._watermark is not None, "nothing has fired without a watermark"
        last = self._window.complete(self._watermark)
        for pane in panes:
            touched = pane.records.touched.copy()
            pane.forget_touched()
            _, numbers = pane.keys(touched)
            yield from self._emit(pane, touched[numbers <= last], out)

    def _emit(self, pane: Pane, slots: Slots | range, out: Out) -> Iterator[None]:
        schema, window = self._context.output_schema, self._window
        kind = schema.field("window_start").type
        for start in range(0, len(slots), CHUNK):
            chosen = slots[start : start + CHUNK]
            columns, numbers = pane.keys(chosen)
            starts = numbers * window.size + window.offset
            bounds = [edges(starts, kind), edges(starts + window.size, kind)]
            read = pane.records.read(_as_slots(chosen))
            out.emit(pa.RecordBatch.from_arrays([*columns, *bounds, *read], schema=schema))
            yield

    # --- restoring

    def _described(self) -> list[str]:
        return [str(self._window), *(aggregation.fingerprint() for aggregation in self._aggregations)]

    def _restore(self, restored: Snapshot) -> None:
        values: Any = restored.values
        if not values:
            return
        if values["aggregations"] != self._described():
            raise CheckpointMismatch(
                f"{self._context.name}: the checkpoint holds {values['aggregations']}, the pipeline "
                f"{self._described()}; {OTHER_PIPELINE}"
            )
        self._watermark = parsed(Time | None, values["watermark"], f"{self._context.name}: the watermark")
        log: Any = restored.logs.get("state", ())
        parts = [part["keys"] for part in log]
        if restored.tables:
            parts = [first_format(restored.tables["keys"], restored.tables["records"], self._context.name)["keys"]]
        with restoring(self._context.name):
            self._panes.restore([self._part(part) for part in parts])

    def _part(self, part: pa.Table) -> pa.Table:
        """Return the rows of a part that are of this subtask and of windows that are not complete."""
        check_columns(part, self._panes.stored)
        keys = len(self._key_schema)
        part = owned(part, keys, self._context.key_groups, self._context.max_key_groups)
        numbers = part.column(keys)
        check_windows(numbers, self._window.size, self._context.name)
        if self._watermark is None:
            return part
        return part.filter(to_array(to_numbers(numbers) > self._window.complete(self._watermark - self._lateness)))


def _as_slots(slots: Slots | range) -> Slots:
    """Return ``slots`` as an array; ``np.arange`` is faster than numpy's conversion, which iterates over the range."""
    return np.arange(slots.start, slots.stop, dtype=np.int32) if isinstance(slots, range) else slots
