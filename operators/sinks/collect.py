"""A sink that keeps rows in memory, for small pipelines and tests. Exactly once: checkpoints hold the rows."""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.sink import Collector, Guarantee, Sink
from dataflow.errors import OTHER_PIPELINE, CheckpointMismatch, ConfigurationError, SchemaMismatch
from dataflow.state.dictionaries import wide_schema, widened

__all__ = ["CollectSink", "CollectWriter", "collect"]


class CollectWriter(Collector):
    """Keeps the rows of one subtask, dictionaries with int32 indices. State: the rows."""

    def __init__(self, context: OperatorContext, *, limit: int | None) -> None:
        self._name = context.name
        self._limit = limit
        self._input = context.input_schemas[0]
        self._schema = wide_schema(self._input)
        restored = context.restored.tables.get("rows") if context.restored else None
        if restored is not None and restored.schema != self._schema:
            raise CheckpointMismatch(
                f"sink {self._name!r} collects {self._schema}, the checkpoint holds rows of "
                f"{restored.schema}; {OTHER_PIPELINE}"
            )
        self._batches: list[pa.RecordBatch] = restored.to_batches() if restored is not None else []
        self._rows: int = restored.num_rows if restored is not None else 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.schema != self._input:
            raise SchemaMismatch(f"sink {self._name!r} collects {self._input}, got a batch of {batch.schema}")
        self._rows += batch.num_rows
        if self._limit is not None and self._rows > self._limit:
            raise ConfigurationError(
                f"sink {self._name!r} has a limit of {self._limit} rows, got {self._rows}: raise collect(limit=), or "
                "write them to files"
            )
        if batch.num_rows:
            self._batches.append(widened(batch))

    def snapshot(self) -> Snapshot:
        return Snapshot(tables={"rows": self.result()})  # batches are immutable, and this list of them is ours

    def result(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)


class CollectSink(Sink):
    """The sink that ``collect`` makes."""

    guarantee = Guarantee.EXACTLY_ONCE
    blocking = False

    def __init__(self, *, limit: int | None) -> None:
        self._limit = limit

    def __repr__(self) -> str:
        return "collect()"

    def writer(self, context: OperatorContext) -> CollectWriter:
        return CollectWriter(context, limit=self._limit)


def collect(*, limit: int | None = None) -> CollectSink:
    """Keep the rows in memory; the result of the run has them under the sink's name.

    Every checkpoint holds all rows so far, so this is for small results.

    Args:
        limit: more rows than this in a subtask stop the job; None: no limit.

    Returns: a sink.

    Raises: ConfigurationError for a negative limit.

    >>> collect(limit=10)
    collect()
    """
    if limit is not None and limit < 0:
        raise ConfigurationError(f"collect(limit=) must be a number of rows or None, got {limit}")
    return CollectSink(limit=limit)
