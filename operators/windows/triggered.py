"""Aggregates of windows whose results come by triggers: early ones, the one at the end, and late ones.

State: for each key and window a record, and three words: how many panes were shown, how many rows were not, and when
the first of these came, by the clock (0 if no trigger goes by the clock). A row is folded into each of its windows,
which are numbered as ``operators.stateful.window_numbers`` does for records that cannot be merged. Whether a window
was shown at its end follows from the watermark that the operator goes by.

With signed changes, the row that was shown is kept from the first new row of the window to the next pane
(``ShownRows``). With discarding panes the record goes with each pane, so there is one only for rows that no pane has
shown.

Times of the clock are time by the clock of the job, so that they keep their meaning after a restore, and never go back.

Invariants: a window has rows that were not shown only until it is over; ``_by_number`` has each slot of ``_windows``
once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Panes, Trigger
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.arrays import LEAST, Numbers
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.partials import folded_columns
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of
from operators.stateful.changes import AT_ONCE, ShownRows
from operators.stateful.clock_timer import ClockTimer
from operators.stateful.columns import RECORD, WINDOW, is_partial, state_keys
from operators.windows.waiting import Waiting

__all__ = ["EARLY", "LATE", "ON_TIME", "TriggeredOperator"]

EARLY, ON_TIME, LATE = "early", "on_time", "late"
SHOWN = "shown"
"""The table of a snapshot with the rows that were shown of windows with new rows."""
_PANES, _ROWS, _SINCE = 1, 2, 3  # words of a window's record


class TriggeredOperator(Stateful):
    """Windows shown by triggers. A subclass says how windows are numbered, and when they are complete.

    ``key_fields`` are the columns of the state's key between the user's key and the number of the window.

    Raises: SchemaMismatch when built; OverflowError when a sum of integers exceeds 64 bits, naming key and column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        emit: Emit,
        early: Trigger | None,
        late: Trigger | None,
        panes: Panes,
        key_fields: Sequence[pa.Field] = (),
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._keys = list(keys)
        self._early, self._late = early, late or AfterRows(1)
        self._discards = panes is Panes.DISCARDING
        self._signed = emit is Emit.CHANGES
        self._has_panes = early is not None and not self._signed
        self._columns = folded_columns(schema, keys, aggregations)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        self._row_keys = pa.schema([*self._user_keys, *key_fields])
        state_key = self._row_keys.append(pa.field(WINDOW, pa.int64()))
        self._records = Records(aggregations, self._columns, context.name)
        self._state = KeyedState(state_key, self._records)
        self._windows = KeyedState(state_key, pa.schema([]), words=3)
        self._shown = ShownRows(self._windows, state_key, self._records.types)
        self._by_number: SortedDict[int, list[Slots]] = SortedDict()
        self._waiting = {
            phase: Waiting(trigger.length)
            for phase, trigger in ((EARLY, self._early), (LATE, self._late))
            if isinstance(trigger, AfterTime)
        }
        self._timer = ClockTimer(context)
        self._passed = Passed()

    # --- for subclasses

    @abstractmethod
    def _entries(self, batch: pa.RecordBatch, out: Out) -> tuple[pa.RecordBatch, Numbers, Numbers] | None:
        """Return the rows or records to fold, with the columns ``_row_keys``, their windows and their numbers of rows.

        None: there are none.
        """

    @abstractmethod
    def _complete(self) -> int:
        """Return the last number that is complete at the watermark, which has come."""

    @abstractmethod
    def _over(self) -> int:
        """Return the last number that takes no more rows at the watermark, which has come."""

    @abstractmethod
    def _labels(self, keys: Sequence[pa.Array], numbers: Numbers) -> list[pa.Array]:
        """Return the columns of the output that name windows; ``keys`` are the columns ``_row_keys``."""

    def _check_numbers(self, numbers: pa.Array) -> None:
        """Raise CheckpointDamaged for numbers that no window has."""

    # --- the contract

    @property
    def kernels(self) -> Sequence[str]:
        return *self._state.kernels, *self._windows.kernels, "operators.kernels.windows", "operators.kernels.merging"

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def open(self) -> None:
        """Let restored rows that were not shown wait on, if the clock shows them."""
        slots = self._pending()
        since = self._windows.records[slots, _SINCE]
        order = np.argsort(since, kind="stable")
        slots, since = slots[order], since[order]
        complete = self._numbers(slots) <= self._last
        for phase, which in ((EARLY, ~complete), (LATE, complete)):
            if phase in self._waiting:
                self._waiting[phase].begin(slots[which], since[which])
        self._set_timer()

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        entries = self._entries(batch, out)
        if entries is None:
            return None
        rows, numbers, weights = entries
        keys = [*[rows.column(name) for name in self._row_keys.names], to_array(numbers)]
        slots, fresh = self._windows.insert(keys)
        self._enter(slots[fresh], numbers[fresh])
        touched, first = np.unique(slots, return_index=True)
        words = self._windows.records
        new = touched[words[touched, _ROWS] == 0]
        if self._signed:
            again = new[words[new, _PANES] > 0]
            self._shown.keep(again, self._read(again))
        np.add.at(words[:, _ROWS], slots, weights)
        self._fold(rows, keys)
        complete = numbers[first] <= self._last
        due = {}
        for phase, trigger, which in ((EARLY, self._early, ~complete), (LATE, self._late, complete)):
            if isinstance(trigger, AfterRows):
                mine = touched[which]
                due[phase] = mine[words[mine, _ROWS] >= trigger.rows]
            elif phase in self._waiting:
                mine = np.intersect1d(new, touched[which])
                words[mine, _SINCE] = self._timer.now()
                self._waiting[phase].begin(mine, words[mine, _SINCE])
        self._set_timer()
        return self._show_all(due, out) if any(len(slots) for slots in due.values()) else None

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        done = self._last
        before = self._passed.advance(watermark)
        return self._advance(before, done, watermark, out) if self._by_number else None

    def timer(self, due: int, out: Out) -> Iterator[None] | None:
        self._timer.fired()
        now = self._timer.now()
        over = {phase: waiting.over(now) for phase, waiting in self._waiting.items()}
        self._set_timer()
        return self._show_all(over, out) if any(len(slots) for slots in over.values()) else None

    # --- windows

    @property
    def _last(self) -> int:
        """The last number that is complete."""
        return LEAST if self._passed.watermark is None else self._complete()

    def _enter(self, slots: Slots, numbers: Numbers) -> None:
        """Enter new windows into the order of their numbers."""
        if not len(slots):
            return
        order = np.argsort(numbers, kind="stable")
        distinct, starts = np.unique(numbers[order], return_index=True)
        for number, part in zip(distinct.tolist(), np.split(slots[order], starts[1:]), strict=True):
            self._by_number.setdefault(number, []).append(part)

    def _slots_up_to(self, last: int, after: int = LEAST) -> Slots:
        """Return the slots of the windows after ``after``, up to ``last``, in the order of their numbers."""
        numbers = self._by_number.irange(after, last, (after == LEAST, True))
        parts = [part for number in numbers for part in self._by_number[number]]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def _numbers(self, slots: Slots) -> Numbers:
        return to_numbers(self._windows.keys(slots)[-1])

    def _pending(self) -> Slots:
        """Return the windows with rows that were not shown."""
        slots = self._windows.slots
        return slots[self._windows.records[slots, _ROWS] > 0]

    def _fold(self, rows: pa.RecordBatch, keys: Sequence[pa.Array]) -> None:
        slots, _ = self._state.insert(keys)
        with self._naming_key(slots):
            if is_partial(rows.schema):
                self._records.merge(rows.column(RECORD), slots)
            else:
                self._records.fold(rows, slots)
        self._state.change(self._records.touched)
        self._records.forget_touched()

    @contextmanager
    def _naming_key(self, slots: Slots) -> Iterator[None]:
        """Name operator, column and key in the error of a sum that does not fit; row i of it is of ``slots[i]``."""
        try:
            yield
        except SumOverflow as error:
            keys = self._state.keys(slots[error.row : error.row + 1])[: len(self._user_keys)]
            raise overflow_of(self._context.name, error, keys, self._user_keys) from error

    def _read(self, windows: Slots) -> list[pa.Array]:
        """Return the aggregates of windows, all of which have a record."""
        slots = self._state.find(self._windows.keys(windows))
        with self._naming_key(slots):
            return self._records.read(slots)

    def _take(self, windows: Slots) -> list[pa.Array]:
        """Return the aggregates of the rows that were not shown, perhaps of none, and drop their records."""
        slots, _ = self._state.insert(self._windows.keys(windows))
        with self._naming_key(slots):
            columns = self._records.read(slots)
        self._state.delete(slots)
        return columns

    # --- panes

    def _advance(self, before: int | None, done: int, watermark: int, out: Out) -> Iterator[None]:
        yield from self._show(self._slots_up_to(self._last, done), ON_TIME, out)
        pending = {}
        for phase, trigger in ((LATE, self._late), (EARLY, self._early)):
            if isinstance(trigger, AtTimes) and trigger.passes(before, watermark):
                slots = self._pending()
                complete = self._numbers(slots) <= self._last
                pending[phase] = slots[complete if phase == LATE else ~complete]
        yield from self._show_all(pending, out)
        over = self._over()
        closing = self._slots_up_to(over)
        yield from self._show(closing[self._windows.records[closing, _ROWS] > 0], LATE, out)
        records = self._state.find(self._windows.keys(closing))
        self._state.delete(records[records >= 0])
        self._windows.delete(closing)
        for waiting in self._waiting.values():
            waiting.end(closing)
        for number in list(self._by_number.irange(maximum=over)):
            del self._by_number[number]

    def _show_all(self, slots: dict[str, Slots], out: Out) -> Iterator[None]:
        for phase, part in slots.items():
            yield from self._show(part, phase, out)

    def _show(self, slots: Slots, pane: str, out: Out) -> Iterator[None]:
        """Emit the results of windows, and take note that all of their rows are shown."""
        for start in range(0, len(slots), AT_ONCE):
            chosen = slots[start : start + AT_ONCE]
            self._windows.change(chosen)
            words = self._windows.records
            for batch in self._changes(chosen) if self._signed else [self._rows(chosen, pane)]:
                out.emit(batch)
            words[chosen, _PANES] += 1
            words[chosen, _ROWS] = 0
            for waiting in self._waiting.values():
                waiting.end(chosen)
            yield

    def _rows(self, slots: Slots, pane: str) -> pa.RecordBatch:
        values = self._take(slots) if self._discards else self._read(slots)
        panes = []
        if self._has_panes:
            index = to_array(self._windows.records[slots, _PANES])
            panes = [pa.repeat(pa.scalar(pane, pa.string()), len(slots)), index]
        return self._batch(slots, [*panes, *values])

    def _changes(self, slots: Slots) -> Iterator[pa.RecordBatch]:
        words = self._windows.records
        slots = slots[(words[slots, _PANES] == 0) | (words[slots, _ROWS] > 0)]  # of others, the last pane is as before
        for changed, values, weights in self._shown.changes(slots, self._read):
            yield self._batch(changed, [*values, to_array(weights)])

    def _batch(self, slots: Slots, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        *keys, numbers = self._windows.keys(slots)
        labels = self._labels(keys, to_numbers(numbers))
        arrays = [*keys[: len(self._keys)], *labels, *columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._context.output_schema)

    def _set_timer(self) -> None:
        """Ask for a timer when the first rows have waited long enough."""
        due = min([waiting.due for waiting in self._waiting.values() if waiting.due is not None], default=None)
        self._timer.request(due)

    # --- state

    def state(self) -> Mapping[str, Piece]:
        keys = len(self._user_keys)
        shown = {SHOWN: self._shown.piece(keys, self._changed, self._records)} if self._signed else {}
        state = Log(self._state, keys, owners=self._records.owners, initial=self._records.initial)
        return {"time": self._passed, "state": state, "windows": Log(self._windows, keys), **shown}

    def _changed(self) -> Slots:
        """Return the windows that were shown and have rows that were not."""
        slots = self._pending()
        return slots[self._windows.records[slots, _PANES] > 0]

    def restored(self) -> None:
        slots = self._windows.slots
        numbers = self._numbers(slots)
        self._check_numbers(to_array(numbers))
        self._enter(slots, numbers)
        kept = self._pending() if self._discards else slots
        if self._state.live != len(kept) or (self._state.find(self._windows.keys(kept)) < 0).any():
            raise CheckpointDamaged("the windows of the checkpoint and their records are of other keys")
