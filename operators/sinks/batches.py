"""A function called with each batch: the sink for whatever has no sink yet. At least once."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.operator import Guarantee, Operator, OperatorContext, Out, Sink, Snapshot

__all__ = ["BatchesSink", "write_batches"]

BatchFunction = Callable[[pa.RecordBatch], object]


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

    def __init__(self, factory: Callable[[OperatorContext], BatchFunction], name: str) -> None:
        self._factory = factory
        self._name = name

    def __repr__(self) -> str:
        return f"write_batches({self._name})"

    def writer(self, context: OperatorContext) -> _Writer:
        receiver = self._factory(context)
        if not callable(receiver):
            raise ConfigurationError(
                f"sink {context.name!r}: write_batches(factory=) is to make something that is called with a batch, "
                f"it made a {type(receiver).__name__}"
            )
        return _Writer(receiver)


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
    if (function is None) == (factory is None):
        raise ConfigurationError("write_batches takes a function of a batch, or factory=, and not both")
    given = function or factory
    name = getattr(given, "__qualname__", type(given).__name__)
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        raise ConfigurationError(
            f"write_batches: expected a plain function, got {name} ({type(given).__name__}); one that is async or "
            "yields does nothing when it is called"
        )
    if factory is not None:
        return BatchesSink(factory, name)
    assert function is not None, "one of the two is given"
    return BatchesSink(_always(function), name)


def _always(function: BatchFunction) -> Callable[[OperatorContext], BatchFunction]:
    """The same function for every subtask, without the hooks of an object: it is not one subtask's own."""
    return lambda context: lambda batch: function(batch)
