"""Keyed streams: aggregates, first rows and windows per key.

Aggregates over all rows are those of a stream with no key columns, which one subtask computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.api.streams import Stream
from dataflow.api.windowed_streams import WindowedStream
from dataflow.clock import Duration, microseconds
from dataflow.contracts.panes import Panes, Trigger
from dataflow.contracts.sliding import Sliding
from dataflow.contracts.untimed import CountWindow, GlobalWindow, Untimed
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.window_kinds import Cumulate, Hopping, SameWindow, Session, Tumbling
from dataflow.contracts.windows import Window
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Aggregation, Latest, col
from dataflow.expressions.aggregates import aggregate
from dataflow.planning.aggregate_specs import Aggregate, Emit
from dataflow.planning.checks import (
    as_expression,
    check_distinct,
    check_options,
    check_state_keys,
    choose_emit,
    columns_of,
)
from dataflow.planning.window_options import window_options
from dataflow.state.ttl import Ttl

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.chosen_row_specs import By, Ties


__all__ = ["KeyedStream"]

_OWN_KINDS = (Tumbling, Hopping, Cumulate, SameWindow, Session, Sliding, GlobalWindow, CountWindow)
"""The kinds of windows of the library."""


class KeyedStream(Stream):
    """A stream partitioned by key: the next operator processes all rows of a key in one subtask.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a"], "x": [1]})), name="rows")
    >>> rows.key_by("k").keys
    ('k',)
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns, in the order in which they were given."""
        return self._edge.keys

    def window(
        self,
        window: Window | Untimed,
        *,
        lateness: Duration = "0s",
        early: Trigger | None = None,
        late: Trigger | None = None,
        panes: str | Panes = "accumulating",
    ) -> WindowedStream:
        """Return the rows of each key, cut into windows.

        Args:
            window: windows of event time: ``op.tumbling("10s")``, ``op.hopping("10s", every="2s")``,
                ``op.cumulate("1d", every="1h")``, ``op.session("10s")``, ``op.sliding("10s")``,
                ``op.same_window()``, or a `Window` of your own; or windows without times:
                ``op.count_window(100)``, ``op.global_window()``.
            lateness: how long after its end (by the watermark) a window still takes rows. ``emit`` of
                `WindowedStream.agg` decides how this affects its results.
            early: when results are shown before the end of a window: ``op.after_rows(n)``, ``op.after_time("1s")`` or
                ``op.at_times("1s")``. None: never.
            late: when results that late rows changed are shown, likewise; it needs ``lateness``. None: after each
                batch. Rows that were not shown when a window takes no more rows are shown then.
            panes: ``"accumulating"``: a result is of all rows so far; ``"discarding"``: of those that were not shown
                before, so results are rows that add up. ``op.session`` takes ``early`` and ``late`` with discarding
                panes only.

        Raises:
            GraphError: ``window`` is no window or does not fit the rows, or the stream has no event time (see
                `with_watermark`), or holds updates (see `changes`). ``late`` is given without lateness, or an option
                that the windows do not have.
            ConfigurationError: ``lateness`` is no duration, or ``panes`` is unknown.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"k": ["a"] * 3, "at": pa.array([1, 2, 12], pa.timestamp("s"))})
        >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
        >>> rows.key_by("k").window(op.tumbling("10s")).agg(n=op.count()).collect()["n"].to_pylist()
        [2, 1]
        """
        checked = self._window(window)
        options = window_options(checked, lateness, early, late, panes, timed=self._time is not None)
        return WindowedStream(self, checked, options)

    def _window(self, window: Window | Untimed) -> Window | Untimed:
        """Return ``window`` if these rows can be cut into such windows. Raises: GraphError."""
        if not isinstance(window, Window | GlobalWindow | CountWindow):
            raise GraphError(
                f"window: expected windows such as op.tumbling(...), got {window!r} ({type(window).__name__})"
            )
        self._refuse(
            "window",
            updates="it would count rows that a later row replaces",
            signed="it would count rows that are taken back",
        )
        if not isinstance(window, Window):
            return window
        if self._time is None:
            raise GraphError(
                "window: the stream has no event time; declare its column close to the source and before "
                'key_by, as in .with_watermark("ts", delay="2s"), and keep that column'
            )
        _check_class(window)
        window.check(self.schema, self._time)
        return window.of(self.schema, self._time) if isinstance(window, SameWindow) else window

    def agg(
        self,
        *aggregations: Aggregation | Latest | Mapping[str, Aggregation],
        emit: str | Emit | None = None,
        every: Duration | None = None,
        ttl: Duration | None = None,
        ttl_from: str = "write",
        name: str | None = None,
        parallelism: int | None = None,
        **named: Aggregation,
    ) -> Stream:
        """Return aggregates per key: the key columns, then one column per aggregate.

        Args:
            aggregations: ``op.count()``, ``col("price").max()``, ...; keyword arguments and mappings name them.
                ``op.latest(...)`` makes a column for each of its columns.
            emit: ``"updates"``: one row per key touched by a batch (a changelog: the last row of a key counts, see
                `changes`); ``"changes"``: for each key whose row a batch changed, the row that was shown, with
                ``change`` -1, directly followed by the new one, with ``change`` +1, in the same batch; ``"final"``: one
                row per key at the end. Default: final for bounded input; else changes for signed input, updates for
                rows.
            every: with updates and changes, the least time between two emissions. None: after each batch.
            ttl: with updates and changes, how long a key is kept after its last row, so that state does not grow for
                ever. A row finds its key if the greater of its event time and the watermark is below the key's latest
                event time plus ``ttl``; else the key starts anew. Without event time the clock at the start of a batch
                counts. Expiry emits nothing: a row that was shown stays, also in the net of changes. None: keys are
                kept until the end.
            ttl_from: what keeps a key: ``"write"`` or ``"access"``; for aggregates both mean any row of the key.
            name: the operator's name. A column called ``name`` is given in a mapping: ``agg({"name": op.count()})``.
            parallelism: how many subtasks the operator has; None: as many as the run says.
            named: aggregates under new names.

        Raises:
            GraphError: no aggregate is given, a value is not an aggregate, two columns have one name, this stream
                holds updates, or ``ttl`` is given with ``emit="final"``. Of signed changes: ``emit`` is "updates", a
                ``ttl`` is given, or an aggregate is one of the user's or depends on the order of arrival. A column is
                called ``change`` where signed changes would be emitted.
            ConfigurationError: ``emit`` or ``ttl_from`` is unknown, ``every`` or ``ttl`` is zero, or ``every`` is given
                with ``emit="final"``.
            SchemaMismatch: an aggregate cannot take its column's type.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]}), batch_rows=1))
        >>> rows.key_by("k").agg(op.count().alias("n"), emit="updates").collect()["n"].to_pylist()
        [1, 2, 1]

        Signed changes say what was shown before, so they can be filtered, and aggregated again:

        >>> counts = rows.key_by("k").agg(op.count().alias("n"), emit="changes")
        >>> counts.select("n").collect().to_pylist()
        [{'n': 1, 'change': 1}, {'n': 1, 'change': -1}, {'n': 2, 'change': 1}, {'n': 1, 'change': 1}]
        >>> counts.key_by("n").agg(op.count().alias("keys")).collect().sort_by("n").to_pylist()
        [{'n': 1, 'keys': 1}, {'n': 2, 'keys': 1}]

        A key that comes back after its time to live starts anew:

        >>> table = pa.table({"k": ["a"] * 3, "at": pa.array([1, 2, 62], pa.timestamp("s"))})
        >>> rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at")
        >>> rows.key_by("k").agg(op.count().alias("n"), emit="updates", ttl="60s").collect()["n"].to_pylist()
        [1, 2, 1]
        """
        import pyarrow as pa

        given = {"emit": emit, "every": every, "ttl": ttl, "ttl_from": None if ttl_from == "write" else ttl_from}
        check_options("agg", self.schema, name=name, parallelism=parallelism, **given)
        computed = self._aggregations(aggregations, named)
        width = self._width(parallelism)
        upstream = self._pipeline.graph.upstream(self._node)
        chosen, because = choose_emit(emit, every, ttl, upstream, self._meaning)
        fields = [*self._key_fields(), *self._fields_of(computed)]
        if chosen is Emit.CHANGES:
            self._check_change("agg")
            fields.append(pa.field(CHANGE, pa.int8()))
        check_distinct([field.name for field in fields], "agg")
        if self._is_signed:
            self._check_signed(computed)
        spacing = None if every is None else microseconds(every, "agg(every=)")
        if spacing == 0:
            raise ConfigurationError("agg(every=) must be above zero; leave it out to emit after each batch")
        kept = _ttl(ttl, ttl_from)
        spec = Aggregate(
            self.keys,
            tuple(computed),
            chosen,
            spacing,
            because,
            kept,
            self._time if kept is not None else None,
            self._is_signed,
        )
        return self._then(spec, pa.schema(fields), "agg", name, width)

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
        """Return the first ``n`` rows of each key by the order of columns, with their ``rank``.

        Nulls are last in both directions. NaN is greater than every number.

        Args:
            n: the greatest rank.
            by: the column to compare, or several, the most important one first.
            descending: whether the greatest value is first; a list has an entry for each column.
            ties: ``"arrival"``: rows with equal columns have different ranks, in the order in which they came, like
                SQL's ROW_NUMBER; ``"all"``: they have the same rank, like SQL's RANK (1, 1, 3), so more than ``n`` rows
                may come out.
            ttl: with changes, how long a key is kept after its last row; then it starts anew. It is measured as in
                `agg`. What was shown stays. None: keys are kept until the end.
            emit: ``"final"``: the rows come out at the end; ``"changes"``: after each batch, a row whose rank has
                changed is taken back with its old rank (``change`` -1), and added with the new one (+1). Default: final
                for bounded input, else changes.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream of the same columns and ``rank``, and with changes ``change``; without event time.

            Of plain rows, the first ``n`` of each key are kept. Of signed changes, all are kept, because a row comes
            up when one before it is taken back; a row goes by the arrival of the first change of an equal row.

        Raises:
            GraphError: a column in ``by`` is computed, two columns have one name, the rows are updates, or ``ttl`` is
                given with ``emit="final"`` or for signed changes.
            UnknownColumn: the stream has no such column.
            SchemaMismatch: a column in ``by`` has no order; signed changes have a column of a nested type.
            ConfigurationError: ``n``, ``descending``, ``ties``, ``emit`` or ``ttl`` is wrong.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"shop": ["a", "a", "b", "a"], "price": [3, 9, 5, 4]})
        >>> rows = flow.Pipeline().source(op.from_arrow(table)).key_by("shop").top(2, by="price")
        >>> rows.collect().sort_by([("shop", "ascending"), ("rank", "ascending")])["price"].to_pylist()
        [9, 4, 5]
        """
        from dataflow.api.tops import top_of_keys

        return top_of_keys(self, n, by, descending, ties, ttl, emit, name, parallelism)

    def _check_change(self, method: str) -> None:
        """Raise GraphError if signed changes cannot be emitted, because rows have a column ``change`` of their own."""
        if not self._is_signed and CHANGE in self.schema.names:
            raise GraphError(
                f"{method}(emit='changes'): the stream has a column {CHANGE!r}, which is the name of the column that "
                "says how a changed row counts; rename or drop it"
            )

    def _check_signed(self, aggregations: Iterable[Aggregation]) -> None:
        """Raise GraphError for aggregates from which rows cannot be taken back, or that depend on their order."""
        for a in aggregations:
            if CHANGE in a.columns():
                raise GraphError(f"agg: {a.name!r} reads {CHANGE!r}, which says how a row counts; leave it out")
            if a.is_of_user:
                raise GraphError(
                    f"agg: {a.name!r} is an aggregate of your own, and the input has signed changes, but only the "
                    "aggregates of the library can take rows back"
                )
            if a.by is None and a.goes_by_arrival:
                raise GraphError(
                    f"agg: {a.name!r} goes by the order of arrival, which signed changes do not have; give by=, or "
                    "event time"
                )

    def _aggregations(
        self, given: Iterable[Aggregation | Latest | Mapping[str, Aggregation]], named: Mapping[str, Aggregation]
    ) -> list[Aggregation]:
        """Return the aggregates in order, each with its name."""
        pairs: list[tuple[str | None, Aggregation]] = []
        for item in given:
            match item:
                case Mapping():
                    pairs += item.items()
                case Latest():
                    pairs += [(None, column) for column in self._columns_of_last_row(item)]
                case _:
                    pairs.append((None, item))
        computed = []
        for alias, a in [*pairs, *named.items()]:
            if alias is not None and isinstance(a, Latest):
                a.alias(alias)  # raises
            if not isinstance(a, Aggregation):
                raise GraphError(f"agg: expected aggregates such as col('x').sum(), got {a!r} ({type(a).__name__})")
            computed.append(a if alias is None else a.alias(alias))
        if not computed:
            raise GraphError("agg: no aggregate is given; give at least one, such as op.count()")
        return [self._in_order_of_time(a) for a in computed]

    def _columns_of_last_row(self, latest: Latest) -> list[Aggregation]:
        """Return one ``last`` for each column; all have the same ``by``, so they choose the same row."""
        by = None if latest.by is None else as_expression(latest.by, "latest(by=)")
        others = [name for name in self._columns.names if name not in self.keys]
        columns = [as_expression(column, "latest") for column in latest.columns or others]
        if not columns:
            raise GraphError(
                f"latest: the stream has no columns but its keys, {', '.join(self.keys)}; leave latest out"
            )
        last = [aggregate("last", column, name=column.name, by=by, where=latest.where) for column in columns]
        if not latest.columns and (refused := [a.name for a in last if not a.takes(self.schema)]):
            raise SchemaMismatch(
                f"latest: {', '.join(map(repr, refused))} of {columns_of(self.schema)} cannot be kept, because last "
                "does not take nested types; name the columns to keep, as in op.latest('a', 'b')"
            )
        return last

    def _in_order_of_time(self, aggregation: Aggregation) -> Aggregation:
        """Return ``first``, ``last`` or ``to_list`` by event time, if the stream has it and no order is given."""
        if self.time is None or not aggregation.orders_by_time:
            return aggregation
        return replace(aggregation, by=col(self.time))

    def _width(self, parallelism: int | None, method: str = "agg") -> int | None:
        """Return the parallelism of an operator: 1 over all rows. Raises: GraphError if another one was asked for."""
        if self.keys:
            return parallelism
        if parallelism not in (None, 1):
            raise GraphError(
                f"{method}(parallelism=) must be 1 without keys, got {parallelism}: one subtask takes all rows; "
                "for more subtasks, call key_by before"
            )
        return 1

    def _key_fields(self) -> list[pa.Field]:
        """Return the fields of the key columns in the output. Raises: SchemaMismatch for an unfit type."""
        from dataflow.state.dictionaries import key_schema

        check_state_keys(self.keys, self.schema, "agg")
        return list(key_schema(self.schema, self.keys))

    def _fields_of(self, aggregations: Iterable[Aggregation]) -> list[pa.Field]:
        """Return the fields of the aggregates in the output."""
        import pyarrow as pa

        return [pa.field(a.name, a.dtype(self.schema, where=f"agg {a.name!r}")) for a in aggregations]


def _ttl(ttl: Duration | None, ttl_from: str) -> Ttl | None:
    """Return the time to live that was asked for. Raises: ConfigurationError."""
    if ttl_from not in ("write", "access"):
        raise ConfigurationError(f"agg(ttl_from=) must be 'write' or 'access', got {ttl_from!r}")
    if ttl is None:
        if ttl_from != "write":
            raise ConfigurationError("agg(ttl_from=) needs a ttl, such as ttl='1h'")
        return None
    length = microseconds(ttl, "agg(ttl=)")
    if length == 0:
        raise ConfigurationError("agg(ttl=) must be above zero; leave it out to keep every key")
    return Ttl(length, access=ttl_from == "access")


def _check_class(window: object) -> None:
    """Raise GraphError if ``window`` is of a subclass of a kind of the library, whose methods would not be called."""
    for kind in _OWN_KINDS:
        if isinstance(window, kind) and type(window) is not kind:
            raise GraphError(
                f"window: {type(window).__name__} is a subclass of {kind.__name__}, whose operator calls no methods of "
                "subclasses; write a kind of your own as a subclass of flow.Window"
            )
