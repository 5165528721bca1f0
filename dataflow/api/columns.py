"""Methods of a stream that keep its rows: choose rows, compute columns, and declare event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dataflow.api.stream_base import StreamBase
from dataflow.clock import Duration, microseconds
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.windows import EventTime
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Expr, col
from dataflow.planning.checks import (
    as_expression,
    check_distinct,
    check_options,
    column_expressions,
    timestamp_advice,
)
from dataflow.planning.specs import Filter, Project, Read, Watermarks

if TYPE_CHECKING:
    from dataflow.api.streams import Stream

__all__ = ["ColumnMethods"]

_TWICE: Final = 'leave one out, or rename it, as in col("old").alias("new")'


class ColumnMethods(StreamBase):
    """The methods of `Stream` that take columns and expressions."""

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
