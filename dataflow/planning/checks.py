"""Checks of the arguments of streams' methods while the graph is built; ``where`` names the method in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dataflow.clock import Duration
from dataflow.contracts.source import Source
from dataflow.contracts.updates import Meaning, Signed
from dataflow.contracts.windows import Window
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch, UnknownColumn, repeated_names
from dataflow.expressions import Aggregation, Expr, col, lit
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.graph import Graph

__all__ = [
    "columns_of",
    "schema_or_default",
    "check_distinct",
    "edge_type",
    "choose_emit",
    "as_expression",
    "check_condition",
    "check_zones",
    "key_names",
    "check_key_types",
    "check_names_differ",
    "column_expressions",
    "check_options",
    "side_schemas",
    "timestamp_advice",
    "check_state_keys",
    "choose_sliding_emit",
    "choose_session_emit",
    "choose_window_emit",
]


def check_key_types(inputs: Iterable[tuple[str, pa.Schema, Sequence[str]]]) -> None:
    """Raise SchemaMismatch unless equal keys of ``inputs`` (name, schema, keys) go to the same subtask."""
    from dataflow.expressions.coercion import value_type

    keyed = [(name, [value_type(schema.field(key).type) for key in keys]) for name, schema, keys in inputs]
    for name, types in keyed[1:]:
        first, expected = keyed[0]
        if types != expected:
            raise SchemaMismatch(
                f"apply: the keys of all inputs must have the same types, but {first!r} is keyed by "
                f"{[*map(str, expected)]} and {name!r} by {[*map(str, types)]}; cast one of them"
            )


def schema_or_default(schema: object, default: pa.Schema, where: str) -> pa.Schema:
    """Return the schema that a user gave, without extension types, or ``default`` for None.

    Raises: GraphError for anything else, or for two columns of one name.
    """
    import pyarrow as pa

    from dataflow.state.extension_types import plain_schema

    if schema is None:
        return default
    if not isinstance(schema, pa.Schema):
        raise GraphError(
            f"{where}(schema=): expected a pyarrow.Schema, got {schema!r} ({type(schema).__name__}); "
            "write pa.schema({'column': pa.int64(), ...})"
        )
    check_names_differ(schema, f"{where}(schema=)")
    return plain_schema(schema)


def check_names_differ(schema: pa.Schema, where: str) -> None:
    """Raise GraphError if two columns of a declared schema have the same name, because columns are found by name."""
    if repeated := repeated_names(schema.names):
        raise GraphError(
            f"{where}: {', '.join(map(repr, repeated))} is declared more than once in [{columns_of(schema)}]; give "
            "each column its own name"
        )


def side_schemas(sides: object, main: pa.Schema, method: str = "apply") -> dict[str, pa.Schema]:
    """Return the schema of each side output that a user declared for an operator; None means the schema ``main``.

    Raises: GraphError for anything but a dict from tag to schema.
    """
    if sides is None:
        return {}
    if not isinstance(sides, Mapping) or not all(isinstance(tag, str) and tag for tag in sides):
        raise GraphError(
            f"{method}(sides=): expected a dict from tag to pyarrow.Schema, or None for the columns of the main "
            f"output, got {sides!r}"
        )
    return {tag: schema_or_default(schema, main, f"{method}(sides=) of {tag!r}") for tag, schema in sides.items()}


def choose_emit(
    emit: str | Emit | None,
    every: Duration | None,
    ttl: Duration | None,
    upstream: Graph,
    meaning: Meaning | None,
    method: str = "agg",
) -> tuple[Emit, str]:
    """Return what an aggregate emits, and the reason if that is not final by default.

    ``upstream`` has every operator that the aggregate depends on. The default is final if all its sources have an end,
    else changes if its input has signed changes, else updates. ``meaning`` is that of the input. ``method`` is the one
    that was called, for messages.

    Raises: ConfigurationError if ``emit`` is unknown, or final with an ``every``; GraphError if it is final with a
        ``ttl``, or if signed changes are to become updates or to expire.
    """
    signed = isinstance(meaning, Signed)
    if signed and ttl is not None:
        raise GraphError(
            f"{method}(ttl=) cannot be used on signed changes: a row could be taken back after its group has expired. "
            "Give the ttl to an aggregate of rows, or leave it out"
        )
    if emit is not None:
        chosen = _emit(emit, method)
        if chosen is Emit.UPDATES and signed:
            raise GraphError(
                f"{method}(emit='updates') cannot be computed from signed changes, because an update cannot say that a "
                "group has no rows any more; use emit='changes', or emit='final'"
            )
        if chosen is Emit.FINAL and every is not None:
            raise ConfigurationError(
                f"{method}(every=) needs emit='updates' or 'changes', got emit='final'; leave one of them out"
            )
        if chosen is Emit.FINAL and ttl is not None:
            raise GraphError(
                f"{method}(ttl=) needs emit='updates' or 'changes', got emit='final': a group that expires has no "
                "result at the end"
            )
        return chosen, ""
    continuous = Emit.CHANGES if signed else Emit.UPDATES
    if every is not None or ttl is not None:
        return continuous, f"{'every' if every is not None else 'ttl'}= is given"
    for node in upstream:
        if isinstance(node.spec, Read) and not node.spec.source.bounded:
            return continuous, f"source {node.name!r} ({_kind(node.spec.source)}) has no end"
    return Emit.FINAL, ""


def choose_window_emit(emit: str | Emit | None, lateness: int) -> tuple[Emit, str]:
    """Return what windows emit, and the reason if updates are the default.

    Without lateness a window is emitted once, so updates are final.
    """
    chosen = None if emit is None else _emit(emit)
    if chosen is Emit.CHANGES:
        return chosen, ""
    if lateness == 0 or chosen is Emit.FINAL:
        return Emit.FINAL, ""
    return Emit.UPDATES, "its windows have lateness=" if chosen is None else ""


def choose_sliding_emit(emit: str | Emit | None, lateness: int) -> Emit:
    """Return what sliding windows emit: by default each result once.

    Raises: ConfigurationError if ``emit`` is unknown; GraphError for updates, or lateness without changes.
    """
    chosen = Emit.FINAL if emit is None else _emit(emit)
    if chosen is Emit.UPDATES:
        raise GraphError(
            "agg(emit='updates'): sliding windows have a result for each row, and no key by which a later one could "
            "replace it; use emit='changes'"
        )
    if lateness and chosen is not Emit.CHANGES:
        raise GraphError(
            "window(lateness=): a late row changes results of sliding windows that were shown; give "
            "agg(emit='changes') to take these back, or leave lateness out"
        )
    return chosen


def choose_session_emit(emit: str | Emit | None, lateness: int) -> Emit:
    """Return what sessions emit. Raises: GraphError for updates, which are the default with lateness."""
    chosen = Emit.UPDATES if emit is None and lateness else Emit.FINAL if emit is None else _emit(emit)
    if chosen is Emit.UPDATES:
        why = "emit='updates'" if emit is not None else "emit='updates', the default with lateness,"
        raise GraphError(
            f"agg: {why} cannot be used with op.session(), because an update cannot say that two sessions became one; "
            "use emit='changes' or emit='final', or window(panes='discarding'), whose results are rows that add up"
        )
    return chosen


def _kind(source: Source) -> str:
    return type(source).__name__ if type(source).__repr__ is object.__repr__ else repr(source)


def _emit(emit: str | Emit, method: str = "agg") -> Emit:
    names = [e.value for e in Emit]
    if not isinstance(emit, Emit) and emit not in names:
        raise ConfigurationError(f"{method}(emit=) must be one of {names}, got {emit!r}")
    return Emit(emit)


def as_expression(value: object, where: str) -> Expr:
    """Return ``value`` as an expression; a text is the name of a column. Raises: GraphError for other values."""
    if isinstance(value, str):
        return col(value)
    if not isinstance(value, Expr):
        raise GraphError(f"{where}: expected a column name or an expression, got {value!r} ({type(value).__name__})")
    return value


def check_condition(value: object, schema: pa.Schema, where: str) -> Expr:
    """Return a condition on rows of ``schema`` as an expression; a text is the name of a boolean column.

    Raises: GraphError for other values; UnknownColumn; SchemaMismatch unless it is boolean.
    """
    import pyarrow as pa

    condition = as_expression(value, where)
    kind = condition.dtype(schema, where=where)
    if kind != pa.bool_():
        raise SchemaMismatch(
            f"{where}: expected a boolean expression such as col('x') > 0, found {condition} of type {kind}"
        )
    return condition


def key_names(keys: Iterable[object], schema: pa.Schema, where: str) -> tuple[str, ...]:
    """Return the names of key columns, which are given as names, plain columns, or lists of these.

    Raises: GraphError for no key, a computed key, or one given twice; UnknownColumn; SchemaMismatch for a nested type.
    """
    import pyarrow as pa

    names: list[str] = []
    for key in keys:
        names += [_key_name(part, where) for part in (key if isinstance(key, list | tuple) else [key])]
    if not names:
        raise GraphError(f"{where}: no key is given; name at least one column")
    check_distinct(names, where, "name each key once")
    for name in names:
        if name not in schema.names:
            raise UnknownColumn(name, schema.names, where)
        type_ = schema.field(name).type
        if pa.types.is_nested(type_.value_type if pa.types.is_dictionary(type_) else type_):
            raise key_type_error(name, type_, where)
    return tuple(names)


def _key_name(key: object, where: str) -> str:
    """Return the name of a key column. Raises: GraphError unless ``key`` is a name or a plain column."""
    if isinstance(key, str):
        return key
    if not isinstance(key, Expr):
        raise GraphError(f"{where}: expected names of columns, got {key!r} ({type(key).__name__})")
    name = next((name for name in key.columns() if key.is_column(name) and key.name == name), None)
    if name is None:
        call = f"{where[:-1]}'key')" if where.endswith("=)") else f"{where}('key')"
        raise GraphError(
            f"{where}: a key must be a plain column, got {key}; compute it first, as in with_columns(key={key}).{call}"
        )
    return name


def check_state_keys(keys: Iterable[str], schema: pa.Schema, where: str) -> None:
    """Raise SchemaMismatch for a column that keyed state cannot have as a key, such as a list."""
    from dataflow.expressions.coercion import value_type
    from dataflow.state.arrays import is_key

    for name in keys:
        if not is_key(value_type(schema.field(name).type)):
            raise key_type_error(name, schema.field(name).type, where)


def key_type_error(name: str, type_: pa.DataType, where: str) -> SchemaMismatch:
    """Return the error for a column whose type cannot be a key."""
    return SchemaMismatch(
        f"{where}: the column {name!r} of type {type_} cannot be a key: expected a number, boolean, text, binary, time "
        f"or decimal column; first compute such a column from the part that identifies a row"
    )


def column_expressions(given: Iterable[object], named: Mapping[str, object], where: str) -> list[Expr]:
    """Return the chosen columns as expressions.

    ``given`` has names, expressions, and mappings from new names to columns; ``named`` is such a mapping, too. Under a
    new name, a plain value is a constant, and text is the name of a column.
    """
    chosen = []
    for item in given:
        if isinstance(item, Mapping):
            chosen += [_named_expression(name, value, where) for name, value in item.items()]
        else:
            chosen.append(as_expression(item, where))
    return chosen + [_named_expression(name, value, where) for name, value in named.items()]


def _named_expression(name: object, value: object, where: str) -> Expr:
    """Return the expression of a column with a new name."""
    if not isinstance(name, str):
        raise GraphError(
            f"{where}: the names of columns in a mapping must be text, got {name!r} ({type(name).__name__})"
        )
    if not isinstance(value, str | Expr | Aggregation):
        try:
            return lit(value).alias(name)
        except TypeError:
            pass  # not a plain value: expression() raises the error
    return as_expression(value, where).alias(name)


def check_options(where: str, schema: pa.Schema, **options: object) -> None:
    """Raise GraphError if a column was given as an option of an operator, such as ``name=``."""
    for option, value in options.items():
        computed = isinstance(value, Expr | Aggregation)
        if computed or (option in ("name", "parallelism") and isinstance(value, str) and value in schema.names):
            column = value if computed else f"col({value!r})" + ".max()" * (where == "agg")
            raise GraphError(
                f"{where}: {option}={value if computed else repr(value)} is an option of the operator and makes no "
                f"column. For a column called {option!r} write {where}({{{option!r}: {column}}}) or "
                f"{column}.alias({option!r})"
                + ("; an operator's name must differ from the columns'" if option == "name" and not computed else "")
            )


def check_distinct(names: Iterable[str], where: str, advice: str = "rename one with .alias(...)") -> None:
    """Raise GraphError with ``advice`` if two of ``names`` are equal."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GraphError(f"{where}: duplicate column {name!r}; {advice}")
        seen.add(name)


