"""Sinks that call a function with each batch, for systems that have no sink of their own.

The guarantee is "at least once", or "exactly once" if calling the function again with the same rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.contracts.updates import Changes
from dataflow.errors import ConfigurationError, GraphError
from operators.sinks.net_upserts import NetFunction, NetUpsertSink
from operators.sinks.receivers import ReceiverWriter, checked_function

__all__ = ["BatchesSink", "UpsertSink", "upsert_batches", "write_batches"]

BatchFunction = Callable[[pa.RecordBatch], object]


class _Writer(ReceiverWriter):
    """Calls the receiver of one subtask with each batch. State: none."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.num_rows:
            self.receiver(batch)


class BatchesSink(Sink):
    """The sink that ``write_batches`` makes."""

    guarantee = Guarantee.AT_LEAST_ONCE
    called = "write_batches"

    def __init__(self, factory: Callable[[OperatorContext], BatchFunction], name: str) -> None:
        self._factory = factory
        self._name = name

    def __repr__(self) -> str:
        return f"{self.called}({self._name})"

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        """Let columns change: each call of the function gets rows with columns of their own."""

    def writer(self, context: OperatorContext) -> _Writer:
        return _Writer(context, self._factory, self.called)


class UpsertSink(BatchesSink):
    """The sink that ``upsert_batches`` makes without ``keys``."""

    guarantee = Guarantee.EXACTLY_ONCE
    idempotent = True
    called = "upsert_batches"

    def check_changes(self, changes: Changes) -> None:
        if changes == "signed":
            raise GraphError(
                "upsert_batches: the stream has signed changes, so the function would get rows that are taken back; "
                "name the columns by which rows replace each other, as in upsert_batches(function, keys=['id'])"
            )


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
    return BatchesSink(*_receiver(BatchesSink.called, function, factory))


@overload
def upsert_batches(
    function: BatchFunction | None = None, *, factory: Callable[[OperatorContext], BatchFunction] | None = None
) -> UpsertSink: ...


@overload
def upsert_batches(
    function: NetFunction | None = None,
    *,
    keys: str | Sequence[str],
    factory: Callable[[OperatorContext], NetFunction] | None = None,
) -> NetUpsertSink: ...


def upsert_batches(
    function: Any = None, *, keys: str | Sequence[str] | None = None, factory: Any = None
) -> UpsertSink | NetUpsertSink:
    """Call an idempotent ``function`` with each batch that has rows, so that each row counts once.

    Calling the function again with rows that it has seen, in other batches, must change nothing: for example, it
    replaces the row of each key. The sink can also be used on Spark, where micro-batches are repeated.

    Order: rows that are written again are followed by all rows after them.

    With ``keys`` the stream has signed changes. The sink keeps the net row of each key, and after each batch calls
    ``function(rows, gone)`` with the keys whose net row changed. While a key has two rows, the last to arrive is used.

    - ``rows`` is a ``pa.RecordBatch`` with the new row of each key, without the column ``change``.
    - ``gone`` has the key columns of the keys that have no row any more.

    After a restore it is first called with the rows of all keys. The guarantee is "at least once": the run that failed
    may have shown a key for a while which the restarted run does not show, because changes arrive in other batches or
    in another order. Such a key is not reported as gone, so its row stays. To be safe, let the first call after a
    restore replace all rows.

    Args:
        function: as in ``write_batches``; with ``keys`` called with ``rows`` and ``gone``, of which one may be empty.
        keys: the columns by which rows of signed changes replace each other; None: the stream has no signed changes.
        factory: as in ``write_batches``.

    Returns: a sink.

    Raises: ConfigurationError as ``write_batches`` does. The run raises AmbiguousKey if a key has two rows at the end,
        and NegativeNet if a row was taken back and never added, unless a restore in mode "unaligned" reported
        duplicates.

    >>> prices: dict[str, float] = {}
    >>> upsert_batches(lambda batch: prices.update(zip(batch["item"].to_pylist(), batch["price"].to_pylist())))
    upsert_batches(<lambda>)

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> shown: dict[str, int] = {}
    >>> def show(rows, gone):
    ...     shown.update(zip(rows["k"].to_pylist(), rows["n"].to_pylist()))
    ...     for key in gone["k"].to_pylist():
    ...         del shown[key]
    >>> with flow.Pipeline() as p:
    ...     rows = p.source(op.from_arrow(pa.table({"k": ["a", "b", "a"]}), batch_rows=1))
    ...     counts = rows.key_by("k").agg(op.count().alias("n"), emit="changes", name="counts")
    ...     counts.filter(flow.col("n") < 2).sink(op.upsert_batches(show, keys="k"), name="show")
    >>> result = p.run()
    >>> shown
    {'b': 1}
    """
    if keys is None:
        return UpsertSink(*_receiver(UpsertSink.called, function, factory))
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise ConfigurationError("upsert_batches(keys=) is empty; name at least one column, or leave it out")
    return NetUpsertSink(*_receiver(UpsertSink.called, function, factory), tuple(names))


def _receiver(called: str, function: Any, factory: Any) -> tuple[Callable[[OperatorContext], Any], str]:
    """Return a factory of receivers, and the name of what the user gave."""
    if (function is None) == (factory is None):
        raise ConfigurationError(f"{called} takes either a function of a batch or factory=, not both")
    return factory or _always(function), checked_function(function or factory, called)


def _always(function: Callable[..., object]) -> Callable[[OperatorContext], Callable[..., object]]:
    """Return a factory of ``function``. Its hooks are hidden, because all subtasks share the function."""
    return lambda context: lambda *batches: function(*batches)
