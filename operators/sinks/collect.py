"""A sink that keeps rows in memory, for small pipelines and tests. Exactly once: checkpoints hold the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from dataflow.contracts.declared_state import Log, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.sink import Collector, Guarantee, Sink
from dataflow.contracts.updates import CHANGE, Changes
from dataflow.errors import CheckpointMismatch, ConfigurationError, GraphError, SchemaMismatch
from dataflow.state.dictionaries import wide_schema, widened
from operators.sinks.net import left_rows, net_rows

__all__ = ["CollectSink", "CollectWriter", "collect"]


class CollectWriter(Stateful, Collector):
    """Keeps the rows of one subtask, dictionaries with int32 indices.

    State: a log of the rows. It is `Incremental` itself: a delta has the rows since an older checkpoint.
    """

    def __init__(self, context: OperatorContext, *, limit: int | None) -> None:
        self._name = context.name
        self._limit = limit
        self._input = context.input_schemas[0]
        self._schema = wide_schema(self._input)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        #: By checkpoint: how many batches it has. A restored one has those from before the first ``process``.
        self._frozen: dict[int, int] = {}
        self._at_start = 0

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

    def converted(self, stored: Snapshot) -> Snapshot:
        """Return the rows of a checkpoint with the columns that they have now: one that was added has nulls.

        Other columns than those that the restore lets change are not touched, so that they are refused as damage.
        """
        if not stored.added or "rows" not in stored.logs:
            return stored
        parts: Any = stored.logs["rows"]
        changed = [{name: self._with_columns(table, stored.added) for name, table in part.items()} for part in parts]
        return replace(stored, logs={**stored.logs, "rows": changed})

    def _with_columns(self, table: pa.Table, changed: Sequence[str]) -> pa.Table:
        if not {*table.column_names} ^ {*self._schema.names} <= {*changed}:
            return table
        for field in self._schema:
            if field.name not in table.column_names:
                table = table.append_column(field.with_nullable(nullable=True), pa.nulls(table.num_rows, field.type))
        return table.select(self._schema.names)

    def state(self) -> Mapping[str, Piece]:
        return {"rows": Log(self, keys=0)}

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint."""
        return {"rows": self._schema}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Take over the rows of a checkpoint, in order."""
        stored = [batch for part in parts for batch in part["rows"].to_batches()]
        self._batches = [pa.RecordBatch.from_arrays(batch.columns, schema=self._schema) for batch in stored]
        self._rows = sum([batch.num_rows for batch in self._batches])
        self._at_start = len(self._batches)

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        first = 0 if since is None else self._frozen.get(since, self._at_start)
        end = self._frozen[checkpoint] = len(self._batches)
        rows = islice(self._batches, first, end)  # batches are immutable, and the list only grows
        return {"rows": pa.RecordBatchReader.from_batches(self._schema, rows)}

    def durable(self, checkpoint: int) -> None:
        self._frozen = {n: length for n, length in self._frozen.items() if n >= checkpoint}

    def result(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)


class CollectSink(Sink):
    """The sink that ``collect`` makes."""

    guarantee = Guarantee.EXACTLY_ONCE
    blocking = False

    def __init__(self, *, limit: int | None, net: bool = False) -> None:
        self._limit = limit
        self._net = net

    def __repr__(self) -> str:
        return "collect(net=True)" if self._net else "collect()"

    def check_changes(self, changes: Changes) -> None:
        if self._net and changes == "updates":
            raise GraphError(
                'collect(net=True) counts rows, and updates are none; write emit="changes" at the aggregate that emits '
                "them, or leave net out"
            )

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        if self._net and CHANGE in after:
            raise CheckpointMismatch(
                f"{self!r} adds up equal rows, and rows with the columns {[*after]} are not equal to rows with "
                f"{[*before]} that they take back; use collect() without net, or keep the columns with select()"
            )

    def present(self, table: pa.Table, changes: Changes) -> pa.Table:
        return net_rows(table) if self._net and changes == "signed" else table

    def present_repeated(self, table: pa.Table, changes: Changes) -> pa.Table:
        return left_rows(table) if self._net and changes == "signed" else table

    def writer(self, context: OperatorContext) -> CollectWriter:
        return CollectWriter(context, limit=self._limit)


def collect(*, limit: int | None = None, net: bool = False) -> CollectSink:
    """Keep the rows in memory; the result of the run has them under the sink's name.

    Every checkpoint holds all rows so far, of which it writes only the new ones. This is for results that fit into
    memory.

    Args:
        limit: more rows than this in a subtask stop the job; None: no limit.
        net: of signed changes, return the rows that are left when added rows and equal rows that were taken back
            cancel out, without their column ``change``, each as often as it was added more than taken back. NaN equals
            NaN, and 0.0 equals -0.0. Streams of rows are returned as they are.

    Returns: a sink.

    Raises: ConfigurationError for a negative limit. The run raises NegativeNet if a row was taken back more often than
        it was added, unless a restore in mode "unaligned" reported duplicates: then such a row is left out.

    >>> collect(limit=10)
    collect()
    """
    if limit is not None and limit < 0:
        raise ConfigurationError(f"collect(limit=) must be a number of rows or None, got {limit}")
    return CollectSink(limit=limit, net=net)
