"""Aggregates per key and window of a kind whose windows merge: those of one key that overlap or touch become one.

A row is late if its own window, before it merges with anything, is over. A window comes out when it is complete for the
watermark less the lateness, so it comes out once, and the watermark passed on is held back by the lateness. A row whose
window touches one that came out begins a new one.

State: the rows, by key and end of their own window, with its start and the order of their arrival. ``_windows`` has the
merged windows of each key; it is made of the rows after a restore. Windows of one key are apart, so when some are
complete at C, their rows are among those with an end up to C, and other rows among these are of a window that is still
open. The work at a watermark follows the keys that are due: those with a window that may be complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.windows import EventTime, Window
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregates import identities
from dataflow.planning.evolved_aggregates import ROWS, kept_columns
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import GREATEST, LEAST, Numbers
from dataflow.state.dictionaries import decoded, decoded_schema, key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.partials import folded_columns
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.sums import overflow_of
from operators.stateful.columns import key_columns, state_keys
from operators.stateful.late_rows import LateRows
from operators.stateful.nested_columns import NestedColumns
from operators.stateful.times import edges
from operators.stateful.window_numbers import ByWindow
from operators.windows.intervals import Intervals, Owners, merged
from operators.windows.session_dues import SessionDues

__all__ = ["MergingWindowOperator"]

CHUNK = 16_384
"""The most keys whose complete windows come out together."""
_START, _ARRIVAL = "barrierflow:window_start", "barrierflow:arrival"


class MergingWindowOperator(Stateful):
    """Final results of windows that merge; see the module's text.

    Raises: ContractViolation for wrong results of the kind; ValueError for a null event time; OverflowError for a time
    out of range, or a sum of integers that exceeds 64 bits.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        window: Window,
        lateness: int,
        aggregations: Sequence[Aggregation],
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._keys = list(keys)
        self._numbering = ByWindow(window, time)
        self._lateness = lateness
        self._aggregations = list(aggregations)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        rows = folded_columns(schema, (), aggregations)
        dictionaries = [field.name for field in rows if pa.types.is_dictionary(field.type)]
        self._rows = decoded_schema(rows, dictionaries)
        kept = [*self._rows, pa.field(_START, pa.int64()), pa.field(_ARRIVAL, pa.int64())]
        self._columns = NestedColumns(pa.schema(kept))
        self._state = KeyedState(self._user_keys, pa.schema([]), rows=self._columns.kept)
        self._windows = KeyedState(
            self._user_keys, pa.schema({"used": pa.bool_()}), rows=pa.schema({_START: pa.int64()})
        )
        nested = [name for name in self._columns.kept.names if name not in self._columns.schema.names]
        self._owners = {
            identity: [name for name in self._columns.kept.names if name in a.columns()] + nested
            for identity, a in zip(identities(self._aggregations), self._aggregations, strict=True)
        }
        self._dues = SessionDues()
        self._arrival = 0
        self._passed = Passed()
        self._late = LateRows(context, self._passed, lateness, keys)
        Records(self._aggregations, self._rows, context.name)  # checks the arguments

    @property
    def kernels(self) -> Sequence[str]:
        records = Records(self._aggregations, self._rows, self._context.name)
        return (*self._state.kernels, *self._windows.kernels, *self._dues.kernels, *records.kernels)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        batch, entries = self._late.split_numbers(batch, self._numbering, out)
        if entries is None:
            return
        if entries.rows is not None:
            batch = batch.take(to_array(entries.rows))
        assert entries.starts is not None, "each window has a start"
        arrivals = np.arange(self._arrival, self._arrival + batch.num_rows)
        self._arrival += batch.num_rows
        keys = key_columns(batch, self._keys)
        columns = [decoded(batch.column(name)) for name in self._rows.names]
        rows = pa.RecordBatch.from_arrays(
            [*columns, to_array(entries.starts), to_array(arrivals)], schema=self._columns.schema
        )
        self._keep(keys, entries.numbers, rows)
        self._add(keys, entries.starts, entries.numbers)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the windows that the watermark, less the lateness, completes."""
        self._passed.advance(watermark)
        complete = min(self._numbering.over(self._passed.less(self._lateness)), MAX_WATERMARK - 1)  # ends are below it
        return self._fire(complete, out) if self._windows.live else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._lateness

    # --- rows and windows

    def _keep(self, keys: Sequence[pa.Array], ends: Numbers, rows: pa.RecordBatch) -> None:
        slots, _ = self._state.insert(list(keys))
        self._state.append(slots.copy(), ends, self._columns.encode(rows))

    def _add(self, keys: Sequence[pa.Array], starts: Numbers, ends: Numbers) -> None:
        """Merge windows of rows with those of their keys, and set when the keys are due."""
        slots = self._windows.insert(list(keys))[0].copy()
        touched, owners = np.unique(slots, return_inverse=True)
        known = self._known(touched, GREATEST)
        both = merged(
            np.concatenate([known.owners, owners.astype(np.int64)]),
            np.concatenate([known.starts, starts]),
            np.concatenate([known.ends, ends]),
        )
        self._windows.drop_before(GREATEST, touched)
        self._set(touched, both)

    def _known(self, slots: Slots, below: int) -> Intervals:
        """Return the windows of ``slots`` that end before ``below``; the owner is the place in ``slots``."""
        offsets, numbers = self._windows.rows_between(slots, LEAST, below)
        ends = self._windows.row_records[numbers, TIME]
        starts = to_numbers(self._windows.read_rows(numbers).column(_START))
        return Intervals(np.repeat(np.arange(len(slots)), np.diff(offsets)), starts, ends)

    def _set(self, slots: Slots, windows: Intervals) -> None:
        """Keep ``windows`` of ``slots``, which have no others before these, and set when they are due."""
        if not len(windows):
            return
        columns = pa.RecordBatch.from_arrays([to_array(windows.starts)], schema=pa.schema({_START: pa.int64()}))
        self._windows.append(slots[windows.owners], windows.ends, columns)
        first = np.flatnonzero(np.diff(windows.owners, prepend=-1))
        self._dues.set(slots[windows.owners[first]], windows.ends[first])

    # --- emission

    def _fire(self, complete: int, out: Out) -> Iterator[None]:
        while len(slots := self._dues.take(complete, CHUNK)):
            windows = self._known(slots, complete + 1)
            if len(windows):
                self._emit(self._windows.keys(slots), windows, complete, out)
                self._windows.drop_before(complete + 1, slots)
            left = self._known(slots, GREATEST)
            self._dues.set(slots[left.owners], left.ends)
            self._windows.delete(np.delete(slots, left.owners))
            yield

    def _emit(self, keys: list[pa.Array], windows: Intervals, complete: int, out: Out) -> None:
        """Emit the results of ``windows``, all that the keys have up to ``complete``, and remove their rows."""
        held = self._state.find(keys)
        offsets, numbers = self._state.rows_between(held, LEAST, complete + 1)
        owners: Owners = np.repeat(np.arange(len(held)), np.diff(offsets))
        ends, rows = self._ends(numbers), self._columns.decode(self._state.read_rows(numbers))
        at = windows.holding(owners, to_numbers(rows.column(_START)), ends)
        chosen = np.flatnonzero(at >= 0)
        chosen = chosen[np.argsort(to_numbers(rows.column(_ARRIVAL))[chosen], kind="stable")]
        records = Records(self._aggregations, self._rows, self._context.name)
        try:
            records.fold(
                rows.select(self._rows.names).take(to_array(chosen)), at[chosen].astype(np.int32), len(windows)
            )
        except SumOverflow as error:
            key = [column.take(to_array(owners[chosen[error.row : error.row + 1]])) for column in keys]
            raise overflow_of(self._context.name, error, key, self._user_keys) from error
        schema = self._context.output_schema
        kind = schema.field("window_start").type
        of = to_array(windows.owners)
        columns = [
            *[column.take(of) for column in keys[: len(self._keys)]],
            edges(windows.starts, kind),
            edges(windows.ends, kind),
            *records.read(np.arange(len(windows), dtype=np.int32)),
        ]
        out.emit(pa.RecordBatch.from_arrays(columns, schema=schema))
        open_ = np.flatnonzero(at < 0)
        again = [column.take(to_array(owners[open_])) for column in keys], ends[open_], rows.take(to_array(open_))
        self._state.drop_before(complete + 1, held)
        if len(open_):
            self._keep(*again)

    def _ends(self, numbers: Slots) -> Numbers:
        """Return the ends of the windows of rows, by their numbers."""
        return np.asarray(self._state.row_records[numbers, TIME])

    # --- state

    def state(self) -> Mapping[str, Piece]:
        log = Log(self._state, len(self._user_keys), counts=[_ARRIVAL], owners=self._owners)
        return {"time": self._passed, "rows": log}

    def converted(self, stored: Snapshot) -> Snapshot:
        return kept_columns(stored, "rows", self._state.stored[ROWS].names)

    def restored(self) -> None:
        slots = self._state.slots
        for begin in range(0, len(slots), CHUNK):
            some = slots[begin : begin + CHUNK]
            offsets, numbers = self._state.rows_between(some, LEAST, GREATEST)
            if not len(numbers):
                continue
            rows = self._columns.decode(self._state.read_rows(numbers))
            owners = np.repeat(np.arange(len(some)), np.diff(offsets))
            keys = [column.take(to_array(owners)) for column in self._state.keys(some)]
            self._add(keys, to_numbers(rows.column(_START)), self._ends(numbers))
            self._arrival = max(self._arrival, int(to_numbers(rows.column(_ARRIVAL)).max()) + 1)
