"""The operator of a `BatchProcess`: one call for each batch, with state as columns by slot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

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
from operators.process.list_store import Lists, lists_of
from operators.process.map_store import Maps
from operators.process.stores import LEAST, Store, Values
from operators.process.timing import due_times
from operators.process.values import Converter
from operators.stateful.times import row_times, time_column

__all__ = ["BatchProcessOperator"]


class BatchProcessOperator(ProcessOperator):
    """Calls a `BatchProcess`; see the module's text."""

    most_timers = 8192

    def __init__(self, context: OperatorContext, spec: Process) -> None:
        self._slots: Slots = np.empty(0, np.int32)
        self._times: Numbers | None = None  # by slot: the time of the call for it; None: _before, for all
        self.log: list[Callable[[], None]] | None = None
        """Functions that undo what the call changed; None: nothing will be undone."""
        super().__init__(context, spec)
        self._ctx = _Context(self, _Timers(self))

    def _new_handle(self, name: str, declared: StateDeclaration, store: Store) -> _Columns:
        where, types = f"{self.where}: state {name!r}", declared.types
        if isinstance(store, Lists):
            return _ListColumns(self, store, Converter(types[0], where))
        if isinstance(store, Maps):
            key = Converter(types[0], f"{where}, key", nullable=False)
            return _MapColumns(self, store, key, Converter(types[1], where))
        assert isinstance(store, Values), f"{name} is {store}"
        return _ValueColumns(self, store, Converter(types[0], where))

    def slots(self, slots: Any) -> Slots:
        """Return slots that the function named. Raises: ContractViolation if the call has no such slot."""
        if isinstance(slots, pa.Array | pa.ChunkedArray):
            slots = slots.to_numpy()
        numbers = np.asarray(slots)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            if not numbers.size and numbers.ndim == 1:
                return np.empty(0, np.int32)
            raise ContractViolation(f"{self.where}: slots are one array of integers, got {numbers.dtype} {slots!r}")
        if len(numbers) and not (int(numbers.min()) >= 0 and int(numbers.max()) < len(self._states.main.records)):
            raise ContractViolation(
                f"{self.where}: slots from {numbers.min()} to {numbers.max()} are none of this call; take them from "
                "the argument slots"
            )
        return numbers.astype(np.int32)

    def now(self, slots: Slots) -> Numbers | int:
        """Return the time of the call, for state of ``slots`` that expires."""
        return self._before if self._times is None else self._times[slots]

    # --- calls

    def _call_rows(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        self._slots = self._states.main.enter([batch.column(name) for name in self._spec.keys])
        time = self._spec.time
        self._times = None
        if self._states.expires and time is not None:
            times = row_times(time_column(batch, time.column, self.where), time.back)
            self._set_times(self._slots, times)
        with self._guarded("process(slots, rows, ctx)", lambda: render_rows(batch)):
            if self._function.process(self._slots.astype(np.int64), batch, self._ctx) is not None:
                raise self.returned("process")
        yield from self._end(out)

    def _call_timers(self, dues: Numbers, slots: Slots, domain: TimeDomain, upto: int, out: Out) -> Iterator[None]:
        self._slots, self._times = slots, None
        if self._states.expires and self._spec.time is not None and domain is TimeDomain.EVENT:
            self._set_times(slots, dues)
        moments = to_array(dues, pa.timestamp("us")).cast(self._moments.type)
        keys = self._states.main.keys(slots)
        with self._guarded("on_timer(slots, dues, ctx)", lambda: _shown_timers(keys, moments)):
            if self._function.on_timer(slots.astype(np.int64), moments, self._ctx) is not None:
                raise self.returned("on_timer")
        yield from self._end(out, domain, upto)

    @contextmanager
    def _guarded(self, call: str, rows: Callable[[], Iterable[object]]) -> Iterator[None]:
        """Undo all that a call did, and set its rows aside, if it raises; or name the call in the error."""
        if self._spec.on_error is OnError.FAIL:
            with self._blamed(call):
                yield
            return
        self.log = []
        emitted, timers = self._emissions.mark(), len(self._changes)
        try:
            yield
        except Exception as error:
            log, self.log = self.log, None
            for undo in reversed(log):
                undo()
            self._emissions.undo(emitted)
            self._changes.undo(timers)
            for row in rows():
                self._errors.reject(self.where, row, error)
        finally:
            self.log = None

    def _set_times(self, slots: Slots, times: Numbers) -> None:
        """Let the time of the call be the latest of ``times`` for each slot, at least the watermark."""
        self._times = np.full(len(self._states.main.records), max(self._before, LEAST), np.int64)
        np.maximum.at(self._times, slots, times)

    def _end(self, out: Out, fires: TimeDomain | None = None, upto: int = 0) -> Iterator[None]:
        yield from self._send(out)
        self._changes.apply(fires, upto)
        self._states.drop_empty(self._slots)
        self._request_clock()

    def _context_of_broadcast(self) -> Any:
        return _Context(self, NoTimers(self.where))

    def change_timers(self, slots: Any, dues: Any, domain: TimeDomain, *, sets: bool) -> None:
        """Set or cancel timers."""
        numbers = self.slots(slots)
        self._changes.add(numbers, due_times(dues, len(numbers), self.where), domain, sets=sets)

    def keys(self, slots: Any) -> pa.RecordBatch:
        """Return the key columns of ``slots``."""
        columns = self._states.main.keys(self.slots(slots))
        return pa.RecordBatch.from_arrays(columns, names=list(self._spec.keys))


def _shown_timers(keys: list[pa.Array], dues: pa.Array) -> Iterator[str]:
    """Yield timers as they are set aside."""
    columns = zip(*[column.to_pylist() for column in keys], strict=True)
    for key, due in zip(columns, dues.to_pylist(), strict=True):
        yield f"timer of key {(key[0] if len(key) == 1 else key)!r} due {due}"


class _Timers:
    """The timers of slots."""

    def __init__(self, operator: BatchProcessOperator) -> None:
        self._operator = operator

    def event(self, slots: Any, due: Any) -> None:
        """Set timers of event time."""
        self._operator.change_timers(slots, due, TimeDomain.EVENT, sets=True)

    def clock(self, slots: Any, due: Any) -> None:
        """Set timers of the clock."""
        self._operator.change_timers(slots, due, TimeDomain.CLOCK, sets=True)

    def cancel(self, slots: Any, due: Any) -> None:
        """Remove timers of event time."""
        self._operator.change_timers(slots, due, TimeDomain.EVENT, sets=False)

    def cancel_clock(self, slots: Any, due: Any) -> None:
        """Remove timers of the clock."""
        self._operator.change_timers(slots, due, TimeDomain.CLOCK, sets=False)


class _Context:
    """The context of a call."""

    def __init__(self, operator: BatchProcessOperator, timers: Any) -> None:
        self._operator = operator
        self.timers = timers

    @property
    def watermark(self) -> datetime | None:
        """The watermark."""
        return self._operator._moments.watermark(self._operator._time.watermark)

    def emit(self, rows: Any, tag: str | None = None) -> None:
        """Send rows downstream."""
        self._operator._emissions.add(rows, tag)

    def keys(self, slots: Any) -> pa.RecordBatch:
        """Return the key columns of slots."""
        return self._operator.keys(slots)


class _Columns(ABC):
    """What the handles of all kinds of state have."""

    def __init__(self, operator: BatchProcessOperator, store: Store) -> None:
        self._operator = operator
        self._any_store = store

    def clear(self, slots: Any) -> None:
        """Remove the state of slots."""
        numbers = self._operator.slots(slots)
        self._save(numbers)
        self._any_store.clear(numbers)

    @abstractmethod
    def _save(self, slots: Slots) -> None:
        """Prepare the state of slots for being cleared, so that it can be undone."""


class _ValueColumns(_Columns):
    """The handle of a `value_state`."""

    def __init__(self, operator: BatchProcessOperator, store: Values, converter: Converter) -> None:
        super().__init__(operator, store)
        self._store, self._converter = store, converter

    def get(self, slots: Any) -> pa.Array:
        """Return the value of each slot, null where there is none."""
        numbers = self._operator.slots(slots)
        return self._store.read(numbers, self._operator.now(numbers))

    def set(self, slots: Any, values: Any) -> None:
        """Write a value for each slot; null removes it. Of equal slots the last one counts."""
        numbers = self._operator.slots(slots)
        self._save(numbers)
        now = self._operator.now(numbers)
        self._store.write(numbers, self._converter.column(values, len(numbers)), now, now)

    def _save(self, slots: Slots) -> None:
        if self._operator.log is not None:
            self._operator.log.append(self._store.saved(np.unique(slots)))


class _ListColumns(_Columns):
    """The handle of a `list_state`."""

    def __init__(self, operator: BatchProcessOperator, store: Lists, converter: Converter) -> None:
        super().__init__(operator, store)
        self._store, self._converter = store, converter

    def get(self, slots: Any) -> pa.Array:
        """Return the list of each slot."""
        numbers = self._operator.slots(slots)
        return lists_of(*self._store.read(numbers, self._operator.now(numbers)))

    def append(self, slots: Any, values: Any) -> None:
        """Append a value to the list of each slot, in order."""
        numbers = self._operator.slots(slots)
        self._save(numbers, whole=False)
        now = self._operator.now(numbers)
        self._store.append(numbers, self._converter.column(values, len(numbers)), now, now)

    def _save(self, slots: Slots, *, whole: bool = True) -> None:
        if self._operator.log is not None:
            distinct = np.unique(slots)
            self._operator.log.append(self._store.saved(distinct, self._operator.now(distinct), whole=whole))


class _MapColumns(_Columns):
    """The handle of a `map_state`."""

    def __init__(self, operator: BatchProcessOperator, store: Maps, key: Converter, value: Converter) -> None:
        super().__init__(operator, store)
        self._store, self._key, self._value = store, key, value

    def get(self, slots: Any, keys: Any) -> pa.Array:
        """Return the value of an entry of each slot, null where there is none."""
        numbers = self._operator.slots(slots)
        return self._store.read(numbers, self._key.column(keys, len(numbers)), self._operator.now(numbers))[1]

    def put(self, slots: Any, keys: Any, values: Any) -> None:
        """Write an entry of each slot, in order."""
        numbers = self._operator.slots(slots)
        entries, written = self._key.column(keys, len(numbers)), self._value.column(values, len(numbers))
        self._save(numbers, entries)
        now = self._operator.now(numbers)
        self._store.renew(numbers, now, now)
        self._store.put(numbers, entries, written)

    def remove(self, slots: Any, keys: Any) -> None:
        """Remove an entry of each slot, where there is one."""
        numbers = self._operator.slots(slots)
        entries = self._key.column(keys, len(numbers))
        self._save(numbers, entries)
        self._store.remove(numbers, entries)

    def _save(self, slots: Slots, entries: pa.Array | None = None) -> None:
        if self._operator.log is not None:
            slots = np.unique(slots) if entries is None else slots
            self._operator.log.append(self._store.saved(slots, entries, self._operator.now(slots)))

    def items(self, slots: Any) -> pa.Array:
        """Return the entries of each slot, as an array of maps."""
        numbers = self._operator.slots(slots)
        offsets, keys, values = self._store.items(numbers, self._operator.now(numbers))
        return pa.MapArray.from_arrays(to_array(offsets.astype(np.int32)), keys, values)
