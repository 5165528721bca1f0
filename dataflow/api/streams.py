"""The rows that come out of an operator: their partitioning, side outputs, and where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dataflow.api.columns import ColumnMethods
from dataflow.api.custom_operators import OperatorMethods
from dataflow.api.functions import FunctionMethods
from dataflow.clock import Duration
from dataflow.contracts.sink import Sink
from dataflow.contracts.updates import updates_error
from dataflow.contracts.windows import Tumbling
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Expr
from dataflow.planning.checks import columns_of, key_names
from dataflow.planning.graph import Edge, Partitioning
from dataflow.planning.specs import Union, Write
from dataflow.registry import resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.keyed_streams import KeyedStream, WindowedStream
    from dataflow.api.pipeline import Pipeline

__all__ = ["Stream"]


class Stream(ColumnMethods, FunctionMethods, OperatorMethods):
    """The rows that come out of an operator. Every method returns a new stream; using one twice branches.

    ``schema`` is known, and checked, while the graph is built. So is the meaning of the rows, see ``changes``.
    """

    def key_by(self, *keys: str | Expr | Sequence[str | Expr]) -> KeyedStream:
        """Return the same rows, such that rows with equal ``keys`` meet in one subtask. Null is a key like any other.

        Args:
            keys: names of columns, plain columns such as ``col("shop")``, or lists of these.

        Raises: GraphError for no key, one given twice or a computed one, and for updates by other columns than
        their update keys (see `changes`); UnknownColumn; SchemaMismatch for a list, struct or map.
        """
        names = key_names(keys, self.schema, "key_by")
        from dataflow.api.keyed_streams import KeyedStream

        if (updates := self._updates) is not None and (others := updates.others(names)):
            columns = ", ".join(map(repr, others))
            raise updates_error("key_by", updates, f"updates of one key would be spread by {columns}")
        return KeyedStream(self._pipeline, self._node, self._spread(Partitioning.HASH, names))

    def _spread(self, partitioning: Partitioning, keys: tuple[str, ...] = ()) -> Edge:
        return replace(self._edge, partitioning=partitioning, keys=keys)

    def rebalance(self) -> Stream:
        """Return the same rows, spread evenly over the subtasks of the next operator.

        Raises: GraphError for updates, which would lose their order (see `changes`).
        """
        self._refuse_updates("rebalance", "an update could overtake a later one of its key")
        return Stream(self._pipeline, self._node, self._spread(Partitioning.REBALANCE))

    def broadcast(self) -> Stream:
        """Return the same rows, all of them in every subtask of the next operator.

        Raises: GraphError for updates (see `changes`).
        """
        self._refuse_updates("broadcast", "every subtask would give every update once more")
        return Stream(self._pipeline, self._node, self._spread(Partitioning.BROADCAST))

    def side(self, tag: str) -> Stream:
        """Return the rows that the operator emitted with ``tag``, which have the columns declared for it.

        Raises: GraphError where the operator has no such side output.
        """
        sides = self._node.sides
        if tag not in sides:
            advice = self._node.spec.side_advice(tag)
            known = f"it has {list(sides)}" if sides else "" if advice else "it has none"
            raise GraphError(f"{self.name!r} has no side output {tag!r}; {'; '.join(filter(None, [known, advice]))}")
        return Stream(self._pipeline, self._node, Edge(self._node.id, None, (), tag))

    def union(self, *others: Stream, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return the rows of this stream and the others, in no particular order. Schemas must be equal.

        Raises: SchemaMismatch; GraphError for a stream of another pipeline, or of updates (see `changes`).
        """
        self._same_pipeline(others, "union")
        for other in others:
            if not other.schema.equals(self.schema):
                raise SchemaMismatch(
                    f"union: {self.name!r} has [{columns_of(self.schema)}] and {other.name!r} has "
                    f"[{columns_of(other.schema)}]; select the same columns first"
                )
        edges = (self._edge, *(other._edge for other in others))
        time = self._time if all(other._time == self._time for other in others) else None
        return self._then(Union(), self.schema, "union", name, parallelism, edges, time=time)

    def sink(self, sink: Sink, *, name: str | None = None, parallelism: int | None = None) -> None:
        """Send the rows to ``sink``; a stream may have several."""
        if not isinstance(sink, Sink):
            raise GraphError(f"sink: expected a Sink such as op.write_parquet(...), got {type(sink).__name__}")
        sink.check(self.schema)
        self._then(Write(sink), self.schema, "sink", name, parallelism)

    def agg(self, *aggregations: Any, **options: Any) -> Stream:
        """Aggregates belong to keyed streams: see `KeyedStream.agg`. Raises: GraphError that says so."""
        raise GraphError("agg: say by which columns first, as in stream.key_by('shop').agg(...)")

    def window(self, window: Tumbling, *, lateness: Duration = "0s") -> WindowedStream:
        """Windows belong to keyed streams: see `KeyedStream.window`. Raises: GraphError that says so."""
        raise GraphError("window: say by which columns first, as in stream.key_by('shop').window(...)")

    def collect(self, **options: Any) -> pa.Table:
        """Run what this stream depends on, and return its rows. Takes the options of `Pipeline.run`."""
        return self._alone(resolve("sink", "collect")()).run(**options).table("collected")

    def head(self, n: int = 5, **options: Any) -> pa.Table:
        """The first ``n`` rows to arrive; the job stops as soon as they are there."""
        return self._alone(resolve("sink", "head")(n)).run(**options).table("collected")

    def _alone(self, sink: Sink) -> Pipeline:
        from dataflow.api.pipeline import Pipeline

        part = Pipeline(self._pipeline.name)
        part.graph = self._pipeline.graph.upstream(self._node)
        node = part.graph.nodes[-1]
        edge = replace(self._edge, source=node.id)
        part.graph.add(Write(sink), (edge,), self.schema, label="collected", name="collected", parallelism=1)
        return part