def columns_of(schema: pa.Schema) -> str:
    """Return the columns of ``schema`` as text, for messages."""
    return ", ".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema)


def edge_type(time: pa.DataType, window: Window) -> pa.DataType:
    """Return the type of window edges for event times of type ``time``: the same, or finer if the edges need it."""
    import pyarrow as pa

    fits = all([length % _UNIT[time.unit] == 0 for length in window.lengths])
    return pa.timestamp(time.unit if fits else "us", time.tz)


_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


def check_zones(where: str, *columns: tuple[str, pa.Field]) -> None:
    """Raise SchemaMismatch if some of these timestamp columns have a time zone and others have none.

    Times with a zone are not comparable with times without, as in `Expr`.

    Args:
        where: the method, for the message.
        columns: the columns whose times meet, each after the words for its input.
    """
    import pyarrow as pa

    times = [(words, field) for words, field in columns if pa.types.is_timestamp(field.type)]
    zoned = [each for each in times if each[1].type.tz is not None]
    naive = [each for each in times if each[1].type.tz is None]
    if zoned and naive:
        (words, field), (others, other) = naive[0], zoned[0]
        column = f"col({field.name!r})"
        raise SchemaMismatch(
            f"{where}: {field.name!r} of {words} is {field.type}, and {other.name!r} of {others} is {other.type}: a "
            "time without a time zone cannot be compared with one that has a zone; give it its zone where it comes "
            f"from, before with_watermark, with with_columns({{{field.name!r}: ...}}): "
            f'{column}.cast("timestamp[{field.type.unit}, tz=UTC]") if it is in UTC, '
            f"{column}.dt.localize(zone) if it has the times of a local clock"
        )


def timestamp_advice(column: str, kind: pa.DataType) -> str:
    """Return advice on computing timestamps from ``column``. A cast of integers uses the unit of the target type."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return f'with_columns(ts=flow.from_epoch({column!r}, "s")), or "ms", "us" or "ns": the unit that it counts'
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return f'with_columns(ts=flow.from_epoch((col({column!r}) * 1000).cast("int64"), "ms")) if it counts seconds'
    return f'with_columns(ts=col({column!r}).cast("timestamp[us]")), or "timestamp[us, tz=UTC]" for text with an offset'
