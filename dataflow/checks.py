"""What the words of a pipeline are checked for while the graph is built; ``where`` names the word in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dataflow.clock import Duration
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Expr, col
from dataflow.source import Source
from dataflow.specs import Emit, Filter, Project, Read, Spec, Watermarks
from dataflow.windows import Tumbling

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.graph import Graph

__all__ = [
    "columns_of",
    "declared",
    "distinct",
    "edge_type",
    "emission",
    "expression",
    "keys_meet",
    "origin_of",
    "window_emission",
]


def keys_meet(inputs: Iterable[tuple[str, pa.Schema, Sequence[str]]]) -> None:
    """Raise SchemaMismatch unless equal keys of ``inputs`` (name, schema, keys) go to the same subtask."""
    from dataflow.expressions.coercion import value_type

    found = [(name, [value_type(schema.field(key).type) for key in keys]) for name, schema, keys in inputs]
    for name, types in found[1:]:
        first, expected = found[0]
        if types != expected:
            raise SchemaMismatch(
                f"apply: keys meet where their types are equal, but {first!r} is keyed by {[*map(str, expected)]} and "
                f"{name!r} by {[*map(str, types)]}; cast one of them"
            )


def declared(schema: object, default: pa.Schema, where: str) -> pa.Schema:
    """The schema that a user gave, or ``default`` for None."""
    import pyarrow as pa

    if schema is None:
        return default
    if not isinstance(schema, pa.Schema):
        raise GraphError(
            f"{where}(schema=): expected a pyarrow.Schema, got {schema!r} ({type(schema).__name__}); "
            "write pa.schema({'column': pa.int64(), ...})"
        )
    return schema


def emission(emit: str | Emit | None, every: Duration | None, upstream: Graph) -> tuple[Emit, str]:
    """Return when an aggregate emits, and why it emits updates if that is a default.

    ``upstream`` is all that the aggregate depends on: the default is final if every source in it has an end.
    """
    if emit is not None:
        chosen = _emit(emit)
        if chosen is Emit.FINAL and every is not None:
            raise ConfigurationError("agg(every=) spaces out updates; it has no meaning with emit='final'")
        return chosen, ""
    if every is not None:
        return Emit.UPDATES, "every= is given"
    for node in upstream:
        if isinstance(node.spec, Read) and not node.spec.source.bounded:
            return Emit.UPDATES, f"source {node.name!r} ({_kind(node.spec.source)}) has no end"
    return Emit.FINAL, ""


def window_emission(emit: str | Emit | None, lateness: int) -> tuple[Emit, str]:
    """Return when windows emit, and why they emit updates if that is a default.

    Without lateness a window comes out once in either case, so that is final.
    """
    chosen = None if emit is None else _emit(emit)
    if lateness == 0 or chosen is Emit.FINAL:
        return Emit.FINAL, ""
    return Emit.UPDATES, "its windows have lateness=" if chosen is None else ""


def _kind(source: Source) -> str:
    return type(source).__name__ if type(source).__repr__ is object.__repr__ else repr(source)


def _emit(emit: str | Emit) -> Emit:
    names = [e.value for e in Emit]
    if not isinstance(emit, Emit) and emit not in names:
        raise ConfigurationError(f"agg(emit=) is one of {names}, got {emit!r}")
    return Emit(emit)


def expression(value: str | Expr, where: str) -> Expr:
    """``value``, with a name standing for its column."""
    if isinstance(value, str):
        return col(value)
    if not isinstance(value, Expr):
        raise GraphError(f"{where}: expected a column name or an expression, got {value!r} ({type(value).__name__})")
    return value


def distinct(names: Iterable[str], where: str) -> None:
    """Raise GraphError where a column would be there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GraphError(f"{where}: column {name!r} would be there twice; rename one with .alias(...)")
        seen.add(name)


def columns_of(schema: pa.Schema) -> str:
    """The columns of ``schema``, for messages."""
    return ", ".join(f"{f.name}: {f.type}" for f in schema)


def edge_type(time: pa.DataType, window: Tumbling) -> pa.DataType:
    """The type of the edges of windows over event times of type ``time``: the same, or finer where edges need it."""
    import pyarrow as pa

    unit = time.unit if window.size % _UNIT[time.unit] == 0 == window.offset % _UNIT[time.unit] else "us"
    return pa.timestamp(unit, time.tz)


_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


def origin_of(column: str, spec: Spec) -> str | None:
    """The input column of an operator that its output ``column`` is, untouched; None: there is none."""
    match spec:
        case Filter() | Watermarks():
            return column
        case Project(columns=columns):
            (made,) = [c for c in columns if c.name == column]
            return next((name for name in made.columns() if made.is_column(name)), None)
        case _:
            return None
