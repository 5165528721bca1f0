"""The user's words for rows on their way. Every word checks what it is given and adds a node; nothing runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from dataflow.api.functions import Functions
from dataflow.clock import Duration, microseconds
from dataflow.contracts.operator import Operator, OperatorFactory
from dataflow.contracts.row_errors import ERRORS, LATE, OnError, errors_schema
from dataflow.contracts.sink import Sink
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import Changes, Updates, updates_error
from dataflow.contracts.windows import EventTime, Tumbling
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Expr, col
from dataflow.planning.checks import (
    as_expression,
    check_distinct,
    check_key_types,
    check_options,
    column_expressions,
    columns_of,
    key_names,
    schema_or_default,
    side_schemas,
    timestamp_advice,
)
from dataflow.planning.graph import Edge, Node, Partitioning
from dataflow.planning.specs import (
    Apply,
    Filter,
    Project,
    Read,
    Union,
    Watermarks,
    WindowAggregate,
    Write,
)
from dataflow.registry import resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.keyed_streams import KeyedStream, WindowedStream
    from dataflow.api.pipeline import Pipeline

__all__ = ["Stream"]


_TWICE: Final = 'leave one out, or rename it, as in col("old").alias("new")'


class Stream(Functions):
    """The rows that come out of an operator. Every method returns a new stream; using one twice branches.

    ``schema`` is known, and checked, while the graph is built. So is the meaning of the rows, see ``changes``.
    """

    def __init__(self, pipeline: Pipeline, node: Node, edge: Edge | None = None) -> None:
        self._pipeline = pipeline
        self._node = node
        self._edge = edge or Edge(node.id)

    @property
    def schema(self) -> pa.Schema:
        return self._node.output(self._edge.tag)

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def changes(self) -> Changes:
        """Meaning of the rows: ``"rows"``, each row counts; ``"updates"``, the last row of each update key counts.

        Aggregates with ``emit="updates"`` give updates. Their update keys are the columns of `key_by`, for windows also
        ``window_start`` and ``window_end``. Updates may go to any sink, through `select` and `with_columns` that keep
        every update key unchanged (it may be renamed), through `filter` on update keys, and to `key_by` on update keys.
        Everything else would count rows that were replaced, and raises GraphError; see `as_rows`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]})))
        >>> counts = rows.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts")
        >>> rows.changes, counts.changes, counts.select("n", key=flow.col("k")).changes
        ('rows', 'updates', 'updates')
        """
        return "rows" if self._updates is None else "updates"

    @property
    def _updates(self) -> Updates | None:
        return self._pipeline.graph.updates_of(self._edge)

    def as_rows(self) -> Self:
        """Return the same rows, each of which counts from here on, even if they are updates.

        Adds no operator. How many updates of a key there are depends on how the input was cut into batches, and so does
        what is computed from them.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]}), batch_rows=1))
        >>> counts = rows.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts")
        >>> counts.as_rows().map(lambda row: row).collect()["n"].to_pylist()
        [1, 2, 1]
        """
        return type(self)(self._pipeline, self._node, replace(self._edge, as_rows=True))

    def _refuse_updates(self, method: str, problem: str) -> None:
        if (updates := self._updates) is not None:
            raise updates_error(method, updates, problem)

    @property
    def time(self) -> str | None:
        """The column that holds event time, where `with_watermark` said so and it is still there; else None."""
        return None if self._time is None else self._time.column

    @property
    def _time(self) -> EventTime | None:
        if self._edge.tag is None:
            return self._node.time
        late = self._edge.tag == LATE and isinstance(self._node.spec, WindowAggregate)  # rows as the window took them
        return self._pipeline.graph.nodes[self._node.inputs[0].source].time if late else None

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"{type(self).__name__}({self.name!r}, [{columns}])"

    def _then(
        self,
        spec: Spec,
        schema: pa.Schema,
        label: str,
        name: str | None,
        parallelism: int | None,
        inputs: tuple[Edge, ...] | None = None,
        sides: Mapping[str, pa.Schema] | None = None,
        time: EventTime | None = None,
        method: str | None = None,
    ) -> Stream:
        node = self._pipeline.graph.add(
            spec,
            inputs or (self._edge,),
            schema,
            label=label,
            name=name,
            parallelism=parallelism,
            sides=sides,
            time=time,
            method=method,
        )
        return Stream(self._pipeline, node)

    def filter(self, predicate: str | Expr, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return the rows for which ``predicate``, an expression or a column's name, is true; null counts as false.

        Raises: SchemaMismatch where the predicate is not boolean; GraphError where it reads other columns of updates
        than their update keys (see `changes`).
        """
        import pyarrow as pa

        predicate = as_expression(predicate, "filter")
        kind = predicate.dtype(self.schema, where="filter")
        if kind != pa.bool_():
            raise SchemaMismatch(f"filter: expected a boolean expression, found {predicate} of type {kind}")
        return self._then(Filter(predicate), self.schema, "filter", name, parallelism, time=self._time)

    def select(
        self,
        *columns: str | Expr | Mapping[str, Any],
        name: str | None = None,
        parallelism: int | None = None,
        **named: Any,
    ) -> Stream:
        """Return exactly these columns, in this order.

        Args:
            columns: names of columns, expressions, and mappings from new names to either.
            name: the operator's name. A column called ``name`` or ``parallelism`` is given in a mapping.
            parallelism: how many subtasks the operator has.
            named: columns under new names. A plain value that is not text is a constant.

        Raises: GraphError for two columns of one name, and for a column given as ``name=`` or ``parallelism=``,
        or where an update key of updates is left out or computed (see `changes`); UnknownColumn; SchemaMismatch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"id": [7], "seller": ["Ann"]})))
        >>> stream.select("id", {"name": "seller"}, one=1).collect().to_pylist()
        [{'id': 7, 'name': 'Ann', 'one': 1}]
        """
        check_options("select", self.schema, name=name, parallelism=parallelism)
        return self._project(column_expressions(columns, named, "select"), "select", name, parallelism)

    def with_columns(
        self,
        *columns: str | Expr | Mapping[str, Any],
        name: str | None = None,
        parallelism: int | None = None,
        **named: Any,
    ) -> Stream:
        """Return all columns, with these added or replaced; ``with_columns(total=col("a") + col("b"))`` names them.

        Takes the same arguments and raises the same errors as `select`; an update key must not be replaced.
        """
        check_options("with_columns", self.schema, name=name, parallelism=parallelism)
        added = column_expressions(columns, named, "with_columns")
        check_distinct([c.name for c in added], "with_columns", _TWICE)
        new = {c.name: c for c in added}
        kept = [new.pop(n) if n in new else col(n) for n in self.schema.names]
        return self._project([*kept, *new.values()], "with_columns", name, parallelism)

    def _project(self, columns: list[Expr], label: str, name: str | None, parallelism: int | None) -> Stream:
        import pyarrow as pa

        if not columns:
            raise GraphError(f"{label}: give at least one column")
        check_distinct([c.name for c in columns], label, _TWICE)
        schema = pa.schema([pa.field(c.name, c.dtype(self.schema, where=label)) for c in columns])
        time = self._time
        name_of_it = next((c.name for c in columns if time is not None and c.is_column(time.column)), None)
        time = None if time is None or name_of_it is None else replace(time, column=name_of_it)
        return self._then(Project(tuple(columns)), schema, label, name, parallelism, time=time)

    def _time_in(self, schema: pa.Schema) -> EventTime | None:
        """Event time, if ``schema`` still has its column as it was."""
        time, name = self._time, self.time
        kept = name is not None and name in schema.names and schema.field(name).type == self.schema.field(name).type
        return time if kept else None

    def with_watermark(
        self,
        column: str,
        *,
        delay: Duration = "0s",
        idle_after: Duration | None = None,
        max_drift: Duration | None = None,
        on_error: str | OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """The same rows, with event time: ``column`` says when each one happened.

        A watermark is made per split of the source: the latest time seen there, less ``delay``; it moves behind each
        batch, so rows of one batch never make each other late. The least one of all splits counts, those included that
        have not been read yet. At the end of the input every window is complete.

        Args:
            column: a timestamp of any unit, with a zone or without.
            delay: how far rows may be out of order.
            idle_after: a split that was asked for rows for so long and gave none does not hold the others back.
            max_drift: a task of the source does not read on while its watermark is so far ahead of another task's, for
                windows that only one of them has reached are state. At least what a file spans, or the tasks take
                turns. None: no limit. A split that falls silent keeps others waiting, unless it has ``idle_after``.
            on_error: what becomes of rows whose time is null: ``"fail"``; ``"skip"``: left out, counted and sampled;
                ``"side"``: set aside in ``.side("errors")``.

        Raises: SchemaMismatch where ``column`` is no timestamp; GraphError where rows of several splits are mixed
        already, behind ``key_by``, ``rebalance``, ``broadcast`` or ``union``.
        """
        import pyarrow as pa

        kind = col(column).dtype(self.schema, where="with_watermark")
        if not pa.types.is_timestamp(kind):
            raise SchemaMismatch(
                f"with_watermark: event time is a timestamp, but {column!r} is {kind}; make one first, as in "
                f"{timestamp_advice(column, kind)}"
            )
        graph, node, edge = self._pipeline.graph, self._node, self._edge
        origin: str | None = column
        while edge.partitioning is None and len(node.inputs) == 1:
            origin = None if origin is None else node.spec.origin_of(origin)
            (edge,), node = node.inputs, graph.nodes[node.inputs[0].source]
        if edge.partitioning is not None or not isinstance(node.spec, Read):
            raise GraphError(
                f"with_watermark: a watermark is made per split of one source, but rows are mixed at {node.name!r}: "
                "call it earlier, before key_by, rebalance, broadcast and union"
            )
        policy = OnError.of(on_error, "with_watermark")
        idle = None if idle_after is None else microseconds(idle_after, "with_watermark(idle_after=)")
        if idle == 0:
            raise ConfigurationError("with_watermark(idle_after=) is above zero; leave it out to wait for all splits")
        drift = None if max_drift is None else microseconds(max_drift, "with_watermark(max_drift=)")
        spec = Watermarks(column, origin, microseconds(delay, "with_watermark(delay=)"), idle, policy, drift)
        sides = {ERRORS: errors_schema()} if policy is OnError.SIDE else {}
        return self._then(
            spec, self.schema, "with_watermark", name, self._node.parallelism, sides=sides, time=EventTime(column)
        )

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

    def apply(
        self,
        operator: OperatorFactory,
        *others: Stream,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Any operator of one's own: ``operator(context)`` builds it, once a subtask.

        Args:
            operator: a subclass of `Operator` whose constructor takes an `OperatorContext`, or a function from context
                to operator (``functools.partial`` passes further arguments).
            others: further inputs. This stream comes in on port 0 of ``process``, the others on 1, 2, ... Where more
                than one input is keyed, their keys have the same types in the same order, so equal keys meet.
            schema: the schema of its rows; None: the schema of its inputs, which must then be the same for all. A batch
                with these columns in another order is put in order; one with other columns fails the job. The stream
                keeps its event time if it keeps the column's name and type. Then rows are late downstream if they are
                before a watermark that the operator has passed on.
            sides: the schema of each side output by its tag, for `side`; None means the schema of the main output.
                There are no other side outputs.

        Raises: GraphError for anything but an operator, or a stream of another pipeline, or of updates (see `changes`);
        SchemaMismatch for keys that cannot meet, or for inputs that differ without ``schema``.
        """
        if isinstance(operator, Operator) or not callable(operator):
            raise GraphError(
                f"apply: expected an Operator class or a function from OperatorContext to Operator, got "
                f"{type(operator).__name__}; each subtask needs an operator of its own"
            )
        described: Any = inspect.unwrap(getattr(operator, "func", operator))
        label = getattr(described, "__qualname__", type(described).__name__)
        spec = Apply(
            operator,
            label,
            stateless=getattr(described, "stateless", False),
            blocking=getattr(described, "blocking", False),
        )
        return self._joined("apply", "apply", spec, others, schema, sides, name, parallelism)

    def then(
        self,
        spec: Spec,
        *others: Stream,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the output of an operator of another kind: the one that `register` was told of for ``spec``'s class.

        Unlike `apply`, the spec tells the engine which columns the operator reads, whether it keeps state, and what it
        makes of updates: see `Spec`.

        Args:
            spec: the settings of the operator.
            others, schema, sides: as for `apply`.
            name: the operator's name; None: the kind of the spec.
            parallelism: how many subtasks the operator has.

        Raises: GraphError for anything but a spec, a stream of another pipeline, or updates that the operator would
        count as rows; SchemaMismatch for keys that cannot meet, or for inputs that differ without ``schema``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> from dataflow import col
        >>> from dataflow.planning.specs import Filter
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]})))
        >>> numbers.then(Filter(col("x") > 1)).collect()["x"].to_pylist()
        [2, 3]
        """
        if not isinstance(spec, Spec):
            raise GraphError(
                f"then: expected a Spec, got {type(spec).__name__}; an Operator class is given to apply(...)"
            )
        return self._joined("then", spec.kind, spec, others, schema, sides, name, parallelism)

    def _joined(
        self,
        method: str,
        label: str,
        spec: Spec,
        others: Sequence[Stream],
        schema: pa.Schema | None,
        sides: Mapping[str, pa.Schema | None] | None,
        name: str | None,
        parallelism: int | None,
    ) -> Stream:
        from dataflow.api.keyed_streams import KeyedStream

        inputs = (self, *others)
        self._same_pipeline(others, method)
        check_key_types((s.name, s.schema, s.keys) for s in inputs if isinstance(s, KeyedStream))
        if schema is None and not all(other.schema.equals(self.schema) for other in others):
            raise SchemaMismatch(
                f"{method}: the inputs differ, so say what comes out: {method}(..., schema=pa.schema(...))"
            )
        made = schema_or_default(schema, self.schema, method)
        tagged = side_schemas(sides, made)
        edges = tuple(stream._edge for stream in inputs)
        return self._then(
            spec, made, label, name, parallelism, edges, sides=tagged, time=self._time_in(made), method=method
        )

    def _same_pipeline(self, others: Iterable[Stream], where: str) -> None:
        for other in others:
            if not isinstance(other, Stream):
                raise GraphError(f"{where}: expected a stream, got {other!r} ({type(other).__name__})")
            if other._pipeline is not self._pipeline:
                raise GraphError(
                    f"{where}: {other.name!r} belongs to another pipeline ({other._pipeline.name!r}, not "
                    f"{self._pipeline.name!r})"
                )

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
