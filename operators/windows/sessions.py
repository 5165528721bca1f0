"""Aggregates per key and session: rows of a key that are at most a gap apart, whatever the order in which they come.

Let W be the watermark, and E the end of a session: its last time plus the gap. Rows at time E still belong to it, so a
session is complete when W is above E. A row at time t is late if t + gap + lateness is below W, which is decided
before it merges with anything. So rows may merge with a session until W is above E + gap + lateness.

- ``Emit.FINAL`` without lateness: a session comes out when it is complete, and is dropped. A row may still meet it; it
  then starts a session of its own, which is counted (``split_sessions``).
- ``Emit.FINAL`` with lateness: a session comes out once, when no row can merge with it any more. The watermark passed
  on is held back so far that no session is late downstream.
- ``Emit.CHANGES``: a session comes out when it is complete, and is kept until no row can merge with it. If one does,
  the row of the session is taken back.

State: cells (``session_cells``), ends of past sessions (``split_sessions``), and the watermark. A cell that is due
either ends its session, or is joined to the next cell; so the work at a watermark follows the cells that are due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.source import Json
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime
from dataflow.errors import OTHER_PIPELINE, CheckpointMismatch
from dataflow.expressions import Aggregation
from dataflow.planning.specs import Emit, SessionAggregate
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.untrusted import Time, parsed
from operators.aggregation.partials import folded_columns, key_columns, state_keys
from operators.aggregation.records import SumOverflow
from operators.aggregation.restoring import restoring
from operators.aggregation.sums import overflow_of
from operators.aggregation.window_times import Numbers, row_times
from operators.windows.session_cells import Cells, Sessions, make_cells
from operators.windows.session_rows import session_columns, signed_columns
from operators.windows.split_sessions import PastEnds

__all__ = ["SessionAggregateOperator"]

CHUNK = 65_536
"""The cells that are looked at together: so many sessions, at most, are in a batch that comes out at a watermark."""

_LEAST = -(2**63)


class SessionAggregateOperator(Operator):
    """Aggregates of sessions; see the module's text, and ``WindowedStream.agg`` for the output.

    Raises: SchemaMismatch when built; ValueError for a null event time; OverflowError for a time out of range, or for a
    sum of integers that exceeds 64 bits, naming key and column; CheckpointMismatch for the state of another aggregate.
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
        self._lateness = lateness
        self._aggregations = list(aggregations)
        self._emit = emit
        rest = self._gap + lateness  # how long rows may merge with a complete session
        #: How long a complete session waits before it comes out, and how long it is kept afterwards.
        self._wait = rest if emit is Emit.FINAL and lateness else 0
        self._keep = rest if emit is Emit.CHANGES else 0
        self._rows = folded_columns(schema, (), aggregations)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        self._cells = make_cells(self._user_keys, self._gap, self._aggregations, self._rows, context.name)
        self._past = PastEnds(self._user_keys, self._gap) if emit is Emit.FINAL and not lateness else None
        self._watermark: int | None = None
        if context.restored is not None and context.restored.values:
            self._restore(context.restored)

    @property
    def kernels(self) -> Sequence[str]:
        return (*self._cells.kernels, *(self._past.kernels if self._past is not None else ()))

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        values = {name: value for name, value in snapshot.values.items() if name != "aggregations"}
        return Snapshot(values, {"rows": _rows_of(spec, snapshot, inputs[0], output)})

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        times = self._times(batch)
        batch, times = self._without_late(batch, times, out)
        if not len(times):
            return
        slots, new = self._cells.enter(key_columns(batch, self._keys), times)
        rows = batch.select(self._rows.names)
        if self._emit is Emit.CHANGES:
            self._change(rows, times, slots, out)
            return
        touched = self._cells.fold(rows, times, slots, self._overflow)
        self._set_dues(new)
        if self._past is not None and self._watermark is not None and int(times.min()) < self._watermark:
            self._count_split(self._past, touched, self._watermark)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the sessions that come out at the watermark, and drop those with which no row can merge."""
        self._watermark = watermark
        return self._look(watermark, out) if len(self._cells) else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result ends that is still to come."""
        return watermark - self._wait

    def snapshot(self) -> Snapshot:
        values: dict[str, Json] = {"watermark": self._watermark, "aggregations": self._described()}
        past = {} if self._past is None else {"past": self._past.state}
        return Snapshot(values, logs={"state": self._cells.state, **past})

    # --- rows

    def _times(self, batch: pa.RecordBatch) -> Numbers:
        """Return the event times of the rows. Raises: ValueError for nulls, OverflowError for times out of range."""
        column = batch.column(self._time.column)
        if column.null_count:
            raise ValueError(
                f"{self._context.name}: {column.null_count} event times are null in {self._time.column!r}; "
                "filter such rows out, or give on_error= to with_watermark"
            )
        try:
            times = np.ascontiguousarray(row_times(column, self._time.back))
            low, high = int(times.min()), int(times.max()) + self._gap + self._wait + self._keep + 1
            if low <= -MAX_WATERMARK or high >= MAX_WATERMARK:
                raise OverflowError(f"sessions from {low} to {high} us are out of range for microseconds of 64 bits")
        except OverflowError as error:
            raise OverflowError(
                f"{self._context.name}: event times in {self._time.column!r} are out of range for the edges of "
                f"{self._window}: {error}; filter such rows out"
            ) from error
        return times

    def _without_late(self, batch: pa.RecordBatch, times: Numbers, out: Out) -> tuple[pa.RecordBatch, Numbers]:
        """Emit and count late rows; return the others."""
        tally = self._context.tally
        tally.lateness.checked += len(times)
        if self._watermark is None:
            return batch, times
        least = self._watermark - self._lateness - self._gap
        if int(times.min()) >= least:
            return batch, times
        late = times < least
        tally.late += int(late.sum())
        tally.lateness.add(least - times[late])
        out.emit(batch.filter(to_array(late)), LATE)
        return batch.filter(to_array(~late)), times[~late]

    def _count_split(self, past: PastEnds, touched: Slots, watermark: int) -> None:
        """Count the sessions that came out and that rows of ``touched`` meet."""
        firsts = self._cells.firsts(touched)
        early = firsts < watermark
        keys = self._cells.state.keys(touched[early])[: len(self._user_keys)]
        self._context.tally.split_sessions += past.take_met(keys, firsts[early], watermark)

    def _change(self, rows: pa.RecordBatch, times: Numbers, slots: Slots, out: Out) -> None:
        """Fold rows into their cells; take back the sessions that change, and emit those that are complete."""
        cells, now = self._cells, _LEAST if self._watermark is None else self._watermark
        early = times < now  # rows at or after the watermark merge with no complete session
        met = cells.met(slots[early], times[early]) if early.any() else slots[:0]
        old = cells.sessions(np.unique(cells.ends(met)))
        taken = self._columns(old) if len(old) else None
        cells.show(old.cells, shown=False)
        touched = cells.fold(rows, times, slots, self._overflow)
        ends = np.unique(cells.ends(touched[self._is_complete(touched, now)]))
        ends = ends[self._is_complete(ends, now)]
        new = cells.sessions(ends)
        added = self._columns(new) if len(new) else None
        cells.show(new.cells, shown=True)
        self._set_dues(touched)
        if taken is None and added is None:
            return
        into = cells.ends(old.ends)
        places = np.searchsorted(ends, into)
        replaced = np.append(ends, -1)[places] == into
        columns, weights = signed_columns(taken, np.where(replaced, places, -1), added, len(self._keys))
        self._emit_rows([*columns, to_array(weights)], out)

    # --- sessions

    def _is_complete(self, slots: Slots, watermark: int) -> Any:
        """Return whether sessions that would end with these cells come out at a watermark."""
        return self._cells.lasts(slots) + (self._gap + self._wait) < watermark

    def _set_dues(self, slots: Slots) -> None:
        """Set when cells are to be looked at: when they would come out, or else when no row can merge with them."""
        dues = self._cells.lasts(slots) + (self._gap + self._wait + 1)
        if self._keep and self._watermark is not None:
            dues[dues <= self._watermark] += self._keep
        self._cells.dues.set(slots, dues)

    def _look(self, watermark: int, out: Out) -> Iterator[None]:
        cells = self._cells
        while len(slots := cells.dues.take(watermark, CHUNK)):
            complete = self._is_complete(slots, watermark)
            closed = cells.lasts(slots) + (self._gap + self._wait + self._keep) < watermark
            joined = cells.is_joined(slots)
            ends = slots[complete & ~joined]
            sessions = cells.sessions(ends[~cells.shown(ends)])
            if len(sessions):
                self._come_out(sessions, watermark, out)
            self._set_dues(slots[~closed])
            cells.delete(cells.sessions(slots[closed & ~joined]).cells)
            rest = slots[closed & joined]
            cells.absorb(rest[cells.exist(rest)], self._overflow)
            yield

    def _come_out(self, sessions: Sessions, watermark: int, out: Out) -> None:
        columns = self._columns(sessions)
        if self._emit is Emit.CHANGES:
            columns.append(to_array(np.ones(len(sessions), np.int8)))
            self._cells.show(sessions.cells, shown=True)
        self._emit_rows(columns, out)
        if self._past is not None:
            self._past.add(self._cells.keys(sessions), self._cells.edges(sessions)[1], watermark)

    def _columns(self, sessions: Sessions) -> list[pa.Array]:
        kind = self._context.output_schema.field("window_start").type
        return session_columns(self._cells, sessions, len(self._keys), kind, self._overflow)

    def _emit_rows(self, columns: Sequence[pa.Array], out: Out) -> None:
        out.emit(pa.RecordBatch.from_arrays(list(columns), schema=self._context.output_schema))

    def _overflow(self, error: SumOverflow, key: Sequence[pa.Array]) -> OverflowError:
        """Return the error for a sum of ``key``, one row of the key columns of cells."""
        return overflow_of(self._context.name, error, key[: len(self._user_keys)], self._user_keys)

    # --- restoring

    def _described(self) -> list[str]:
        return [str(self._window), *(aggregation.fingerprint() for aggregation in self._aggregations)]

    def _restore(self, restored: Snapshot) -> None:
        values: Any = restored.values
        if values["aggregations"] != self._described():
            raise CheckpointMismatch(
                f"{self._context.name}: the checkpoint holds {values['aggregations']}, the pipeline "
                f"{self._described()}; {OTHER_PIPELINE}"
            )
        self._watermark = parsed(Time | None, values["watermark"], f"{self._context.name}: the watermark")
        logs: Any = restored.logs
        groups = self._context.key_groups, self._context.max_key_groups
        with restoring(self._context.name):
            self._cells.restore(logs.get("state", ()), *groups)
            if self._past is not None:
                self._past.restore(logs.get("past", ()), *groups)
        self._set_dues(self._cells.state.slots)


def _rows_of(spec: SessionAggregate, snapshot: Snapshot, taken: pa.Schema, made: pa.Schema) -> pa.Table:
    """Return the sessions in the state, also those that are complete and kept, as the aggregate emits them."""
    if CHANGE in made.names and spec.emit is Emit.CHANGES:
        made = made.remove(made.get_field_index(CHANGE))
    parts: Any = snapshot.logs.get("state", ())
    if not parts:
        return made.empty_table()
    keys = pa.schema(list(parts[0]["keys"].schema)[: max(1, len(spec.keys))])
    cells: Cells = make_cells(
        keys, spec.window.gap, spec.aggregations, folded_columns(taken, (), spec.aggregations), "state"
    )
    cells.restore(parts, range(1), 1)

    def overflow(error: SumOverflow, key: list[pa.Array]) -> OverflowError:
        return overflow_of("state", error, key[: len(keys)], keys)

    columns = session_columns(cells, cells.all_sessions(), len(spec.keys), made.field("window_start").type, overflow)
    return pa.Table.from_arrays(columns, schema=made)
