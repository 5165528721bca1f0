"""What the words of a pipeline are checked for while the graph is built; ``where`` names the word in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dataflow.clock import Duration
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import Expr, col
from dataflow.specs import Emit, Filter, Project, Spec, Watermarks
from dataflow.windows import Tumbling

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "columns_of",
    "declared",
    "distinct",
    "edge_type",
    "emission",
    "expression",
    "keys_meet",
    "origin_of",
    "side_outputs",
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


def side_outputs(sides: object, main: pa.Schema) -> dict[str, pa.Schema]:
    """Return the schema of each side output that a user declared for an operator; one of None is ``main``.

    Raises: GraphError for what is no dict from tag to schema.
    """
    if sides is None:
        return {}
    if not isinstance(sides, Mapping) or not all(isinstance(tag, str) and tag for tag in sides):
        raise GraphError(
            f"apply(sides=): expected a dict from tag to pyarrow.Schema, or None for the columns of the main output, "
            f"got {sides!r}"
        )
    return {tag: declared(schema, main, f"apply(sides=) of {tag!r}") for tag, schema in sides.items()}


def emission(emit: str | Emit | None, every: Duration | None, *, bounded: bool) -> Emit:
    """When to emit: as asked for, or what suits the input."""
    if emit is None:
        return Emit.FINAL if bounded and every is None else Emit.UPDATES
    names = [e.value for e in Emit]
    if not isinstance(emit, Emit) and emit not in names:
        raise ConfigurationError(f"agg(emit=) is one of {names}, got {emit!r}")
    chosen = Emit(emit)
    if chosen is Emit.FINAL and every is not None:
        raise ConfigurationError("agg(every=) spaces out updates; it has no meaning with emit='final'")
    return chosen


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
