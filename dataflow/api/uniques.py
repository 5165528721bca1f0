"""``unique``: one row of each key, the first to arrive or the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from dataflow.api.columns import ColumnMethods
from dataflow.clock import Duration
from dataflow.contracts.updates import CHANGE
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Expr, col, lit
from dataflow.expressions.aggregates import aggregate
from dataflow.planning.checks import check_options, check_state_keys, key_names
from dataflow.planning.graph import Partitioning

if TYPE_CHECKING:
    from dataflow.api.streams import Stream
    from dataflow.planning.aggregate_specs import Emit

__all__ = ["UniqueMethods"]

Keep = Literal["first", "last"]

NO_COLUMNS = "barrierflow:none"
"""The column of an aggregate of rows that have no columns but their keys."""


class UniqueMethods(ColumnMethods):
    """The method of `Stream` that removes duplicates."""

    def unique(
        self,
        *keys: str | Expr | Sequence[str | Expr],
        keep: Keep = "first",
        ttl: Duration | None = None,
        emit: str | Emit | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return one row for each key. Null is a key like any other; NaN equals NaN, and -0.0 equals 0.0.

        Args:
            keys: names of columns, plain columns such as ``col("id")``, or lists of these.
            keep: ``"first"``: the first row to arrive comes out at once. ``"last"``: the row with the latest event time
                counts, of rows with equal times the last to arrive; without event time the last to arrive.
            ttl: how long a key is kept after its last row, so that state does not grow for ever; then it starts anew.
                It is measured as in `KeyedStream.agg`. None: keys are kept until the end.
            emit: for ``keep="last"``: ``"final"``: the rows come out at the end; ``"changes"``: at once, and are taken
                back (``change`` -1) when a later one of their key comes. Default: final for bounded input, else
                changes. Expiry takes nothing back.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream with the same columns. With ``keep="first"`` it has the same event time; else it has none, and
            with changes the column ``change`` at the end.

        Raises:
            GraphError: no key is given, or one is given twice or computed; the rows are updates or signed changes;
                ``emit`` is given with ``keep="first"``; ``ttl`` is given with ``emit="final"``.
            UnknownColumn: the stream has no such column.
            SchemaMismatch: a key is a list, struct or map; for ``keep="last"`` any column is.
            ConfigurationError: ``keep``, ``emit`` or ``ttl`` is wrong.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"id": [1, 1, 2], "at": pa.array([1, 5, 2], pa.timestamp("s")), "x": ["a", "b", "c"]})
        >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
        >>> rows.unique("id").collect()["x"].to_pylist()
        ['a', 'c']
        >>> rows.unique("id", keep="last").collect().sort_by("id")["x"].to_pylist()
        ['b', 'c']
        """
        from dataflow.planning.chosen_row_specs import Unique, time_to_live

        check_options("unique", self.schema, name=name, parallelism=parallelism, ttl=ttl, emit=emit)
        if keep not in get_args(Keep):
            raise ConfigurationError(f"unique(keep=) must be 'first' or 'last', got {keep!r}")
        names = key_names(keys, self.schema, "unique")
        check_state_keys(names, self.schema, "unique")
        if keep == "last":
            return self._last_of_key(names, ttl, emit, name, parallelism)
        if emit is not None:
            raise GraphError(
                f"unique(emit={emit!r}) needs keep='last'; the first row of a key comes out once and stays, so leave "
                "emit= out"
            )
        kept = time_to_live(ttl, "unique")
        spec, edge = Unique(names, kept, None if kept is None else self._time), self._spread(Partitioning.HASH, names)
        return self._then(spec, self.schema, "unique", name, parallelism, (edge,), time=self._time)

    def _last_of_key(
        self,
        keys: tuple[str, ...],
        ttl: Duration | None,
        emit: str | Emit | None,
        name: str | None,
        parallelism: int | None,
    ) -> Stream:
        """Return the last row of each key: an aggregate of all other columns, put back into their order."""
        import pyarrow as pa

        from dataflow.planning.aggregate_specs import Emit
        from dataflow.planning.chosen_row_specs import LastOfKey, choose_row_emit, time_to_live

        problem = "a row that was the last one of its key could be"
        self._refuse("unique", updates=f"{problem} replaced", signed=f"{problem} taken back")
        if CHANGE in self.schema.names:
            raise GraphError(
                f"unique(keep='last'): the stream has a column {CHANGE!r}, which is the name of the column that says "
                "how a changed row counts; rename or drop it"
            )
        by = None if self.time is None else col(self.time)
        others = [each for each in self.schema.names if each not in keys]
        last = [aggregate("last", col(each), name=each, by=by) for each in others]
        if refused := [a.name for a in last if not a.takes(self.schema)]:
            raise SchemaMismatch(
                f"unique(keep='last'): the columns {', '.join(map(repr, refused))} cannot be kept, because the last "
                "value of nested types and null is unknown; drop or flatten them before, or use keep='first'"
            )
        aggregations = last or [lit(0).max().alias(NO_COLUMNS)]
        graph = self._pipeline.graph
        chosen, because = choose_row_emit(emit, ttl, graph.upstream(self._node), self._meaning, "unique")
        fields = [self.schema.field(key) for key in keys]
        fields += [pa.field(a.name, a.dtype(self.schema, where="unique")) for a in aggregations]
        if chosen is Emit.CHANGES:
            fields.append(pa.field(CHANGE, pa.int8()))
        kept = time_to_live(ttl, "unique")
        spec = LastOfKey(
            keys, tuple(aggregations), chosen, None, because, kept, self._time if kept is not None else None
        )
        edge = self._spread(Partitioning.HASH, keys)
        with graph.all_or_none():
            rows = self._then(spec, pa.schema(fields), "unique", name, parallelism, (edge,))
            return rows._project([col(each) for each in self.schema.names], f"{rows.name}.columns", None, parallelism)
