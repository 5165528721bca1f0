"""A sink that gives its rows as a DataFrame to a function, on Spark only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.contracts.sink import FrameSink, Guarantee, SparkBatch
from dataflow.contracts.updates import Changes
from dataflow.errors import GraphError
from operators.sinks.receivers import checked_function

__all__ = ["ForeachBatchSink", "foreach_batch"]


class ForeachBatchSink(FrameSink):
    """The sink that ``foreach_batch`` makes. ``function`` is called in the driver."""

    guarantee = Guarantee.AT_LEAST_ONCE
    idempotent = True  # by the number of the batch, if the function goes by it

    def __init__(self, function: Callable[[Any, SparkBatch], object], name: str) -> None:
        self._function = function
        self._name = name

    def __repr__(self) -> str:
        return f"foreach_batch({self._name})"

    def check_changes(self, changes: Changes) -> None:
        if changes == "updates":
            raise GraphError(
                "foreach_batch: the rows are updates, of which several may come for one key in a batch; use "
                "emit='changes', or agg(emit='final') in a batch"
            )

    def write(self, frame: Any, batch: SparkBatch) -> None:
        self._function(frame, batch)


def foreach_batch(function: Callable[[Any, SparkBatch], object]) -> ForeachBatchSink:
    """Call ``function(frame, batch)`` with the rows of this sink as a DataFrame, on Spark only.

    It may write the rows to any system that Spark knows. It is called in the driver, once for each micro-batch, also if
    that has no rows; in a batch once. No row passes through the driver unless the function makes it. A DataFrame that
    is used more than once is computed again each time: ``frame.persist()`` keeps its rows.

    **The call may be repeated** after a failure, with the same rows and the same ``batch``. So the output is "exactly
    once" if the function ignores a pair of ``batch.app`` and ``batch.id`` that it has written already, else "at least
    once". Delta has ``txnAppId`` and ``txnVersion`` for this; a database can keep the pair in the same transaction.

    Args:
        function: called with the ``pyspark.sql.DataFrame`` and a `dataflow.SparkBatch`.

    Returns: a sink that other runners refuse before anything starts.

    Raises: ConfigurationError for a function that would not run when it is called: one that is ``async`` or a
        generator, or does not take two arguments.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> def append(frame, batch):
    ...     options = {"txnAppId": batch.app, "txnVersion": batch.id}
    ...     frame.write.format("delta").mode("append").options(**options).save("totals")
    >>> with flow.Pipeline("orders") as p:
    ...     orders = p.source(op.from_arrow(pa.table({"shop": ["a"], "price": [2]})), name="orders")
    ...     orders.key_by("shop").agg(total=flow.col("price").sum()).sink(foreach_batch(append), name="delta")
    >>> p.run()
    Traceback (most recent call last):
    dataflow.errors.UnsupportedOnRunner: sink 'delta', foreach_batch(append): not on the local runner: ...
    """
    return ForeachBatchSink(function, checked_function(function, "foreach_batch", ("frame", "batch")))
