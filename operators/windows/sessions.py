"""Aggregates per key and session: rows of a key that are at most a gap apart, whatever the order in which they come.

Let W be the watermark, and E the end of a session: its last time plus the gap. Rows at time E still belong to it, so a
session is complete when W is above E. A row at time t is late if t + gap + lateness is below W, which is decided
before it merges with anything. So rows may merge with a session until W is above E + gap + lateness.

- ``Emit.FINAL`` without lateness: a session comes out when it is complete. Its last cell is kept, so that a row that
  meets it is noticed: the row starts a session of its own, and ``split_sessions`` counts the one that came out.
- ``Emit.FINAL`` with lateness: a session comes out once, when no row can merge with it any more. The watermark passed
  on is held back so far that no session is late downstream.
- ``Emit.CHANGES``: a session comes out when it is complete, and is kept until no row can merge with it. If one does,
  the row of the session is taken back.

State: cells (``session_cells``), marked as shown if their session came out, and the watermark. A cell that is due
either ends its session, or is joined to the next cell; so the work at a watermark follows the cells that are due.
Times of cells are in the unit of the event time (``operators.stateful.time_units``), due times in microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Fixed, Log, Passed, Piece, Stateful, naming_state
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.parts import arranged
from operators.aggregation.partials import folded_columns
from operators.aggregation.records import SumOverflow
from operators.aggregation.show_state import shown_values
from operators.aggregation.sums import overflow_of
from operators.stateful.changes import among, changes
from operators.stateful.columns import key_columns, state_keys
from operators.stateful.late_rows import LateRows
from operators.stateful.time_units import TimeUnit
from operators.stateful.times import time_column
from operators.windows.row_cells import make_cells
from operators.windows.session_cells import Cells, Overflow
from operators.windows.session_chains import Sessions

__all__ = ["SessionAggregateOperator"]

CHUNK = 65_536
"""The cells that are looked at together: so many sessions, at most, are in a batch that comes out at a watermark."""


class SessionAggregateOperator(Stateful):
    """Aggregates of sessions; see the module's text, and ``WindowedStream.agg`` for the output.

    Raises: SchemaMismatch when built; ValueError for a null event time; OverflowError for a time out of range, or for a
    sum of integers that exceeds 64 bits, naming key and column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        window: Session,
        lateness: int,
        aggregations: Sequence[Aggregation],
        emit: Emit,
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._keys = list(keys)
        self._time = time
        self._window = window
        self._gap = window.gap
        self._unit = TimeUnit.of_time(schema, time)
        self._emit = emit
        rest = self._gap + lateness  # how long rows may merge with a complete session
        #: How long a complete session waits before it comes out, and how long it is kept afterwards.
        self._wait = rest if emit is Emit.FINAL and lateness else 0
        self._keep = rest - self._wait
        self._rows = folded_columns(schema, (), aggregations)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        gap = self._gap * self._unit.per_microsecond
        self._cells = self._new_cells(self._user_keys, gap, list(aggregations), self._rows, context.name, time.column)
        #: Of final results without lateness, the last cells of sessions that came out together, and the greatest of
        #: their last times. They are removed together, so they cost no due time each.
        self._past: deque[tuple[int, Slots]] = deque()
        self._passed = Passed()
        self._late = LateRows(context, self._passed, rest, keys)

    #: Makes the cells; a subclass may have others.
    _new_cells: ClassVar[Callable[..., Cells]] = staticmethod(make_cells)

    @property
    def kernels(self) -> Sequence[str]:
        return self._cells.kernels

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return Snapshot(shown_values(snapshot), {"rows": cls._rows_of(spec, snapshot, inputs[0], output)})

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        batch, times = self._in_time(batch, out)
        if not len(times):
            return
        keys, rows = key_columns(batch, self._keys), batch.select(self._rows.names)
        slots, new = self._cells.enter(keys, times)
        if self._emit is Emit.CHANGES:
            self._change(rows, times, slots, out)
            return
        met = self._met(slots, times)
        if len(met):
            self._context.tally.split_sessions += len(met)
            self._cells.delete(met)
            slots, more = self._cells.enter(keys, times)
            new = np.concatenate([new, more])
        self._cells.fold(rows, times, slots, self._overflow)
        self._set_dues(new)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the sessions that come out at the watermark, and drop those that no row can meet."""
        self._passed.advance(watermark)
        return self._look(watermark, out) if len(self._cells) else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result ends that is still to come."""
        return watermark - self._wait

    # --- rows

    def _in_time(self, batch: pa.RecordBatch, out: Out) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows that are not late, and their times; emit and count the others."""
        if not batch.num_rows:
            return batch, np.empty(0, np.int64)
        return self._late.split_times(batch, self._times(batch), self._unit, out)

    def _times(self, batch: pa.RecordBatch) -> Numbers:
        """Return the event times of the rows. Raises: ValueError for nulls, OverflowError for times out of range."""
        column = time_column(batch, self._time.column, self._context.name)
        try:
            times = np.ascontiguousarray(self._unit.times(column, self._time.back))
            low, last, unit = int(times.min()), int(times.max()), self._unit
            last_due = unit.in_microseconds(last) + self._gap + self._wait + self._keep + 1
            end = last + self._gap * unit.per_microsecond
            if low <= -MAX_WATERMARK or max(end, last_due) >= MAX_WATERMARK:
                raise OverflowError(
                    f"sessions from {low} to {end} {unit.value} are out of range for {unit.value} of 64 bits"
                )
        except OverflowError as error:
            raise OverflowError(
                f"{self._context.name}: event times in {self._time.column!r} are out of range for the edges of "
                f"{self._window}: {error}; filter such rows out"
            ) from error
        return times

    def _met(self, slots: Slots, times: Numbers) -> Slots:
        """Return the cells of sessions that came out and that rows meet, each once."""
        now = self._unit.first(self._passed.reached)
        if int(times.min()) >= now:  # sessions that came out end before it
            return slots[:0]
        early = times < now
        return self._cells.met(slots[early], times[early])

    def _change(self, rows: pa.RecordBatch, times: Numbers, slots: Slots, out: Out) -> None:
        """Fold rows into their cells; take back the sessions that change, and emit those that are complete."""
        cells, now = self._cells, self._passed.reached
        old = cells.sessions(np.unique(cells.ends(self._met(slots, times))))
        cells.expect_changes(old)
        taken = self._values(old) if len(old) else []
        cells.show(old.cells, shown=False)
        touched = cells.fold(rows, times, slots, self._overflow)
        ends = np.unique(cells.ends(touched[self._is_complete(cells.lasts(touched), now)]))
        ends = ends[self._is_complete(cells.lasts(ends), now)]
        new = cells.sessions(ends)
        added = self._values(new) if len(new) else []
        cells.show(new.cells, shown=True)
        self._set_dues(touched)
        into = cells.ends(old.ends)
        places = np.searchsorted(ends, into)  # a session may replace several
        lost = np.append(ends, -1)[places] != into  # they are not complete any more: replaced by none, they come last
        places[lost] = len(ends) + np.arange(np.count_nonzero(lost))
        if (np.diff(places) < 0).any():
            order = to_array(np.argsort(places, kind="stable"))
            taken = [column.take(order) for column in taken]
        last: Slots = np.append(ends, old.ends[lost])
        every: Slots = np.arange(len(last), dtype=np.int32)
        shown = np.bincount(places, minlength=len(last))
        for rows_of, columns, weights in changes(every, shown, taken, among(added), every < len(ends)):
            keys = cells.state.keys(last[rows_of])[: len(self._keys)]
            self._emit_rows([*keys, *columns, to_array(weights)], out)

    # --- sessions

    def _is_complete(self, lasts: Numbers, watermark: int) -> Mask:
        """Return whether sessions with these last times come out at a watermark."""
        complete: Mask = lasts < self._unit.first(watermark - self._gap - self._wait)
        return complete

    def _set_dues(self, slots: Slots) -> None:
        """Set when cells are to be looked at: when they would come out, or else when no row can merge with them."""
        dues = self._unit.microseconds(self._cells.lasts(slots)) + (self._gap + self._wait + 1)
        if self._keep:
            dues[dues <= self._passed.reached] += self._keep
        self._cells.dues.set(slots, dues)

    def _look(self, watermark: int, out: Out) -> Iterator[None]:
        """Emit, keep, merge or remove the cells that are due."""
        # Sessions are read first, while all of their cells are there: after that, cells are deleted, or absorbed by the
        # next one. A session is read at the end that is due, so one that a row has extended since is not read: its last
        # cell is joined to another now. Due times may be too early, never too late: a cell that is looked at too early
        # gets a later time (_set_dues), and one without a time would never come out.
        cells, is_signed = self._cells, self._emit is Emit.CHANGES
        while len(slots := cells.dues.take(watermark, CHUNK)):
            lasts, joined = cells.look(slots)
            over = self._is_complete(lasts, watermark)
            ends = slots[over & ~joined]
            sessions = cells.sessions(ends[~cells.shown(ends)])
            if len(sessions):
                self._emit_rows(self._columns(sessions, 1 if is_signed else None), out)
                self._keep_shown(sessions, watermark)
            if is_signed:
                over = self._is_complete(lasts, watermark - self._keep)
                cells.delete(cells.sessions(slots[over & ~joined]).cells)
            self._set_dues(slots[~over])
            cells.absorb(cells.existing(slots[over & joined]), self._overflow)
            yield
        self._forget_past(watermark)

    def _keep_shown(self, sessions: Sessions, watermark: int) -> None:
        """Keep what is needed of sessions that came out: all, or only the last cells of those that rows may meet."""
        if self._emit is Emit.CHANGES:
            self._cells.show(sessions.cells, shown=True)
            return
        lasts = self._cells.lasts(sessions.ends)
        closed = self._is_complete(lasts, watermark - self._keep)
        past = sessions.ends[~closed]
        if len(past):
            self._past.append((int(lasts[~closed].max()), past))
            self._cells.show(past, shown=True)
        self._cells.delete(np.concatenate([sessions.before_ends, sessions.ends[closed]]))

    def _forget_past(self, watermark: int) -> None:
        """Remove the cells of past sessions that no row can meet any more."""
        cells, closed = self._cells, self._unit.first(watermark - self._gap - self._wait - self._keep)
        while self._past and self._past[0][0] < closed:
            slots = cells.existing(self._past.popleft()[1])
            slots = slots[cells.shown(slots)]  # by now, a slot may be of another cell
            cells.delete(slots[cells.lasts(slots) < closed])

    def _columns(self, sessions: Sessions, weight: int | None = None) -> list[pa.Array]:
        """Return the columns of a row for each session; with ``weight`` also that of signed changes."""
        columns = [*self._cells.keys(sessions)[: len(self._keys)], *self._values(sessions)]
        return columns if weight is None else [*columns, to_array(np.full(len(sessions), weight, np.int8))]

    def _values(self, sessions: Sessions) -> list[pa.Array]:
        """Return the edges and the aggregates of sessions."""
        kind = self._context.output_schema.field("window_start").type
        return _values(self._cells, sessions, self._unit, kind, self._overflow)

    def _emit_rows(self, columns: Sequence[pa.Array], out: Out) -> None:
        out.emit(pa.RecordBatch.from_arrays(list(columns), schema=self._context.output_schema))

    def _overflow(self, error: SumOverflow, key: Sequence[pa.Array]) -> OverflowError:
        """Return the error for a sum of ``key``, one row of the key columns of cells."""
        return overflow_of(self._context.name, error, key[: len(self._user_keys)], self._user_keys)

    # --- state

    def state(self) -> Mapping[str, Piece]:
        cells = self._cells
        log = Log(cells.state, len(self._user_keys), owners=cells.owners, initial=cells.initial)
        return {"time units": Fixed([self._unit.value]), "time": self._passed, "state": log}

    def converted(self, stored: Snapshot) -> Snapshot:
        rule = stored.rules.get("state")
        if rule is None or "state" not in stored.logs:
            return stored
        parts: Any = stored.logs["state"]
        with naming_state(f"{self._context.name}: state", self):
            if self._emit is Emit.CHANGES:
                self._cells.check_shown(parts, stored.added)
            changed = [self._cells.converted(part, rule.owners, stored.added) for part in parts]
        return replace(stored, logs={**stored.logs, "state": changed})

    def restored(self) -> None:
        self._cells.restored()
        slots = self._cells.state.slots
        shown = self._cells.shown(slots)
        if self._emit is Emit.FINAL and shown.any():
            past, slots = slots[shown], slots[~shown]
            self._past.append((int(self._cells.lasts(past).max()), past))
        self._set_dues(slots)

    @classmethod
    def _rows_of(cls, spec: Any, snapshot: Snapshot, taken: pa.Schema, made: pa.Schema) -> pa.Table:
        """Return the sessions in the state, also those that are complete and kept, as the aggregate emits them."""
        made = pa.schema([field for field in made if field.name not in cls._hidden(spec)])
        parts: Any = snapshot.logs.get("state", ())
        if not parts:
            return made.empty_table()
        keys = pa.schema(list(parts[0]["keys"].schema)[: max(1, len(spec.keys))])
        rows = folded_columns(taken, (), spec.aggregations)
        unit = TimeUnit.of_time(taken, spec.time)
        gap = spec.window.gap * unit.per_microsecond
        cells = cls._new_cells(keys, gap, spec.aggregations, rows, "state", spec.time.column)
        own = cells.state.stored
        cells.state.restore([{name: arranged(table, own.get(name)) for name, table in part.items()} for part in parts])
        cells.restored()

        def overflow(error: SumOverflow, key: list[pa.Array]) -> OverflowError:
            return overflow_of("state", error, key[: len(keys)], keys)

        sessions = cells.all_sessions(shown=spec.emit is not Emit.FINAL)
        values = _values(cells, sessions, unit, made.field("window_start").type, overflow)
        columns = [*cells.keys(sessions)[: len(spec.keys)], *values]
        return pa.Table.from_arrays(columns, schema=made)

    @staticmethod
    def _hidden(spec: Any) -> Sequence[str]:
        """Return the columns of the output that the state does not have."""
        return (CHANGE,) if spec.emit is Emit.CHANGES else ()


def _values(cells: Cells, sessions: Sessions, unit: TimeUnit, kind: pa.DataType, overflow: Overflow) -> list[pa.Array]:
    """Return the edges of sessions, of type ``kind``, and their aggregates; ``unit`` is that of the times of cells."""
    starts, ends = cells.edges(sessions)
    return [unit.edges(starts, kind), unit.edges(ends, kind), *cells.read(sessions, overflow)]
