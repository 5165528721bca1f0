"""Rows kept in memory: the result of small pipelines and of tests, exactly once because they are in the checkpoint."""

from __future__ import annotations

import pyarrow as pa

from dataflow.errors import ConfigurationError, SchemaMismatch
from dataflow.operator import Collector, Guarantee, OperatorContext, Out, Sink, Snapshot

__all__ = ["CollectSink", "CollectWriter", "collect"]


class CollectWriter(Collector):
    """Keeps the rows of one subtask, and none behind the ``first`` so many. State: the rows."""

    def __init__(self, context: OperatorContext, *, limit: int | None, first: int | None = None) -> None:
        self._name = context.name
        self._limit = limit
        self._first = first
        self._schema = context.input_schemas[0]
        restored = context.restored.tables.get("rows") if context.restored else None
        if restored is not None and restored.schema != self._schema:
            raise SchemaMismatch(f"sink {self._name!r} collects {self._schema}, its snapshot has {restored.schema}")
        self._batches: list[pa.RecordBatch] = restored.to_batches() if restored is not None else []
        self._rows: int = restored.num_rows if restored is not None else 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.schema != self._schema:
            raise SchemaMismatch(f"sink {self._name!r} collects {self._schema}, got a batch of {batch.schema}")
        if self._first is not None:
            batch = batch.slice(0, self._first - self._rows)
        self._rows += batch.num_rows
        if self._limit is not None and self._rows > self._limit:
            raise ConfigurationError(
                f"sink {self._name!r} may keep {self._limit} rows and got {self._rows}: raise collect(limit=), or "
                "write them to files"
            )
        if batch.num_rows:
            self._batches.append(batch)

    @property
    def full(self) -> bool:
        return self._first is not None and self._rows >= self._first

    def snapshot(self) -> Snapshot:
        return Snapshot(tables={"rows": self.result()})  # batches are immutable, and this list of them is ours

    def result(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)


class CollectSink(Sink):
    """See ``collect``."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, *, limit: int | None, first: int | None) -> None:
        self._limit = limit
        self._first = first

    def __repr__(self) -> str:
        return "collect()"

    def writer(self, context: OperatorContext) -> CollectWriter:
        return CollectWriter(context, limit=self._limit, first=self._first)


def collect(*, limit: int | None = None, first: int | None = None) -> CollectSink:
    """Keep the rows in memory; the run's result shows them under the sink's name.

    Every checkpoint holds all rows so far, so this is for small results. More than ``limit`` rows in a subtask are an
    error. As soon as a subtask has its ``first`` so many rows, the job stops, and what it has is the result.

    >>> collect(limit=10)
    collect()
    """
    for name, rows in (("limit", limit), ("first", first)):
        if rows is not None and rows < 0:
            raise ConfigurationError(f"collect({name}=) is a number of rows or None, got {rows}")
    return CollectSink(limit=limit, first=first)
