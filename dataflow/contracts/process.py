"""Process functions: a user's code with state for each key and timers, called by the engine.

The calls in each subtask, in order::

    function = Function()                        # the class, or the factory that was given
    function.open()                              # once; state of a checkpoint is restored by then
    function.process(key, rows, ctx)             # any number of these three, never two at a time
    function.on_timer(key, due, ctx)
    function.process_broadcast(rows, ctx)
    function.close()                             # always, also after an error

Guarantees: state, timers and emitted rows of a call are in a checkpoint together, or none of them is. Plain attributes
are not in checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dataflow.contracts.process_state import StateDeclaration
from dataflow.errors import ContractViolation, GraphError

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Slots = npt.NDArray[np.int64]

__all__ = ["BatchProcess", "KeyedProcess", "ProcessContext", "ProcessFunction", "ProcessTimers", "declared_states"]


class ProcessTimers(Protocol):
    """The timers of the key at hand; of a `BatchProcess`, of slots.

    A timer is a key and a due time, of event time or of the clock; to set it twice is to set it once. Due times are
    datetimes; those without a zone are UTC. In a `BatchProcess` each method has ``slots`` as its first argument, and
    ``due`` is an Arrow array of timestamps, a numpy array of datetime64, or int64 microseconds since 1970.
    """

    def event(self, *due: Any) -> None:
        """Set a timer that fires when the watermark is at or above ``due``.

        All rows before ``due`` have come then; rows at ``due`` may still come. If the watermark is there already, the
        timer fires with the next watermark. At the end of the input all timers fire; those set by them do not.
        """
        ...

    def clock(self, *due: Any) -> None:
        """Set a timer that fires when the clock reaches ``due``; if that is past, after the current call.

        Timers that are not due when the input ends do not fire.
        """
        ...

    def cancel(self, *due: Any) -> None:
        """Remove the timer of event time with this due time, if there is one."""
        ...

    def cancel_clock(self, *due: Any) -> None:
        """Remove the timer of the clock with this due time, if there is one."""
        ...


class ProcessContext(Protocol):
    """What a process function can do in a call, apart from its state.

    Attributes:
        watermark: the watermark, a datetime: no earlier row is expected. None: none has come yet. At the end of the
            input it is ``datetime.max``. It has a zone, UTC, if the stream's event time has one.
        timers: the timers of the key, see `ProcessTimers`. Not in ``process_broadcast``.
    """

    @property
    def watermark(self) -> datetime | None: ...

    @property
    def timers(self) -> ProcessTimers: ...

    def emit(self, rows: Mapping[str, Any] | pa.RecordBatch, tag: str | None = None) -> None:
        """Send rows downstream.

        Args:
            rows: one row, a mapping with the declared columns; or a record batch with them. The memory of a batch must
                not change afterwards, and ``pa.array(numpy_array)`` shares it: copy a buffer that you fill again.
            tag: a side output, declared in ``sides=``; None: the main output.

        Raises: SchemaMismatch for columns or values that do not fit; ContractViolation for an unknown tag.
        """
        ...

    def keys(self, slots: Any) -> pa.RecordBatch:
        """Return the key columns of ``slots``; only for a `BatchProcess`."""
        ...


class ProcessFunction:
    """What both kinds of process functions have."""

    calls: ClassVar[str] = ""
    """How ``process`` is called: with one "key" at a time, or with "slots"."""

    def __setattr__(self, name: str, value: object) -> None:
        state = getattr(type(self), name, None)
        if isinstance(state, StateDeclaration):
            raise ContractViolation(
                f"{type(self).__name__}.{name} is declared as {state}, and an assignment would not change the state; "
                f"call self.{name}.{state.change}"
            )
        super().__setattr__(name, value)

    def open(self) -> None:
        """Acquire resources. Called once in each subtask, before the first row."""

    def process_broadcast(self, rows: pa.RecordBatch, ctx: ProcessContext) -> None:
        """Take rows of the broadcast stream. Only this method may write to the states of `shared_map`.

        Args:
            rows: some rows of the broadcast stream, in its order. Each subtask gets all of them.
            ctx: emits rows; it has no timers, because there is no key.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot take the rows of broadcast=; define process_broadcast(rows, ctx)"
        )

    def close(self) -> None:
        """Release resources. Called once in each subtask, also after an error."""


