"""The methods of a stream that take columns and expressions: filter, select, drop, with_watermark and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dataflow.api.stream_base import StreamBase
from dataflow.clock import Duration, microseconds
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch, UnknownColumn
from dataflow.expressions import Expr, col, lit
from dataflow.planning.checks import (
    check_condition,
    check_distinct,
    check_options,
    column_expressions,
    timestamp_advice,
)
from dataflow.planning.specs import AddRows, Filter, ProcessingTime, Project, Read, Watermarks

if TYPE_CHECKING:
    from dataflow.api.streams import Stream

__all__ = ["ColumnMethods"]

_TWICE: Final = 'leave one out, or rename it, as in col("old").alias("new")'


class ColumnMethods(StreamBase):
    """The methods of `Stream` that take columns and expressions."""

    def filter(self, predicate: str | Expr, *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return the rows for which ``predicate`` is true; null counts as false.

        Args:
            predicate: a boolean expression, or the name of a boolean column.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream with the same columns and event time.

        Raises:
            SchemaMismatch: the predicate is not boolean.
            UnknownColumn: it reads a column that the stream does not have.
            GraphError: the rows are updates, and it reads columns that are not update keys (see `changes`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> prices = flow.Pipeline().source(op.from_arrow(pa.table({"price": [1, 5, None, 9]})))
        >>> prices.filter(flow.col("price") > 3).collect()["price"].to_pylist()
        [5, 9]
        """
        condition = check_condition(predicate, self.schema, "filter")
        return self._then(Filter(condition), self.schema, "filter", name, parallelism, time=self._time)

    def select(
        self,
        *columns: str | Expr | Mapping[str, Any],
        name: str | None = None,
        parallelism: int | None = None,
        **named: Any,
    ) -> Stream:
        """Return the given columns only, in this order.

        Args:
            columns: names of columns, expressions, and mappings from new names to either.
            name: the operator's name. A column called ``name`` or ``parallelism`` is given in a mapping.
            parallelism: how many subtasks the operator has; None: as many as the run says.
            named: columns under new names. A plain value that is not text is a constant.

        Returns: a stream that keeps its event time if the column is selected unchanged (it may be renamed).

        Raises:
            UnknownColumn: an expression reads a column that the stream does not have.
            SchemaMismatch: an expression does not fit the types of its columns.
            GraphError: two columns have one name, a column is given as ``name=`` or ``parallelism=``, or an update key
                is left out or computed (see `changes`).

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
        """Return all columns, with the given ones added, or replaced if the stream has their names.

        Args and Raises: as for `select`; an update key must not be replaced.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"a": [1], "b": [2]})))
        >>> stream.with_columns(total=flow.col("a") + flow.col("b")).collect().to_pylist()
        [{'a': 1, 'b': 2, 'total': 3}]
        """
        check_options("with_columns", self.schema, name=name, parallelism=parallelism)
        added = column_expressions(columns, named, "with_columns")
        check_distinct([c.name for c in added], "with_columns", _TWICE)
        new = {c.name: c for c in added}
        present = [new.pop(n) if n in new else col(n) for n in self._columns.names]
        return self._project([*present, *new.values()], "with_columns", name, parallelism)

    def drop(self, *columns: str, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return all columns but the given ones.

        Args:
            columns: names of columns.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream that keeps its event time if that column is not dropped.

        Raises:
            UnknownColumn: the stream has no such column.
            TypeError: a name is no text.
            GraphError: no column is given, or none would be left, or an update key is dropped (see `changes`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"a": [1], "b": [2], "c": [3]})))
        >>> stream.drop("a", "c").collect().to_pylist()
        [{'b': 2}]
        """
        self._check_names(columns, "drop")
        dropped = frozenset(columns)
        left = [col(each) for each in self._columns.names if each not in dropped]
        if not left:
            raise GraphError(f"drop: no column would be left of [{', '.join(self._columns.names)}]; keep at least one")
        return self._project(left, "drop", name, parallelism)

    def rename(self, columns: Mapping[str, str], *, name: str | None = None, parallelism: int | None = None) -> Stream:
        """Return the same columns in the same order, some of them under new names. Two may exchange their names.

        Args:
            columns: new names by old names.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream whose event time and update keys are the same columns, under their new names.

        Raises:
            UnknownColumn: the stream has no column of an old name.
            TypeError: ``columns`` is no mapping, or a name is no text.
            GraphError: no column is given, or two columns would have one name.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"a": [1], "b": [2]})))
        >>> stream.rename({"a": "b", "b": "c"}).collect().to_pylist()
        [{'b': 1, 'c': 2}]
        """
        if not isinstance(columns, Mapping):
            raise TypeError(f"rename takes a mapping of old to new names, such as {{'a': 'b'}}, got {columns!r}")
        self._check_names(tuple(columns), "rename")
        named = [col(each).alias(columns[each]) if each in columns else col(each) for each in self._columns.names]
        return self._project(named, "rename", name, parallelism)

    def _check_names(self, columns: tuple[str, ...], method: str) -> None:
        """Raise unless ``columns`` are names of at least one column, and of this stream."""
        if not columns:
            raise GraphError(f"{method}: no column is given; give at least one")
        valid = frozenset(self._columns.names)
        for each in columns:
            if not isinstance(each, str):
                raise TypeError(f"{method} takes names of columns, got {each!r}")
            if each not in valid:
                raise UnknownColumn(each, self._columns.names, method)

    def _project(self, columns: list[Expr], label: str, name: str | None, parallelism: int | None) -> Stream:
        """Add an operator that computes exactly ``columns``."""
        import pyarrow as pa

        if not columns:
            raise GraphError(f"{label}: no column is given; give at least one")
        if self._is_signed:
            if any(c.name == CHANGE for c in columns):
                raise GraphError(
                    f"{label}: {CHANGE!r} is kept without being named, because it says how each row of {self.name!r} "
                    "counts; leave it out, and give no other column its name"
                )
            columns = [*columns, col(CHANGE)]
        check_distinct([c.name for c in columns], label, _TWICE)
        schema = pa.schema([pa.field(c.name, c.dtype(self.schema, where=label)) for c in columns])
        return self._then(Project(tuple(columns)), schema, label, name, parallelism, time=self._time_after(columns))

    def _time_after(self, columns: list[Expr]) -> EventTime | None:
        """Return the event time of a projection to ``columns``; None if its column is not among them."""
        time = self._time
        name_of_it = next((c.name for c in columns if time is not None and c.is_column(time.column)), None)
        return None if time is None or name_of_it is None else replace(time, column=name_of_it)

    def _added(self) -> Stream:
        """Return the rows as signed changes: each is added."""
        import pyarrow as pa

        if CHANGE in self.schema.names:
            raise GraphError(
                f"union: {self.name!r} has a column {CHANGE!r} that is none of a signed stream; rename or drop it"
            )
        columns = [*map(col, self.schema.names), lit(1).cast("int8").alias(CHANGE)]
        schema = self.schema.append(pa.field(CHANGE, pa.int8()))
        return self._then(AddRows(tuple(columns)), schema, "add", None, None, time=self._time, method="union")

    def with_watermark(
        self,
        column: str,
        *,
        delay: Duration = "0s",
        idle_after: Duration | None = None,
        close_after: Duration | None = None,
        max_drift: Duration | None = None,
        ahead: Duration | None = None,
        on_error: str | OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """Return the same rows, with event time: ``column`` holds the time at which each row happened.

        A watermark T means that no row before T is expected. It is computed per split of the source: the latest time
        read from the split, less ``delay``. It moves after each batch, so rows of one batch never make each other late.
        The lowest watermark of all splits counts, including splits that have not been read yet. At the end of the input
        every window is complete.

        Args:
            column: the name of a timestamp column of any unit, with a time zone or without.
            delay: how far rows may be out of order.
            idle_after: a split that gave no rows for this long, although it was polled, does not hold the others back.
                None: it always does.
            close_after: after a split gave no rows for this long, although it was polled, its watermark moves on with
                the clock: the latest time, less ``delay``, plus the time polled in vain. Rows that come later are late
                by the usual rule. It also does so if all splits are idle. A split that has had no row does not move:
                give ``idle_after``, too. None: it never does.
            max_drift: a task of the source does not read on while its watermark is more than this ahead of another
                task's. That bounds the state, because each window that only one task has reached is kept. Give at least
                the time span of a file, or the tasks take turns. None: no limit. A split without rows makes the others
                wait, unless there is ``idle_after``.
            ahead: how far a time may be ahead of the clock when its row is read. A row that is further ahead goes by
                ``on_error`` and moves no watermark, so that one wrong time makes no other row late. A column without a
                zone is in UTC. Give more than the clocks of sources may differ. Without effect in a batch. None: any.
            on_error: the policy for rows whose time is null, or too far ``ahead``. ``"fail"``: the job fails;
                ``"skip"``: they are left out, counted and sampled; ``"side"``: they are also sent to
                ``.side("errors")``.
            name: the operator's name in summaries and checkpoints; None: an automatic one.

        Returns: a stream with the same columns, whose `time` is ``column``.

        Raises:
            UnknownColumn: the stream has no such column.
            SchemaMismatch: the column is no timestamp.
            GraphError: rows of several splits are already mixed, after ``key_by``, ``rebalance``, ``broadcast`` or
                ``union``.
            ConfigurationError: a duration is malformed, ``idle_after`` or ``close_after`` is zero, or ``on_error`` is
                unknown.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> at = pa.array([1, 12, 2], pa.timestamp("s"))
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a"] * 3, "at": at})))
        >>> windows = rows.with_watermark("at", delay="15s").key_by("k").window(op.tumbling("10s"))
        >>> windows.agg(op.count().alias("n")).collect()["n"].to_pylist()
        [2, 1]
        """
        import pyarrow as pa

        kind = col(column).dtype(self.schema, where="with_watermark")
        if not pa.types.is_timestamp(kind):
            raise SchemaMismatch(
                f"with_watermark: event time must be a timestamp, but {column!r} is {kind}; compute one first, as in "
                f"{timestamp_advice(column, kind)}"
            )
        graph, node, edge = self._pipeline.graph, self._node, self._edge
        origin: str | None = column
        while edge.partitioning is None and len(node.inputs) == 1:
            origin = None if origin is None else node.spec.origin_of(origin)
            (edge,), node = node.inputs, graph.nodes[node.inputs[0].source]
        if edge.partitioning is not None or not isinstance(node.spec, Read):
            raise GraphError(
                f"with_watermark: a watermark is computed per split of one source, but rows are mixed at "
                f"{node.name!r}; call it earlier, before key_by, rebalance, broadcast and union"
            )
        policy = OnError.of(on_error, "with_watermark")
        idle = None if idle_after is None else microseconds(idle_after, "with_watermark(idle_after=)")
        if idle == 0:
            raise ConfigurationError(
                "with_watermark(idle_after=) must be above zero; leave it out to wait for all splits"
            )
        close = None if close_after is None else microseconds(close_after, "with_watermark(close_after=)")
        if close == 0:
            raise ConfigurationError(
                "with_watermark(close_after=) must be above zero; leave it out to keep the watermark of silent splits"
            )
        drift = None if max_drift is None else microseconds(max_drift, "with_watermark(max_drift=)")
        limit = None if ahead is None else microseconds(ahead, "with_watermark(ahead=)")
        late = microseconds(delay, "with_watermark(delay=)")
        spec = Watermarks(column, origin, late, idle, policy, drift, close, limit)
        sides = {ERRORS: errors_schema()} if policy is OnError.SIDE else {}
        return self._then(
            spec, self.schema, "with_watermark", name, self._node.parallelism, sides=sides, time=EventTime(column)
        )

    def with_processing_time(self, column: str, *, name: str | None = None) -> Stream:
        """Return the same rows with the clock as event time: ``column`` holds the time at which a row is processed.

        The watermark moves on with the clock, with and without rows, so windows come out when they are over. Times
        never go back, and no row is late. After a restore, rows that are read again get new times. The simulated runner
        uses its own clock. On Spark all rows of a micro-batch have one time, and this method comes before ``key_by``,
        ``rebalance``, ``broadcast`` and ``union``.

        Args:
            column: the name of the new column, a timestamp in microseconds and UTC.
            name: the operator's name in summaries and checkpoints; None: an automatic one.

        Returns: a stream with this column after the others, whose `time` is ``column``.

        Raises: GraphError if the stream has such a column, or holds updates (see `changes`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a"]}))).with_processing_time("at")
        >>> counts = rows.key_by("k").window(op.tumbling("1d")).agg(op.count().alias("n"))
        >>> rows.time, sum(counts.collect()["n"].to_pylist())
        ('at', 2)
        """
        import pyarrow as pa

        if not isinstance(column, str) or not column:
            raise GraphError(f"with_processing_time: expected the name of a new column, got {column!r}")
        if column in self.schema.names:
            raise GraphError(
                f"with_processing_time: the stream has a column {column!r}; choose another name, or drop it with select"
            )
        schema = self.schema.append(pa.field(column, pa.timestamp("us", "UTC")))
        spec, time = ProcessingTime(column), EventTime(column)
        return self._then(spec, schema, "with_processing_time", name, self._node.parallelism, time=time)
