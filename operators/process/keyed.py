"""The operator of a `KeyedProcess`: a call for each key of a batch.

The rows of a batch are grouped once: one sort by slot, one ``take``, and a slice for each key. Calls come in the order
in which the keys' first rows arrived. State is read as Python values once for each batch (``handles``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.process_state import StateDeclaration
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import OnError
from dataflow.errors import ContractViolation
from dataflow.planning.process_specs import Process
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.timers import TimeDomain
from operators.process.base import NoTimers, ProcessOperator
from operators.process.emissions import MOST
from operators.process.handles import CurrentCall, Handle, KeyedValue
from operators.process.list_handle import KeyedList
from operators.process.list_store import Lists
from operators.process.map_handle import KeyedMap
from operators.process.map_store import Maps
from operators.process.stores import Store, Values
from operators.process.timing import due_time
from operators.process.values import Converter
from operators.stateful.times import row_times, time_column

__all__ = ["KeyedProcessOperator", "grouped"]

_FEW_ROWS: Final = 5
"""Rows that the error of a call that fails the job shows at most."""


class KeyedProcessOperator(ProcessOperator):
    """Calls a `KeyedProcess`; see the module's text."""

    def __init__(self, context: OperatorContext, spec: Process) -> None:
        self._call = CurrentCall()
        self._keys: list[Any] = []
        self._firing: TimeDomain | None = None  # while timers fire: of which domain
        self._cancelled: set[tuple[int, int]] = set()  # and which of them were cancelled: key and due time
        super().__init__(context, spec)
        self._ctx = _Context(self)
        self._undoes = spec.on_error is not OnError.FAIL
        self._one_key = len(spec.keys) == 1

    def _new_handle(self, name: str, declared: StateDeclaration, store: Store) -> Handle:
        where, types = _Where(self, name), declared.types
        if isinstance(store, Lists):
            return KeyedList(self._call, store, Converter(types[0], where))
        if isinstance(store, Maps):
            key = Converter(types[0], _Where(self, name, ", key"), nullable=False)
            return KeyedMap(self._call, store, key, Converter(types[1], where))
        assert isinstance(store, Values), f"{name} is {store}"
        return KeyedValue(self._call, store, Converter(types[0], where))

    def current_key(self) -> Any:
        """Return the key of the call at hand, for messages."""
        return self._keys[self._call.at]

    # --- calls

    def _begin(self, slots: Slots, keys: list[pa.Array]) -> None:
        """Begin a batch of calls for some keys."""
        self._call.slots = slots
        columns = [column.to_pylist() for column in keys]
        self._keys = columns[0] if self._one_key else list(zip(*columns, strict=True))
        for handle in self._handles.values():
            handle.begin()

    def _end(self, fires: TimeDomain | None = None, upto: int = 0) -> None:
        """Write what the calls of a batch changed."""
        for handle in self._handles.values():
            handle.flush()
        self._changes.apply(fires, upto)
        self._states.drop_empty(self._call.slots)
        self._request_clock()

    def _call_rows(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        columns = [batch.column(name) for name in self._spec.keys]
        slots = self._states.main.enter(columns)
        order, starts, first = grouped(slots)
        rows = batch if order is None else batch.take(to_array(order))
        self._begin(slots[first], [column.take(to_array(first)) for column in columns])
        call, keys, function, ctx = self._call, self._keys, self._function.process, self._ctx
        times = self._times(rows, starts)
        ends = starts[1:].tolist()
        start = 0
        for at, end in enumerate(ends):
            call.at = at
            call.now = times[at] if times is not None else self._before
            some = rows.slice(start, end - start)
            if self._undoes:
                self._try(function, keys[at], some, None)
            else:
                try:
                    if function(keys[at], some, ctx) is not None:
                        raise self.returned("process")
                except Exception as error:
                    self._blame(error, keys[at], some, None)
            start = end
            if self._emissions.rows >= MOST:
                yield from self._send(out)
        self._end()

    def _times(self, rows: pa.RecordBatch, starts: Numbers) -> list[int] | None:
        """Return the time of each call: that of its latest row, at least the watermark; None: that of the clock."""
        time = self._spec.time
        if time is None or not self._states.expires:
            return None
        times = row_times(time_column(rows, time.column, self.where), time.back)
        return np.maximum(np.maximum.reduceat(times, starts[:-1]), self._before).tolist()

    def _call_timers(self, dues: Numbers, slots: Slots, domain: TimeDomain, upto: int, out: Out) -> Iterator[None]:
        distinct, numbers = np.unique(slots, return_inverse=True)
        self._begin(distinct, self._states.main.keys(distinct))
        call, keys, function, moments = self._call, self._keys, self._function.on_timer, self._moments
        by_event = self._spec.time is not None and domain is TimeDomain.EVENT
        self._firing = domain
        for at, due in zip(numbers.tolist(), dues.tolist(), strict=True):
            if self._cancelled and (at, due) in self._cancelled:
                continue
            call.at = at
            call.now = max(due, self._before) if by_event else self._before
            moment = moments.moment(due)
            if self._undoes:
                self._try(function, keys[at], None, moment)
            else:
                try:
                    if function(keys[at], moment, self._ctx) is not None:
                        raise self.returned("on_timer")
                except Exception as error:
                    self._blame(error, keys[at], None, moment)
            if self._emissions.rows >= MOST:
                yield from self._send(out)
        self._firing, self._cancelled = None, set()
        self._end(domain, upto)

    def _try(self, function: Any, key: Any, rows: pa.RecordBatch | None, due: datetime | None) -> None:
        """Call the function; undo all that it did, and set its rows aside, if it raises."""
        call = self._call
        call.number += 1
        call.log = []
        emitted, timers, cancelled = self._emissions.mark(), len(self._changes), set(self._cancelled)
        try:
            if function(key, rows if due is None else due, self._ctx) is not None:
                raise self.returned("process" if due is None else "on_timer")
        except Exception as error:
            for undo in reversed(call.log):
                undo()
            self._emissions.undo(emitted)
            self._changes.undo(timers)
            self._cancelled = cancelled
            where = f"{self.where}, key {key!r}"
            if rows is None:
                self._errors.reject(where, f"timer of key {key!r} due {due}", error)
            else:
                for row in render_rows(rows):
                    self._errors.reject(where, row, error)

    def _blame(self, error: Exception, key: Any, rows: pa.RecordBatch | None, due: datetime | None) -> None:
        """Raise ``error`` with a note that names the operator, the key, and the rows or the due time."""
        call = f"in {self._spec.label}.{'process' if due is None else 'on_timer'}"
        if rows is None:
            what = f"due {due}"
        else:
            shown = [str(row) for row in render_rows(rows.slice(0, _FEW_ROWS))]
            more = f" and {rows.num_rows - _FEW_ROWS} more rows" if rows.num_rows > _FEW_ROWS else ""
            what = f"rows {', '.join(shown)[:500]}{more}"
            self._errors.failed(shown[0])
        error.add_note(
            f"at {self.where}, key {key!r}, {what}, {call}; on_error='skip' leaves such calls out, 'side' sets their "
            "rows aside"
        )
        raise error

    def set_timer(self, due: Any, domain: TimeDomain, *, sets: bool) -> None:
        """Set or cancel a timer of the key at hand."""
        time = due_time(due, self.where)
        at = self._call.at
        if not sets and self._firing is domain:
            self._cancelled.add((at, time))
        self._changes.add(self._call.slots[at], time, domain, sets=sets)

    def _context_of_broadcast(self) -> Any:
        return _Context(self, NoTimers(self.where))


class _Timers:
    """The timers of the key at hand."""

    def __init__(self, operator: KeyedProcessOperator) -> None:
        self._operator = operator

    def event(self, due: Any) -> None:
        """Set a timer of event time."""
        self._operator.set_timer(due, TimeDomain.EVENT, sets=True)

    def clock(self, due: Any) -> None:
        """Set a timer of the clock."""
        self._operator.set_timer(due, TimeDomain.CLOCK, sets=True)

    def cancel(self, due: Any) -> None:
        """Remove a timer of event time."""
        self._operator.set_timer(due, TimeDomain.EVENT, sets=False)

    def cancel_clock(self, due: Any) -> None:
        """Remove a timer of the clock."""
        self._operator.set_timer(due, TimeDomain.CLOCK, sets=False)


class _Context:
    """The context of a call."""

    def __init__(self, operator: KeyedProcessOperator, timers: Any = None) -> None:
        self._operator = operator
        self._add = operator._emissions.add
        self.timers = _Timers(operator) if timers is None else timers

    @property
    def watermark(self) -> datetime | None:
        """The watermark."""
        return self._operator._moments.watermark(self._operator._time.watermark)

    def emit(self, rows: Any, tag: str | None = None) -> None:
        """Send rows downstream."""
        self._add(rows, tag)

    def keys(self, slots: Any) -> pa.RecordBatch:
        """Raise ContractViolation: the key is an argument of the call."""
        raise ContractViolation(f"{self._operator.where}: ctx.keys is for a BatchProcess; the key is an argument")


class _Where:
    """Names a state and the key at hand in messages, when they are made."""

    def __init__(self, operator: KeyedProcessOperator, name: str, part: str = "") -> None:
        self._operator, self._name, self._part = operator, name, part

    def __str__(self) -> str:
        key = self._operator.current_key()
        return f"{self._operator.where}: state {self._name!r}{self._part} of key {key!r}"


def grouped(slots: Slots) -> tuple[Numbers | None, Numbers, Numbers]:
    """Return the order of rows in which those of a slot are together, where each group begins, and its first row.

    Groups are in the order of their first rows; the last entry of the begins is the number of rows. The order is None
    if rows need not move.
    """
    count = len(slots)
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    first = order[begins]
    if len(begins) == count:  # each slot has one row
        rows = np.arange(count)
        return None, np.arange(count + 1), rows
    by_arrival = np.argsort(first)
    lengths = np.diff(np.append(begins, count))[by_arrival]
    starts = np.append(0, np.cumsum(lengths))
    places = np.repeat(begins[by_arrival] - starts[:-1], lengths) + np.arange(count)
    return order[places], starts, first[by_arrival]
