"""``top``: the first rows of each key, or of each key and window, by the order of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from dataflow.clock import Duration
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.sliding import Sliding
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.windows import EventTime, Window
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch, UnknownColumn, check_count
from dataflow.expressions import Expr
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.checks import check_distinct, check_options, check_state_keys, edge_type
from dataflow.planning.chosen_row_specs import (
    EDGES,
    RANK,
    By,
    Order,
    SignedTop,
    Ties,
    Top,
    WindowTop,
    choose_row_emit,
    time_to_live,
)
from dataflow.planning.window_plans import is_exclusive

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.keyed_streams import KeyedStream
    from dataflow.api.streams import Stream
    from dataflow.api.windowed_streams import WindowedStream

__all__ = ["top_of_keys", "top_of_windows"]


def order_of(schema: pa.Schema, n: int, by: By, descending: bool | Sequence[bool], ties: Ties) -> Order:  # noqa: FBT001
    """Return how rows of ``schema`` are ranked.

    Raises: ConfigurationError for a wrong ``n``, ``descending`` or ``ties``; GraphError, UnknownColumn and
        SchemaMismatch for columns that cannot be compared.
    """
    from dataflow.expressions.coercion import value_type
    from dataflow.state.arrays import is_key

    check_count("top(n)", n)
    if ties not in get_args(Ties):
        raise ConfigurationError(f"top(ties=) must be 'arrival' or 'all', got {ties!r}")
    names = _column_names(by, schema)
    for name in names:
        type_ = schema.field(name).type
        if not is_key(value_type(type_)):
            raise SchemaMismatch(
                f"top(by=): the column {name!r} of type {type_} has no order: expected a number, boolean, text, "
                "binary, time or decimal column; first compute such a column from it"
            )
    if isinstance(descending, bool):
        return Order(int(n), names, (descending,) * len(names), ties)
    given = list(descending) if isinstance(descending, list | tuple) else None
    if given is None or len(given) != len(names) or not all(isinstance(each, bool) for each in given):
        raise ConfigurationError(
            f"top(descending=) must be True, False, or one of them for each of the {len(names)} columns in by=, got "
            f"{descending!r}"
        )
    return Order(int(n), names, tuple(given), ties)


def top_of_keys(
    stream: KeyedStream,
    n: int,
    by: By,
    descending: bool | Sequence[bool],  # noqa: FBT001
    ties: Ties,
    ttl: Duration | None,
    emit: str | Emit | None,
    name: str | None,
    parallelism: int | None,
) -> Stream:
    """Return the first rows of each key. See `KeyedStream.top`."""
    import pyarrow as pa

    from dataflow.expressions.coercion import value_type
    from dataflow.state.arrays import is_key

    check_options("top", stream.schema, name=name, parallelism=parallelism, ttl=ttl, emit=emit)
    check_state_keys(stream.keys, stream.schema, "top")
    stream._refuse("top", updates="a row among the first ones could be replaced")
    order = order_of(stream._columns, n, by, descending, ties)
    upstream = stream._pipeline.graph.upstream(stream._node)
    chosen, because = choose_row_emit(emit, ttl, upstream, stream._meaning, "top")
    fields = [*_plain(stream._columns), pa.field(RANK, pa.int64())]
    if chosen is Emit.CHANGES:
        stream._check_change("top")
        fields.append(pa.field(CHANGE, pa.int8()))
    _check_names([field.name for field in fields])
    width = stream._width(parallelism, "top")
    spec: Top | SignedTop
    if stream._is_signed:
        if refused := [field.name for field in stream._columns if not is_key(value_type(field.type))]:
            raise SchemaMismatch(
                f"top: {', '.join(map(repr, refused))} cannot be compared, but the input has signed changes, and a row "
                "is taken back by comparing all its columns; drop columns of nested types before"
            )
        spec = SignedTop(stream.keys, order, chosen, because)
    else:
        kept = time_to_live(ttl, "top")
        spec = Top(stream.keys, order, chosen, because, kept, None if kept is None else stream._time)
    return stream._then(spec, pa.schema(fields), "top", name, width)


def top_of_windows(
    windows: WindowedStream,
    n: int,
    by: By,
    descending: bool | Sequence[bool],  # noqa: FBT001
    ties: Ties,
    name: str | None,
    parallelism: int | None,
) -> Stream:
    """Return the first rows of each key and window. See `WindowedStream.top`."""
    import pyarrow as pa

    stream, window, options = windows._stream, windows._window, windows._options
    check_options("top", stream.schema, name=name, parallelism=parallelism)
    check_state_keys(stream.keys, stream.schema, "top")
    if not isinstance(window, Window) or window.merges or isinstance(window, Sliding):
        raise GraphError(
            f"top: {window} has no top, because rows are ranked at the end of windows whose edges follow from the time "
            "of each row; use op.tumbling, op.hopping, op.cumulate or op.same_window, or leave out .window(...)"
        )
    if options.has_triggers:
        raise GraphError(
            "top: the first rows of a window come out once, at its end, so it takes no early=, late= or panes=; leave "
            "them out"
        )
    order = order_of(stream.schema, n, by, descending, ties)
    time = stream._time
    assert time is not None, "a stream cut into windows of event time has event time"
    kind = edge_type(stream.schema.field(time.column).type, window)
    own = _plain(stream.schema)
    keys = [field for field in own if field.name in stream.keys]
    keys.sort(key=lambda field: stream.keys.index(field.name))
    edges = [pa.field(edge, kind) for edge in EDGES]
    others = [field for field in own if field.name not in {*stream.keys, *window.columns}]
    fields = [*keys, *edges, *others, pa.field(RANK, pa.int64())]
    _check_names([field.name for field in fields])
    width = stream._width(parallelism, "top")
    spec = WindowTop(stream.keys, order, time, window, options.lateness)
    ends = EventTime("window_end", exclusive=is_exclusive(window))
    return stream._then(spec, pa.schema(fields), "top", name, width, sides={LATE: stream.schema}, time=ends)


def _column_names(by: By, schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the columns to compare. Raises: GraphError for anything else; UnknownColumn."""
    names: list[str] = []
    for each in by if isinstance(by, list | tuple) else [by]:
        name: object = each
        if isinstance(each, Expr):
            name = next((name for name in each.columns() if each.is_column(name) and each.name == name), None)
        if not isinstance(name, str):
            raise GraphError(
                f"top(by=): expected names of columns or plain columns, got {each}; compute the column first, as in "
                f"with_columns(order=...), and give by='order'"
            )
        if name not in schema.names:
            raise UnknownColumn(name, schema.names, "top(by=)")
        names.append(name)
    if not names:
        raise GraphError("top(by=): no column is given; name at least one")
    check_distinct(names, "top(by=)", "name each column once")
    return tuple(names)


def _plain(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns of ``schema`` with the values of dictionaries, and large text in the place of views."""
    from dataflow.expressions.coercion import value_type

    return [field.with_type(value_type(field.type)) for field in schema]


def _check_names(names: Sequence[str]) -> None:
    check_distinct(names, "top", "rename or drop the column of the stream before, with .rename({...})")
