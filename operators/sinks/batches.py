"""A function called with each batch: the sink for whatever has no sink yet.

At least once; a function that may be called with the same rows again counts them once, and can be run where work is
repeated as a matter of course.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.operator import Guarantee, Operator, OperatorContext, Out, Sink, Snapshot

__all__ = ["BatchesSink", "UpsertSink", "upsert_batches", "write_batches"]

BatchFunction = Callable[[pa.RecordBatch], object]
_Kind = TypeVar("_Kind", bound="BatchesSink")


class _Writer(Operator):
    """Calls the receiver of one subtask. State: none; what it holds back must be out after ``flush``."""

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
    """See ``write_batches``."""

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
                f"sink {context.name!r}: {self.called}(factory=) is to make something that is called with a batch, "
                f"it made a {type(receiver).__name__}"
            )
        return _Writer(receiver)


class UpsertSink(BatchesSink):
    """See ``upsert_batches``."""

    guarantee = Guarantee.EXACTLY_ONCE
    idempotent = True
    called = "upsert_batches"


def write_batches(
    function: BatchFunction | None = None, *, factory: Callable[[OperatorContext], BatchFunction] | None = None
) -> BatchesSink:
    """Call ``function`` with each batch that has rows, at least once: after a restore it is called again with rows that
    it has seen, in other batches. What it returns is ignored; what it raises stops the job, with the operator and a
    sample of the batch as notes.

    With parallelism the function is called by several threads, each with rows of its own. Where each needs an object
    of its own (a connection), give a ``factory``: it is called with the ``OperatorContext`` of the subtask and answers
    something callable. If that has ``flush()``, it is called at each barrier and at the end, and all that was taken is
    to be delivered when it returns; ``close()`` is called once at the end, whatever happened.

    Raises: ConfigurationError for both or neither of the two, or for a function that would not run when it is called:
    one that is ``async`` or a generator.

    >>> write_batches(print)
    write_batches(print)
    """
    return _made(BatchesSink, function, factory)


def upsert_batches(
    function: BatchFunction | None = None, *, factory: Callable[[OperatorContext], BatchFunction] | None = None
) -> UpsertSink:
    """Like ``write_batches``, with a function of which you know that calling it again with rows that it has seen, in
    other batches, changes nothing: one that writes each row in the place of the row with its key, say. So each row
    counts once, and the sink can be used on Spark, where micro-batches are repeated.

    Order: rows that were written again are followed by all that came behind them.

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
        raise ConfigurationError(f"{kind.called} takes a function of a batch, or factory=, and not both")
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
    """The same function for every subtask, without the hooks of an object: it is not one subtask's own."""
    return lambda context: lambda batch: function(batch)
