"""Sinks that call a function with each batch, for systems that have no sink of their own.

The guarantee is "at least once", or "exactly once" if calling the function again with the same rows changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.errors import ConfigurationError

__all__ = ["BatchesSink", "UpsertSink", "upsert_batches", "write_batches"]

BatchFunction = Callable[[pa.RecordBatch], object]
_Kind = TypeVar("_Kind", bound="BatchesSink")


class _Writer(Operator):
    """Calls the receiver of one subtask. State: none; ``flush`` must deliver all rows that the receiver holds back."""

    blocking = True

    def __init__(self, receiver: BatchFunction) -> None:
        self._receiver = receiver

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.num_rows:
            self._receiver(batch)

    def snapshot(self) -> Snapshot:
        self._hook("flush")
        return Snapshot()

    def finish(self, out: Out) -> None:
        self._hook("flush")

    def close(self) -> None:
        self._hook("close")

    def _hook(self, name: str) -> None:
        hook = getattr(self._receiver, name, None)
        if callable(hook):
            hook()


class BatchesSink(Sink):
    """The sink that ``write_batches`` makes."""

    guarantee = Guarantee.AT_LEAST_ONCE
    called = "write_batches"

    def __init__(self, factory: Callable[[OperatorContext], BatchFunction], name: str) -> None:
        self._factory = factory
        self._name = name

    def __repr__(self) -> str:
        return f"{self.called}({self._name})"

    def writer(self, context: OperatorContext) -> _Writer:
        receiver = self._factory(context)
        if not callable(receiver):
            raise ConfigurationError(
                f"sink {context.name!r}: {self.called}(factory=) must return something that can be called with a "
                f"batch, it returned a {type(receiver).__name__}"
            )
        return _Writer(receiver)


class UpsertSink(BatchesSink):
    """The sink that ``upsert_batches`` makes."""

    guarantee = Guarantee.EXACTLY_ONCE
    idempotent = True
    called = "upsert_batches"


def write_batches(
    function: BatchFunction | None = None, *, factory: Callable[[OperatorContext], BatchFunction] | None = None
) -> BatchesSink:
    """Call ``function`` with each batch that has rows, at least once.

    After a restore the function is called again with rows that it has seen, in other batches. Its result is ignored. An
    exception stops the job, with the operator and a sample of the batch as notes. With parallelism several threads call
    the function, each with rows of its own.

    Args:
        function: called with each batch.
        factory: instead of ``function``, if each subtask needs an object of its own (a connection). It is called with
            the ``OperatorContext`` of the subtask and returns a callable. If that has ``flush()``, it is called at each
            barrier and at the end, and must deliver all rows before it returns; ``close()`` is called once at the end,
            also after a failure.

    Returns: a sink.

    Raises: ConfigurationError for both or neither of the two, or for a function that would not run when it is called:
    one that is ``async`` or a generator.

    >>> write_batches(print)
    write_batches(print)
    """
    return _made(BatchesSink, function, factory)


def upsert_batches(
    function: BatchFunction | None = None, *, factory: Callable[[OperatorContext], BatchFunction] | None = None
) -> UpsertSink:
    """Call an idempotent ``function`` with each batch that has rows, so that each row counts once.

    Calling the function again with rows that it has seen, in other batches, must change nothing: for example, it
    replaces the row of each key. The sink can also be used on Spark, where micro-batches are repeated.

    Order: rows that are written again are followed by all rows after them.

    Args:
        function: as in ``write_batches``.
        factory: as in ``write_batches``.

    Returns: a sink.

    Raises: ConfigurationError as ``write_batches`` does.

    >>> prices: dict[str, float] = {}
    >>> upsert_batches(lambda batch: prices.update(zip(batch["item"].to_pylist(), batch["price"].to_pylist())))
    upsert_batches(<lambda>)
    """
    return _made(UpsertSink, function, factory)


def _made(
    kind: type[_Kind], function: BatchFunction | None, factory: Callable[[OperatorContext], BatchFunction] | None
) -> _Kind:
    if (function is None) == (factory is None):
        raise ConfigurationError(f"{kind.called} takes either a function of a batch or factory=, not both")
    given = function or factory
    name = getattr(given, "__qualname__", type(given).__name__)
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        raise ConfigurationError(
            f"{kind.called}: expected a plain function, got {name} ({type(given).__name__}); one that is async or "
            "yields does nothing when it is called"
        )
    if factory is not None:
        return kind(factory, name)
    assert function is not None, "one of the two is given"
    return kind(_always(function), name)


def _always(function: BatchFunction) -> Callable[[OperatorContext], BatchFunction]:
    """Return a factory of ``function``. Its hooks are hidden, because all subtasks share the function."""
    return lambda context: lambda batch: function(batch)
