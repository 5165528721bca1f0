"""What the operators of both kinds of process functions have: the function, its time, its timers and checkpoints.

The time of a call is that of its latest row, or the due time of its timer, but at least the watermark that came before.
Without event time it is the clock's. State with a time to live goes by it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from dataflow.contracts.declared_state import Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.process import ProcessFunction
from dataflow.contracts.process_state import StateDeclaration
from dataflow.contracts.row_errors import ERRORS, RowErrors
from dataflow.errors import ContractViolation, GraphError
from dataflow.planning.process_specs import Process
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.timers import TimeDomain
from operators.process.emissions import Emissions
from operators.process.states import States
from operators.process.stores import LEAST, Store
from operators.process.timers import TimerChanges
from operators.process.timing import Moments
from operators.stateful.clock_timer import ClockTimer
from operators.stateful.expiry import SWEPT, SWEPT_A_ROW, SWEPT_AT_ONCE

__all__ = ["ProcessOperator"]

BROADCAST: Final = 1
"""The port of the broadcast stream."""
_BOUND: Final = "_barrierflow_bound"


class ProcessOperator(Stateful):
    """Calls a process function; see the module's text.

    Attributes:
        most_timers: how many timers are taken at a time.
    """

    most_timers = 1024

    def __init__(self, context: OperatorContext, spec: Process) -> None:
        self._context = context
        self._spec = spec
        self.where = f"process {context.name!r}"
        sides = {tag: schema for tag, schema in spec.sides if tag != ERRORS or spec.on_error.value != "side"}
        self._emissions = Emissions(self.where, context.output_schema, sides, context.emitted)
        self._moments = Moments(spec.time, context.input_schemas[0])
        self._errors = RowErrors(spec.on_error, context.tally)
        self._states = States(context, spec, self.where)
        self._changes = TimerChanges(self._states.main)
        self._clock = ClockTimer(context)
        self._time = Passed()
        self._before = LEAST  # the watermark by which state expires: while timers fire, the last one
        self._function = self._new_function()
        self._handles: dict[str, Any] = {}
        self._bind()

    def _new_function(self) -> Any:
        function: Any = self._spec.factory()
        if getattr(function, "calls", None) not in ("key", "slots"):
            raise GraphError(
                f"{self.where}: {self._spec.label} returned {type(function).__name__}, no process function"
            )
        if _BOUND in vars(function):
            raise GraphError(
                f"{self.where}: {self._spec.label} returned one instance twice; each subtask needs an instance of its "
                "own, so return a new one in each call"
            )
        own = [name for name, value in vars(function).items() if getattr(type(value), "is_declared_state", False)]
        if own:
            raise GraphError(
                f"{self.where}: {type(function).__name__} declares state {own[0]!r} in an instance; declare it in the "
                "body of the class, so that it is known before anything runs"
            )
        _set(function, _BOUND, value=True)
        return function

    def _bind(self) -> None:
        """Give the function the handles of its states."""
        for name, state in self._spec.states:
            store = self._states.stores.get(name)
            if store is None:
                _set(self._function, name, self._states.shared[name])
            else:
                self._handles[name] = self._new_handle(name, state, store)
                _set(self._function, name, self._handles[name])

    @abstractmethod
    def _new_handle(self, name: str, declared: StateDeclaration, store: Store) -> Any:
        """Return the handle of the state of keys ``name``."""

    @property
    def kernels(self) -> Sequence[str]:
        return (*self._states.kernels, "dataflow.state.kernels.timers")

    @property
    def holds_resources(self) -> bool:
        return type(self._function).close is not ProcessFunction.close

    def open(self) -> None:
        with self._blamed("open()"), self._without_key("open"):
            self._function.open()
        self._request_clock()

    def close(self) -> None:
        self._emissions.close()
        with self._without_key("close"):
            self._function.close()

    # --- calls

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        return self._take_broadcast(batch, out) if port == BROADCAST else self._process_rows(batch, out)

    def _process_rows(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        yield from self._call_rows(batch, out)
        yield from self._send(out)
        if self._states.expires:
            if self._spec.time is None:
                self._before = self._clock.now()
            if self._time.watermark != MAX_WATERMARK:
                self._states.expire(self._before, SWEPT + SWEPT_A_ROW * batch.num_rows)

    @abstractmethod
    def _call_rows(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        """Call the function with the rows of a batch, and write what changed."""

    @abstractmethod
    def _call_timers(self, dues: Any, slots: Any, domain: TimeDomain, upto: int, out: Out) -> Iterator[None]:
        """Call the function with timers that fire, and write what changed."""

    @abstractmethod
    def _context_of_broadcast(self) -> Any:
        """Return the context for ``process_broadcast``."""

    def _take_broadcast(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        """Call the function with rows of the broadcast stream. An error fails the job: copies must stay equal."""
        shared = self._states.shared.values()
        for each in shared:
            each.is_writable = True
        try:
            with self._blamed("process_broadcast(rows, ctx)"), self._without_key("process_broadcast"):
                if self._function.process_broadcast(batch, self._context_of_broadcast()) is not None:
                    raise self.returned("process_broadcast")
        finally:
            for each in shared:
                each.is_writable = False
        for each in shared:
            each.flush()
        yield from self._send(out)

    def _send(self, out: Out) -> Iterator[None]:
        yield from self._emissions.send(out)
        if (aside := self._errors.take()) is not None:
            out.emit(aside, ERRORS)
            yield

    def returned(self, method: str) -> ContractViolation:
        """Return the error for a method that returned something."""
        return ContractViolation(
            f"{self.where}: {self._spec.label}.{method} returned a value, which would be lost; emit rows with "
            "ctx.emit(...), and use neither return nor yield"
        )

    @contextmanager
    def _without_key(self, method: str) -> Iterator[None]:
        """Let the states of keys raise an error, because ``method`` has no key."""
        for name in self._handles:
            _set(self._function, name, _NoState(f"{self.where}: state {name!r}", method))
        try:
            yield
        finally:
            for name, handle in self._handles.items():
                _set(self._function, name, handle)

    @contextmanager
    def _blamed(self, call: str) -> Iterator[None]:
        """Name the operator and the call in an error."""
        try:
            yield
        except Exception as error:
            error.add_note(f"at {self.where}, in {self._spec.label}.{call}")
            raise

    # --- time

    def advance(self, watermark: int, out: Out) -> Iterator[None]:
        self._time.watermark = watermark
        yield from self._fire(watermark, TimeDomain.EVENT, out)
        if watermark == MAX_WATERMARK:
            self._states.main.dropped_timers += self._changes.drop_deferred()
        else:
            self._changes.apply_deferred()
            if self._spec.time is not None:
                self._before = watermark
                self._states.expire(watermark, SWEPT_AT_ONCE)

    def timer(self, due: int, out: Out) -> Iterator[None]:
        self._clock.fired()
        yield from self._fire(self._clock.now(), TimeDomain.CLOCK, out)
        self._changes.apply_deferred()
        self._request_clock()

    def finish(self, out: Out) -> Iterator[None]:
        """Call timers of the clock that are due; those set in these calls do not fire.

        Rows that come again after the last watermark, in mode ``unaligned``, may have set timers of event time.
        """
        yield from self._fire(MAX_WATERMARK, TimeDomain.EVENT, out)
        yield from self._fire(self._clock.now(), TimeDomain.CLOCK, out)
        self._states.main.dropped_timers += self._changes.drop_deferred()

    def _fire(self, upto: int, domain: TimeDomain, out: Out) -> Iterator[None]:
        """Call the function with all timers that are due at ``upto``, in order."""
        if self._spec.time is None:
            self._before = self._clock.now()
        while True:
            dues, slots = self._states.main.due(upto, domain, self.most_timers)
            if not len(slots):
                return
            yield from self._call_timers(dues, slots, domain, upto, out)
            yield from self._send(out)

    def _request_clock(self) -> None:
        """Ask for a call of ``timer`` when the next timer of the clock is due."""
        self._clock.request(self._states.main.next_due(TimeDomain.CLOCK))

    # --- checkpoints

    def state(self) -> Mapping[str, Piece]:
        return {"time": self._time, **self._states.pieces()}

    def restored(self) -> None:
        if self._time.watermark is not None:
            self._before = self._time.watermark
        self._states.restored()


def _set(function: Any, name: str, value: object) -> None:
    """Set an attribute of a process function, which refuses to have its states replaced by others."""
    object.__setattr__(function, name, value)


class _NoState:
    """Stands in for the state of a key where there is no key."""

    def __init__(self, where: str, method: str) -> None:
        self._where, self._method = where, method

    def __getattr__(self, name: str) -> Any:
        raise ContractViolation(
            f"{self._where} is that of a key, and {self._method} has none; use it in process and on_timer"
        )


class NoTimers:
    """Stands in for timers where there is no key."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __getattr__(self, name: str) -> Any:
        raise ContractViolation(f"{self._where}: there are no timers in process_broadcast, because there is no key")