class KeyedProcess(ProcessFunction):
    """A function that is called with the rows of one key at a time, with state for each key and timers.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Changed(flow.KeyedProcess):
    ...     last = flow.value_state(pa.int64())
    ...     def process(self, key, rows, ctx):
    ...         for row in rows.to_pylist():
    ...             if row["x"] != self.last.get():
    ...                 ctx.emit(row)
    ...             self.last.set(row["x"])
    >>> table = pa.table({"k": ["a", "a", "b", "a"], "x": [1, 1, 1, 2]})
    >>> rows = flow.Pipeline().source(op.from_arrow(table))
    >>> rows.key_by("k").process(Changed, name="changed").collect()["x"].to_pylist()
    [1, 2, 1]
    """

    calls = "key"

    def process(self, key: Any, rows: pa.RecordBatch, ctx: ProcessContext) -> None:
        """Take rows of one key.

        Args:
            key: the value of the key column; a tuple if there are several columns. Null is None.
            rows: some rows of the key, in the order of arrival. How rows are cut into calls may differ between runs.
            ctx: emits rows and sets timers.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot take rows; define process(key, rows, ctx)")

    def on_timer(self, key: Any, due: datetime, ctx: ProcessContext) -> None:
        """Handle a timer of ``key``.

        Args:
            key: as in ``process``.
            due: the time that the timer was set for. It has a zone, UTC, if the stream's event time has one.
            ctx: emits rows and sets timers. A timer whose time has already passed fires with the next watermark.
        """
        raise NotImplementedError(f"{type(self).__name__} sets timers; define on_timer(key, due, ctx)")


class BatchProcess(ProcessFunction):
    """A function that is called with the rows of many keys, and reads and writes state as columns.

    A *slot* is the number of a key in one call; slots of an earlier call are not valid.

    >>> import pyarrow as pa, pyarrow.compute as pc, dataflow as flow, operators as op
    >>> class Last(flow.BatchProcess):
    ...     last = flow.value_state(pa.int64())
    ...     def process(self, slots, rows, ctx):
    ...         before = self.last.get(slots)
    ...         self.last.set(slots, rows["x"])
    ...         ctx.emit(rows.append_column("before", before))
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]}), batch_rows=2))
    >>> schema = pa.schema({"k": pa.string(), "x": pa.int64(), "before": pa.int64()})
    >>> rows.key_by("k").process(Last, schema=schema, name="last").collect()["before"].to_pylist()
    [None, None, 1]
    """

    calls = "slots"

    def process(self, slots: Slots, rows: pa.RecordBatch, ctx: ProcessContext) -> None:
        """Take rows.

        Args:
            slots: the slot of each row's key, int64; equal for equal keys.
            rows: the rows, in the order of arrival.
            ctx: emits rows and sets timers.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot take rows; define process(slots, rows, ctx)")

    def on_timer(self, slots: Slots, dues: pa.Array, ctx: ProcessContext) -> None:
        """Handle some timers, in the order of their due times.

        Args:
            slots: the slot of each timer's key; a key with several timers has several entries.
            dues: the times that the timers were set for, timestamps in microseconds.
            ctx: emits rows and sets timers. A timer whose time has already passed fires with the next watermark.
        """
        raise NotImplementedError(f"{type(self).__name__} sets timers; define on_timer(slots, dues, ctx)")


_METHODS = ("open", "close", "process", "on_timer", "process_broadcast", "calls")


def declared_states(kind: type) -> dict[str, StateDeclaration]:
    """Return the states that a class and its bases declare, by name.

    >>> import pyarrow as pa, dataflow as flow
    >>> class Base(flow.KeyedProcess):
    ...     total = flow.value_state(pa.int64())
    >>> class Both(Base):
    ...     seen = flow.list_state(pa.string())
    >>> declared_states(Both)
    {'total': value_state(int64), 'seen': list_state(string)}
    """
    found: dict[str, StateDeclaration] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            found.pop(name, None)
            if getattr(type(value), "is_declared_state", False):
                if name in _METHODS:
                    raise GraphError(
                        f"process: {kind.__name__} declares a state {name!r}, which is the name of a method of process "
                        "functions; give it another name"
                    )
                found[name] = value
    return found


ProcessFactory = Callable[[], ProcessFunction]
