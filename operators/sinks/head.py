"""The sink of ``Stream.head``: keeps the first rows in memory. The job may stop once it has them."""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.errors import ConfigurationError
from operators.sinks.collect import CollectWriter

__all__ = ["HeadSink", "HeadWriter", "head"]


class HeadWriter(CollectWriter):
    """Keeps the first ``n`` rows of its subtask and drops the others. State: the rows."""

    def __init__(self, context: OperatorContext, n: int) -> None:
        super().__init__(context, limit=None)
        self._left = n - self.result().num_rows

    @property
    def full(self) -> bool:
        return self._left <= 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        first = batch.slice(0, max(self._left, 0))
        self._left -= first.num_rows
        super().process(port, first, out)


class HeadSink(Sink):
    """The sink that ``head`` makes."""

    guarantee = Guarantee.EXACTLY_ONCE
    blocking = False

    def __init__(self, n: int) -> None:
        self._n = n

    def __repr__(self) -> str:
        return f"head({self._n})"

    def writer(self, context: OperatorContext) -> HeadWriter:
        return HeadWriter(context, self._n)


def head(n: int) -> HeadSink:
    """Keep the first ``n`` rows of each subtask, then ask the job to stop. Raises: ConfigurationError if n is negative.

    >>> head(10)
    head(10)
    """
    if n < 0:
        raise ConfigurationError(f"head(n): n must be at least 0, got {n}")
    return HeadSink(n)
