"""Types of expressions: one pass that every engine's lowering starts from.

``resolve`` turns a tree into ``Typed`` nodes, which hold the result's type and the types that operands are converted to
before the operation. All coercion is decided here; lowerings only execute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array
from dataflow.errors import GraphError, SchemaMismatch, UnknownColumn, repeated_names
from dataflow.expressions.calls import Call
from dataflow.expressions.coercion import common_type, common_type_of, family, literal_type, value_type
from dataflow.expressions.conditionals import Conditional
from dataflow.expressions.nodes import (
    Alias,
    Binary,
    BinaryOperator,
    Cast,
    Column,
    Expr,
    FillNull,
    IsIn,
    Literal,
    TryCast,
    Unary,
    UnaryOperator,
)
from dataflow.expressions.signatures import signature

__all__ = ["ARITHMETIC", "COMPARISONS", "LOGIC", "Typed", "output_schema", "resolve"]

_O = BinaryOperator
ARITHMETIC: Final = (_O.ADD, _O.SUBTRACT, _O.MULTIPLY, _O.DIVIDE, _O.FLOOR_DIVIDE, _O.MODULO)
COMPARISONS: Final = (_O.EQUAL, _O.NOT_EQUAL, _O.LESS, _O.LESS_EQUAL, _O.GREATER, _O.GREATER_EQUAL)
LOGIC: Final = (_O.AND, _O.OR)
_PROBES: Final[dict[BinaryOperator, Callable[..., pa.Array]]] = {
    _O.ADD: pc.add_checked,
    _O.SUBTRACT: pc.subtract_checked,
    _O.MULTIPLY: pc.multiply_checked,
}


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """A node with its type. ``compute`` holds the type each operand is converted to first."""

    node: Expr
    dtype: pa.DataType
    operands: tuple[Typed, ...] = ()
    compute: tuple[pa.DataType, ...] = ()


def resolve(expr: Expr, schema: pa.Schema, where: str) -> Typed:
    """Determine the types of ``expr`` over rows of ``schema``.

    Raises: UnknownColumn; SchemaMismatch. Both messages begin with ``where``.
    """
    match expr:
        case Column(label):
            if schema.get_field_index(label) < 0:
                if label in schema.names:
                    raise SchemaMismatch(f"{where}: column {label!r} occurs more than once; rename one of them")
                raise UnknownColumn(label, schema.names, where)
            return Typed(expr, schema.field(label).type)
        case Literal(value):
            return Typed(expr, literal_type(value))
    operands = tuple(resolve(operand, schema, where) for operand in expr.operands())
    match expr:
        case Call():
            rule = signature(expr, operands, where)
        case Conditional():
            rule = _choice(operands)
        case _:
            rule = _operation(expr, *operands)
    if rule is None:
        given = ", ".join(f"{operand.node} is {operand.dtype}" for operand in operands)
        raise SchemaMismatch(f"{where}: {expr} cannot be computed: {given}{_hint(expr, operands)}")
    dtype, compute = rule
    for operand, target in zip(operands, compute, strict=True):
        _check_literal(expr, operand, target, where)
    return Typed(expr, dtype, operands, compute)


def _check_literal(expr: Expr, operand: Typed, target: pa.DataType, where: str) -> None:
    """Refuse an int literal above int64 in an operation on int64; all other literals fit their operations."""
    if isinstance(operand.node, Literal) and types.is_uint64(operand.dtype) and types.is_int64(target):
        raise SchemaMismatch(
            f"{where}: {expr} cannot be computed: the operation is in int64, and {operand.node.value} exceeds it; "
            f'.cast("uint64") the column, or "float64" if it may be rounded'
        )


def output_schema(columns: list[Expr] | tuple[Expr, ...], schema: pa.Schema, where: str) -> pa.Schema:
    """Return the schema of a projection. A plain column keeps its field, nullability and metadata included.

    Args:
        columns: the expressions of the projection.
        schema: the schema of its input.
        where: begins the error's text.

    Raises: GraphError for a duplicate name, or a literal without a name; otherwise as ``resolve``.

    >>> from dataflow.expressions import col
    >>> print(output_schema([col("x"), (col("x") / 2).alias("half")], pa.schema({"x": pa.int64()}), "select"))
    x: int64
    half: double
    """
    fields = []
    for expr in columns:
        typed = resolve(expr, schema, where)
        plain = schema.field(expr.label) if isinstance(expr, Column) else None
        fields.append(pa.field(expr.name, typed.dtype) if plain is None else plain)
    if twice := repeated_names(field.name for field in fields):
        raise GraphError(f"{where}: more than one column would be named {twice}; give one of them another .alias(name)")
    return pa.schema(fields)


_Found = tuple[pa.DataType, tuple[pa.DataType, ...]]


def _choice(operands: tuple[Typed, ...]) -> _Found | None:
    predicates, values = operands[:-1:2], (*operands[1::2], operands[-1])
    common = common_type_of(values)
    if common is None or any(family(side.dtype) not in ("bool", "null") for side in predicates):
        return None
    return common, (*(pa.bool_(), common) * len(predicates), common)


def _operation(expr: Expr, first: Typed, second: Typed | None = None) -> _Found | None:
    """Return the result type and the operands' types, or None if the operation does not exist."""
    own = value_type(first.dtype)
    match expr:
        case Alias():
            return first.dtype, (first.dtype,)
        case Unary(UnaryOperator.IS_NULL | UnaryOperator.IS_NOT_NULL):
            return pa.bool_(), (first.dtype,)
        case Unary(UnaryOperator.NOT):
            return (pa.bool_(), (pa.bool_(),)) if family(own) in ("bool", "null") else None
        case Unary(UnaryOperator.ABS | UnaryOperator.NEGATE as operator):
            return _signed(operator, own)
        case Cast(_, target) | TryCast(_, target):
            return (target, (first.dtype,)) if _castable(first.dtype, target) else None
        case IsIn(_, values):
            compute = own
            for value in values:
                common = common_type(Typed(expr.operand, compute), Typed(Literal(value), literal_type(value)))
                if common is None:
                    return None
                compute = common
            return (pa.bool_(), (compute,)) if family(compute) != "other" else None
    assert second is not None, f"{type(expr).__name__} has two operands"
    if isinstance(expr, FillNull):
        if first.dtype.equals(second.dtype):
            dtype = first.dtype if types.is_dictionary(first.dtype) else own  # a view becomes the large type
            return dtype, (dtype, dtype)
        common = common_type(first, second)
        return None if common is None else (common, (common, common))
    assert isinstance(expr, Binary), f"no typing for a {type(expr).__name__}"
    if expr.operator in LOGIC:
        logical = all(family(value_type(side.dtype)) in ("bool", "null") for side in (first, second))
        return (pa.bool_(), (pa.bool_(), pa.bool_())) if logical else None
    if expr.operator in COMPARISONS:
        common = common_type(first, second)
        return None if common is None or family(common) == "other" else (pa.bool_(), (common, common))
    return _arithmetic(expr.operator, first, second)


