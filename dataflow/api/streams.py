"""The class of streams: partitioning, side outputs, unions and sinks. Its other methods are in the files beside it.

Every method checks its arguments and adds a node to the graph; nothing runs until `Pipeline.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dataflow.api.custom_operators import OperatorMethods
from dataflow.api.functions import FunctionMethods
from dataflow.api.joins import JoinMethods
from dataflow.api.lookups import LookupMethods
from dataflow.api.process import ProcessMethods
from dataflow.api.splits import SplitMethods
from dataflow.api.uniques import UniqueMethods
from dataflow.clock import Duration
from dataflow.contracts.panes import Panes, Trigger
from dataflow.contracts.sink import Sink
from dataflow.contracts.untimed import Untimed
from dataflow.contracts.updates import CHANGE, Updates, meaning_error
from dataflow.contracts.windows import Window
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Aggregation, Expr, Latest
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.checks import check_zones, columns_of, key_names
from dataflow.planning.graph import Edge, Partitioning
from dataflow.planning.specs import Union, Write
from dataflow.registry import resolve
from dataflow.state.codec import check_json

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.keyed_streams import KeyedStream
    from dataflow.api.pipeline import Pipeline
    from dataflow.api.windowed_streams import WindowedStream
    from dataflow.planning.chosen_row_specs import By, Ties

__all__ = ["Stream"]


class Stream(SplitMethods, UniqueMethods, FunctionMethods, OperatorMethods, JoinMethods, LookupMethods, ProcessMethods):
    """The rows that an operator emits. Every method returns a new stream; using one stream twice branches it.

    ``schema`` and ``changes`` are known, and checked, while the graph is built.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="numbers")
    >>> numbers.filter(flow.col("x") > 1, name="large")
    Stream('large', [x: int64])
    """

    def key_by(self, *keys: str | Expr | Sequence[str | Expr]) -> KeyedStream:
        """Return the same rows, such that rows with equal ``keys`` meet in one subtask. Null is a key like any other.

        Args:
            keys: names of columns, plain columns such as ``col("shop")``, or lists of these.

        Returns: a stream on which aggregates and windows per key can be computed.

        Raises:
            GraphError: no key is given, one is given twice or computed, or updates would be keyed by other columns than
                their update keys (see `changes`).
            UnknownColumn: the stream has no such column.
            SchemaMismatch: a key is a list, struct or map.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})))
        >>> rows.key_by("k").agg(total=flow.col("x").sum()).collect().sort_by("k")["total"].to_pylist()
        [4, 2]
        """
        names = key_names(keys, self.schema, "key_by")
        from dataflow.api.keyed_streams import KeyedStream

        meaning = self._meaning
        if isinstance(meaning, Updates) and (others := meaning.others(names)):
            columns = ", ".join(map(repr, others))
            raise meaning_error("key_by", meaning, f"updates of one key would be spread by {columns}")
        if self._is_signed and CHANGE in names:
            raise GraphError(f"key_by: {CHANGE!r} says how a row counts, so it is no key; leave it out")
        return KeyedStream(self._pipeline, self._node, self._spread(Partitioning.HASH, names))

    def rebalance(self) -> Stream:
        """Return the same rows, spread evenly over the subtasks of the next operator.

        Raises: GraphError for updates, which would lose their order (see `changes`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), parallelism=1)
        >>> sorted(rows.rebalance().map(lambda row: row, parallelism=2).collect()["x"].to_pylist())
        [1, 2]
        """
        self._refuse("rebalance", updates="an update could overtake a later one of its key")
        return Stream(self._pipeline, self._node, self._spread(Partitioning.REBALANCE))

    def broadcast(self) -> Stream:
        """Return the same rows, each of them sent to every subtask of the next operator.

        Raises: GraphError for updates (see `changes`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), parallelism=1)
        >>> sorted(rows.broadcast().map(lambda row: row, parallelism=2).collect()["x"].to_pylist())
        [1, 1, 2, 2]
        """
        once_more = "every subtask would emit every row once more"
        self._refuse("broadcast", updates=once_more, signed=once_more)
        return Stream(self._pipeline, self._node, self._spread(Partitioning.BROADCAST))

    def side(self, tag: str) -> Stream:
        """Return the rows that the operator emits with ``tag``, in the columns declared for it.

        Args:
            tag: the name of a side output: ``"errors"``, ``"late"``, or one declared in `apply`.

        Raises: GraphError if the operator has no such side output; the message lists those it has.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 0]})))
        >>> inverse = rows.map(lambda row: {"x": 1 // row["x"]}, on_error="side")
        >>> inverse.side("errors").collect()["row"].to_pylist()
        ["{'x': 0}"]
        """
        sides = self._node.sides
        if tag not in sides:
            advice = self._node.spec.side_advice(tag)
            existing = f"it has {list(sides)}" if sides else "" if advice else "it has none"
            raise GraphError(f"{self.name!r} has no side output {tag!r}; {'; '.join(filter(None, [existing, advice]))}")
        return Stream(self._pipeline, self._node, Edge(self._node.id, None, (), tag))

    def union(self, *others: Stream, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return the rows of this stream and of ``others``, in no particular order.

        Args:
            others: streams of the same pipeline with equal schemas.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream that has event time if all inputs have it in the same column.

        Raises:
            SchemaMismatch: the schemas differ.
            GraphError: a stream belongs to another pipeline, or holds updates (see `changes`).

        If one of the streams has signed changes, so has the result; the rows of streams without signs are added (+1).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> p = flow.Pipeline()
        >>> left, right = (p.source(op.from_arrow(pa.table({"x": [x]}))) for x in (1, 2))
        >>> sorted(left.union(right).collect()["x"].to_pylist())
        [1, 2]
        """
        self._same_pipeline(others, "union")
        for other in others:
            for one, another in zip(self._columns, other._columns, strict=False):
                if one.name == another.name:
                    check_zones("union", (repr(self.name), one), (repr(other.name), another))
            if not other._columns.equals(self._columns):
                raise SchemaMismatch(
                    f"union: {self.name!r} has [{columns_of(self._columns)}] and {other.name!r} has "
                    f"[{columns_of(other._columns)}]; select the same columns, cast to the same types, first"
                )
        streams: list[Stream] = [self, *others]
        time = self._time if all(other._time == self._time for other in others) else None
        with self._pipeline.graph.all_or_none():
            if any(stream._is_signed for stream in streams):
                streams = [stream if stream._is_signed else stream._added() for stream in streams]
            edges = tuple(stream._edge for stream in streams)
            return self._then(Union(), streams[0].schema, "union", name, parallelism, edges, time=time)

    def sink(self, sink: Sink, *, name: str | None = None, parallelism: int | None = None) -> None:
        """Send the rows to ``sink``. A stream may have several sinks.

        Args:
            sink: the destination, such as ``op.write_parquet("out/")``.
            name: the sink's name in results, summaries and checkpoints; None: an automatic one.
            parallelism: how many writers it has; None: as many as the run says.

        Raises:
            GraphError: ``sink`` is no `Sink`.
            SchemaMismatch: it cannot write these columns.
            TypeError, ValueError: checkpoints cannot store its ``fixed_settings``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.collect(), name="out")
        >>> p.run().table("out")["x"].to_pylist()
        [1, 2]
        """
        if not isinstance(sink, Sink):
            raise GraphError(f"sink: expected a Sink such as op.write_parquet(...), got {type(sink).__name__}")
        sink.check(self.schema)
        check_json(sink.fixed_settings, f"sink: fixed_settings of {sink!r}")
        edge = self._spread(Partitioning.HASH, key_names(sink.keys, self.schema, "sink")) if sink.keys else self._edge
        self._then(Write(sink), self.schema, "sink", name, parallelism, (edge,))

    def agg(
        self,
        *aggregations: Aggregation | Latest | Mapping[str, Aggregation],
        emit: str | Emit | None = None,
        every: Duration | None = None,
        name: str | None = None,
        **named: Any,
    ) -> Stream:
        """Return aggregates over all rows, one column for each; `KeyedStream.agg` computes them per key.

        One subtask computes them. Rows are folded before, in the subtasks that have them, if records of the aggregates
        can be merged. Input that ends without a row gives one row: counts are 0, other aggregates null.

        Args:
            aggregations: ``op.count()``, ``col("price").max()``, ...; keyword arguments and mappings name them.
            emit: ``"updates"``: a row for each batch, of which the last counts (see `changes`); ``"changes"``: the row
                that was shown with ``change`` -1, and the new one with +1; ``"final"``: one row at the end. Default:
                final for bounded input; else changes for signed input, updates for rows.
            every: with updates and changes, the least time between two emissions. None: after each batch.
            name: the operator's name. A column called ``name`` is given in a mapping: ``agg({"name": op.count()})``.
            named: aggregates under new names.

        Raises:
            GraphError: no aggregate is given, a value is not an aggregate, two columns have one name, or this stream
                holds updates.
            ConfigurationError: ``emit`` is unknown, ``every`` is zero, or is given with ``emit="final"``.
            SchemaMismatch: an aggregate cannot take its column's type.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})))
        >>> rows.agg(n=op.count(), total=flow.col("x").sum()).collect().to_pylist()
        [{'n': 2, 'total': 3}]
        >>> rows.filter(flow.col("x") > 2).agg(n=op.count(), total=flow.col("x").sum()).collect().to_pylist()
        [{'n': 0, 'total': None}]
        """
        return self._all_rows().agg(*aggregations, emit=emit, every=every, name=name, **named)

    def window(
        self,
        window: Window | Untimed,
        *,
        lateness: Duration = "0s",
        early: Trigger | None = None,
        late: Trigger | None = None,
        panes: str | Panes = "accumulating",
    ) -> WindowedStream:
        """Return all rows, cut into windows; `KeyedStream.window` cuts the rows of each key.

        Args:
            window: as for `KeyedStream.window`.
            lateness: likewise.
            early: likewise.
            late: likewise.
            panes: likewise.

        Returns: a stream whose aggregates have no key columns, and are computed in one subtask. Operators and sinks
            after it with more subtasks get its rows round-robin, so their order across subtasks is lost, for discarding
            panes too. Where the order counts, give them ``parallelism=1``. (Updates of a window go to one
            subtask, in order.)

        Raises: the errors of `KeyedStream.window`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"at": pa.array([1, 2, 12], pa.timestamp("s"))})
        >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
        >>> rows.window(op.tumbling("10s")).agg(n=op.count()).collect()["n"].to_pylist()
        [2, 1]
        """
        return self._all_rows().window(window, lateness=lateness, early=early, late=late, panes=panes)

    def top(
        self,
        n: int,
        *,
        by: By,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "arrival",
        ttl: Duration | None = None,
        emit: str | Emit | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the first ``n`` of all rows by the order of columns, with their ``rank``.

        One subtask ranks them; `KeyedStream.top` ranks those of each key.

        Args and Raises: as for `KeyedStream.top`; ``parallelism`` is 1.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"price": [3, 9, None, 5]})))
        >>> rows.top(2, by="price").collect().to_pylist()
        [{'price': 9, 'rank': 1}, {'price': 5, 'rank': 2}]
        """
        return self._all_rows().top(
            n,
            by=by,
            descending=descending,
            ties=ties,
            ttl=ttl,
            emit=emit,
            name=name,
            parallelism=parallelism,
        )

    def _all_rows(self) -> KeyedStream:
        """Return this stream, such that one subtask of the next operator gets all rows."""
        from dataflow.api.keyed_streams import KeyedStream

        return KeyedStream(self._pipeline, self._node, self._spread(Partitioning.HASH))

    def collect(self, *, net: bool = False, **options: Any) -> pa.Table:
        """Run the operators that this stream depends on, and return its rows.

        Args:
            net: of signed changes, return the rows that are left: see ``op.collect``.
            options: as for `Pipeline.run`, ``runner=`` included.

        Returns: a ``pyarrow.Table``, held in memory.

        Raises: the errors of `Pipeline.run`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]}))).collect()["x"].to_pylist()
        [1, 2]
        """
        return self._alone(resolve("sink", "collect")(net=net)).run(**options).table("collected")

    def head(self, n: int = 5, **options: Any) -> pa.Table:
        """Return the first ``n`` rows to arrive; the job stops as soon as they are there.

        Args:
            n: the number of rows, at least 1.
            options: as for `Pipeline.run`, ``runner=`` included.

        Returns: a ``pyarrow.Table`` of at most ``n`` rows.

        Raises: the errors of `Pipeline.run`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]}))).head(2).num_rows
        2
        """
        return self._alone(resolve("sink", "head")(n)).run(**options).table("collected")

    def _alone(self, sink: Sink) -> Pipeline:
        """Return a pipeline of the operators that this stream depends on, with ``sink`` at its end."""
        from dataflow.api.pipeline import Pipeline

        part = Pipeline(self._pipeline.name)
        part.graph = self._pipeline.graph.upstream(self._node)
        node = part.graph.nodes[-1]
        edge = replace(self._edge, source=node.id)
        part.graph.add(Write(sink), (edge,), self.schema, label="collected", name="collected", parallelism=1)
        return part
