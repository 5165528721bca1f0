"""Sliding windows: one result for each row, over the rows of its key in (time - period, time].

A row waits until the watermark W is above its time, because rows of the same time count, and may come while W is at it.
So what is passed on may be W: rows that wait are at W or after it, and none of them is late downstream. A row is late
if its time is below W less the allowed lateness. Between the two, it changes results that were shown: with signed
changes they are taken back (``late_results``). Such results have the times of their rows, so the watermark downstream
is held back by the lateness.

State: the rows of the last period and lateness, and those that wait, by key; the watermark. Everything else (which rows
wait, and what is merged of the others, see ``running``) is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregates import identities
from dataflow.planning.evolved_aggregates import ROWS, kept_columns
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers, plain
from dataflow.state.dictionaries import decoded, key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from dataflow.state.ranges import SEQUENCE, SLOT, TimeRanges
from operators.aggregation.records import SumOverflow
from operators.aggregation.sums import overflow_of
from operators.stateful.columns import key_columns, state_keys
from operators.stateful.late_rows import LateRows
from operators.stateful.time_units import TimeUnit
from operators.stateful.times import time_column
from operators.windows.late_results import LateResults
from operators.windows.row_aggregates import RowAggregates
from operators.windows.running import Running

__all__ = ["SlidingAggregateOperator"]

_CHUNK = 32_768
"""The rows of an emitted batch, more only if they have the same time."""
_LEAST, _LARGEST = -(2**63), MAX_WATERMARK


class SlidingAggregateOperator(Stateful):
    """Aggregates over sliding windows; see the module's text. Times in the state are microseconds, or nanoseconds of a
    column with this unit.

    Args:
        keys: the key columns; none: all rows together.
        time: the event time.
        period: the length of a window in microseconds.
        lateness: how long late rows are taken, in microseconds.
        aggregations: the aggregates.
        signed: whether rows are emitted with ``change``, +1 or -1.

    Raises: SchemaMismatch when built; ValueError for a null event time; OverflowError for a time out of range, or when
    a sum of integers exceeds 64 bits.
    """

    kernels_of_rows = ("operators.kernels.sliding", "operators.kernels.merging")

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        period: int,
        lateness: int,
        aggregations: Sequence[Aggregation],
        signed: bool,  # noqa: FBT001
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._keys = list(keys)
        self._time = time
        self._lateness = lateness
        self._unit = TimeUnit.of_time(schema, time)
        self._period = period * self._unit.per_microsecond
        self._signed = signed
        results = len(aggregations) + signed
        self._output = context.output_schema
        self._rows = pa.schema([self._output.field(i) for i in range(len(self._output) - results)])
        self._key_schema = state_keys(key_schema(self._rows, keys))
        values = [field for field in self._rows if field.name not in self._keys]
        self._state = KeyedState(self._key_schema, pa.schema([]), rows=pa.schema(values))
        self._owners = {
            identity: [name for name in a.columns() if name not in self._keys]
            for identity, a in zip(identities(aggregations), aggregations, strict=True)
        }
        self._aggregates = RowAggregates(aggregations, self._rows, time.column, context.name)
        parts = (self._state, self._aggregates, self._period, self._read, self._overflow)
        self._running, self._late_results = Running(*parts), LateResults(*parts)
        self._waiting = TimeRanges()
        self._passed = Passed()
        self._late = LateRows(context, self._passed, lateness, keys)

    @property
    def kernels(self) -> Sequence[str]:
        return (
            *self.kernels_of_rows,
            *self._state.kernels,
            *self._aggregates.records.kernels,
            *self._running.kernels,
        )

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        batch, times = self._late.split_times(batch, self._times(batch), self._unit, out)
        if not batch.num_rows:
            return None
        keys = [batch.column(key) for key in self._keys] or key_columns(batch, ())
        slots, _ = self._state.insert(keys)
        slots = slots.copy()
        columns = {
            field.name: decoded(plain(batch.column(field.name))) for field in self._rows if field.name not in self._keys
        }
        numbers = self._state.append(slots, times, pa.record_batch(columns))
        now = self._unit.first(self._passed.reached)
        waits = times >= now
        self._wait(numbers[waits])
        if waits.all():
            return None
        self._running.forget(slots[~waits])
        return self._change(numbers, now, out)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the results of the rows before the watermark, in the order of time, and drop rows that none needs."""
        self._passed.advance(watermark)
        return self._fire(self._unit.first(watermark), out)

    def held(self, watermark: int) -> int:
        """Return the watermark before which no result changes any more."""
        return watermark - self._lateness

    # --- rows

    def _times(self, batch: pa.RecordBatch) -> Numbers:
        column = time_column(batch, self._time.column, self._context.name)
        where = f"{self._context.name}: event times in {self._time.column!r} are out of range for windows of sliding"
        try:
            times = self._unit.times(column, self._time.back)
        except OverflowError as error:
            raise OverflowError(f"{where}: {error}; filter such rows out") from error
        if times.min() <= _LEAST + self._period:
            raise OverflowError(f"{where}: a window does not fit into 64 bits; filter such rows out")
        return times

    def _wait(self, numbers: Slots) -> None:
        records = self._state.row_records
        entries = np.stack([records[numbers, TIME], records[numbers, SEQUENCE], numbers.astype(np.int64)], axis=1)
        self._waiting.enter(entries, records)

    def _read(self, numbers: Slots) -> pa.RecordBatch:
        """Return rows with all columns of the input."""
        values = self._state.read_rows(numbers)
        keys = self._state.keys(self._state.row_records[numbers, SLOT].astype(np.int32)) if self._keys else []
        columns = dict(zip(values.schema.names, values.columns, strict=True)) | dict(zip(self._keys, keys, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self._rows.names], schema=self._rows)

    # --- results

    def _fire(self, now: int, out: Out) -> Iterator[None]:
        while len(numbers := self._due(now)):
            rows = self._read(numbers)
            self._emit(rows, self._running.results(numbers, rows), np.ones(len(numbers), np.int8), out)
            yield
        closed = self._unit.first(self._passed.less(self._lateness))
        self._running.leave(self._state.take_before(max(closed - self._period + 1, _LEAST)))

    def _due(self, now: int) -> Slots:
        """Take the next rows before ``now`` in the order of time, with all rows of the last one's time."""
        if now == _LEAST:
            return np.empty(0, np.int32)
        records = self._state.row_records
        due = self._waiting.take(now - 1, _CHUNK, records)
        if len(due):
            rest = self._waiting.take(int(due[-1, 0]), len(records), records)
            due = np.concatenate([due, rest])
        return due[:, 2].astype(np.int32)

    def _change(self, numbers: Slots, now: int, out: Out) -> Iterator[None]:
        for changed, results, weights in self._late_results.changes(numbers, now):
            self._emit(self._read(changed), results, weights, out)
            yield

    def _emit(self, rows: pa.RecordBatch, results: list[pa.Array], weights: npt.NDArray[np.int8], out: Out) -> None:
        change = [to_array(weights)] if self._signed else []
        out.emit(pa.RecordBatch.from_arrays([*rows.columns, *results, *change], schema=self._output))

    def _overflow(self, error: SumOverflow, slot: int) -> OverflowError:
        key = self._state.keys(np.array([slot], np.int32))
        return overflow_of(self._context.name, error, key, self._key_schema)

    # --- state

    def state(self) -> Mapping[str, Piece]:
        return {"time": self._passed, "state": Log(self._state, len(self._key_schema), owners=self._owners)}

    def converted(self, stored: Snapshot) -> Snapshot:
        return kept_columns(stored, "state", self._state.stored[ROWS].names)

    def restored(self) -> None:
        slots = self._state.slots
        _, waiting = self._state.rows_between(slots, self._unit.first(self._passed.reached), _LARGEST)
        records = self._state.row_records
        self._wait(waiting[np.lexsort((records[waiting, SEQUENCE], records[waiting, TIME]))])
        self._running.forget(slots)