def _arithmetic(operator: BinaryOperator, first: Typed, second: Typed) -> _Found | None:
    left, right = (_decimal_literal(side, other) for side, other in ((first, second), (second, first)))
    left, right = (right if types.is_null(left) else left), (left if types.is_null(right) else right)
    if types.is_null(left):
        left = right = pa.int64()
    families = {family(left), family(right)}
    if families <= {"int", "float", "decimal"}:
        if "float" in families or operator is _O.DIVIDE:
            return pa.float64(), (pa.float64(), pa.float64())
        if families == {"int"}:
            wide = _wide(left, right, first, second)
            return wide, (wide, wide)
    probe = _PROBES.get(operator)
    if probe is None or families & {"bool", "string", "binary"}:
        return None  # no arithmetic on text and bytes, unlike Python
    try:
        return probe(to_array([], left), to_array([], right)).type, (left, right)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _decimal_literal(side: Typed, other: Typed) -> pa.DataType:
    """Return the side's type; an int literal beside a decimal gets just its own digits, to save precision."""
    if isinstance(side.node, Literal) and family(other.dtype) == "decimal" and type(side.node.value) is int:
        return pa.decimal128(len(str(abs(side.node.value))), 0)
    return value_type(side.dtype)


def _wide(left: pa.DataType, right: pa.DataType, first: Typed, second: Typed) -> pa.DataType:
    """Return the type for integer arithmetic: uint64 for uint64 with uint64 or literals >= 0, else int64."""
    unsigned = (types.is_uint64(dtype) or _is_natural(side) for dtype, side in ((left, first), (right, second)))
    return pa.uint64() if (types.is_uint64(left) or types.is_uint64(right)) and all(unsigned) else pa.int64()


def _is_natural(side: Typed) -> bool:
    return isinstance(side.node, Literal) and isinstance(side.node.value, int) and side.node.value >= 0


def _signed(operator: UnaryOperator, own: pa.DataType) -> _Found | None:
    match family(own):
        case "int" | "null":
            keeps = types.is_uint64(own) and operator is UnaryOperator.ABS
            wide = pa.uint64() if keeps else pa.int64()
            return wide, (wide,)
        case "float":
            return pa.float64(), (pa.float64(),)
        case "decimal":
            return own, (own,)
        case "duration" if operator is UnaryOperator.NEGATE:
            return own, (own,)
    return None


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    try:
        to_array([], source).cast(target)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _hint(expr: Expr, operands: Sequence[Typed]) -> str:
    if {family(operand.dtype) for operand in operands} >= {"timestamp", "timestamp with zone"}:
        return "; times with a zone are instants, and those without one are by some clock: .dt.localize(zone) them"
    match expr:
        case Binary(BinaryOperator.ADD) if all([family(operand.dtype) == "string" for operand in operands]):
            return f"; join text with flow.concat_str([{', '.join(str(operand.node) for operand in operands)}])"
        case Binary(operator) if operator in LOGIC:
            return "; & | need booleans: put each comparison in parentheses"
        case Unary(UnaryOperator.NOT):
            return "; ~ needs booleans"
        case Conditional():
            return "; predicates must be booleans, and all values of a common type: .cast(type) them"
        case Call():
            return _TAKES[expr.function.value.partition(".")[0]]
        case Binary() | FillNull() | IsIn():
            return "; these types cannot be combined: .cast(type) one of them"
    return ""


_TAKES: Final = {
    "is_nan": "; it takes integers and floats",
    "is_finite": "; it takes integers and floats",
    "round": "; it takes integers, floats and decimals",
    "list": "; it takes lists",
    "struct": "; it takes structs",
    "hash": "; it takes numbers, text, bytes and times",
    "from_epoch": "; it takes integers: .cast() decimals, floats and text to int64, and use times without it",
    "concat_str": '; it takes text: .cast("string") other types',
    "str": '; it takes text: .cast("string") other types',
    "dt": "; years to days are parts of timestamps and dates, hours and smaller of timestamps and times of day; "
    "strftime takes timestamps and dates, and localize timestamps",
}
