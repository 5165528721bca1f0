"""Families of types, and the common type in which two sides can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from dataflow.arrow_values import to_scalar
from dataflow.expressions.nodes import Column, Literal

if TYPE_CHECKING:
    from dataflow.expressions.typing import Typed

__all__ = ["common_type", "common_type_of", "family", "integer_digits", "literal_type", "value_type"]


def value_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the values: of a dictionary its entries', of a view the large type, else ``dtype`` itself."""
    if types.is_dictionary(dtype):
        return value_type(dtype.value_type)
    if types.is_string_view(dtype):
        return pa.large_string()
    return pa.large_binary() if types.is_binary_view(dtype) else dtype


def family(dtype: pa.DataType) -> str:
    """Return the family of ``dtype``; types of one family compare, those of "other" (lists, structs, ...) do not."""
    dtype = value_type(dtype)
    for name, belongs in _FAMILIES.items():
        if belongs(dtype):
            return name
    if types.is_timestamp(dtype):
        return "timestamp" if dtype.tz is None else "timestamp with zone"
    return "other"


_FAMILIES: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "null": types.is_null,
    "bool": types.is_boolean,
    "int": types.is_integer,
    "float": types.is_floating,
    "decimal": types.is_decimal,
    "string": lambda dtype: types.is_string(dtype) or types.is_large_string(dtype),
    "binary": lambda dtype: types.is_binary(dtype) or types.is_large_binary(dtype),
    "date": types.is_date,
    "time": types.is_time,
    "duration": types.is_duration,
}


def integer_digits(dtype: pa.DataType) -> int:
    """Return the most decimal digits of a value of an integer type.

    >>> integer_digits(pa.int32()), integer_digits(pa.uint64())
    (10, 20)
    """
    return {1: 3, 2: 5, 4: 10, 8: 19 + types.is_uint64(dtype)}[dtype.byte_width]


def common_type(left: Typed, right: Typed) -> pa.DataType | None:
    """Return the type in which both sides can be compared, or None; a literal takes the other's type if it fits."""
    a, b = value_type(left.dtype), value_type(right.dtype)
    if a.equals(b) or types.is_null(b):
        return a if not types.is_null(a) else pa.int64()
    if types.is_null(a):
        return b
    families = {family(a), family(b)}
    if len(families) == 1:
        if isinstance(right.node, Literal) and _fits(right.node.value, a):
            return a
        if isinstance(left.node, Literal) and _fits(left.node.value, b):
            return b
        return _with_room(_widest(families.pop(), a, b), [left, right])
    if families == {"int", "decimal"}:
        return _widest_decimal(a, b)
    return pa.float64() if families <= {"int", "float", "decimal"} else None


_SEVERAL: Final = Column("")  # represents several values; not a literal, which could still take another type


def common_type_of(sides: Sequence[Typed]) -> pa.DataType | None:
    """Return the type that holds the values of all ``sides``, or None; the null type if all are null."""
    ordered = sorted(sides, key=lambda side: isinstance(side.node, Literal))  # literals take the columns' type
    result = replace(ordered[0], dtype=value_type(ordered[0].dtype))
    for side in ordered[1:]:
        if types.is_null(value_type(side.dtype)):
            continue
        if types.is_null(result.dtype):
            result = replace(side, dtype=value_type(side.dtype))
            continue
        common = common_type(result, side)
        if common is None:
            return None
        result = replace(result, node=_SEVERAL, dtype=common)
    return result.dtype


def _fits(value: object, dtype: pa.DataType) -> bool:
    if types.is_floating(dtype):
        return types.is_float64(dtype)
    try:
        to_scalar(value, literal_type(value)).cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _with_room(common: pa.DataType | None, sides: Sequence[Typed]) -> pa.DataType | None:
    """Return ``common``, or None if it is too fine a unit of time for a literal among ``sides``."""
    if common is None or not (types.is_timestamp(common) or types.is_duration(common)):
        return common
    literals = [side.node.value for side in sides if isinstance(side.node, Literal)]
    return common if all([_fits(value, common) for value in literals]) else None


def _widest(kind: str, a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    match kind:
        case "int" if types.is_uint64(a) or types.is_uint64(b):
            signed = types.is_signed_integer(a) or types.is_signed_integer(b)
            return pa.decimal128(20, 0) if signed else pa.uint64()
        case "int":
            return pa.int64()
        case "float":
            return pa.float64()
        case "decimal":
            return _widest_decimal(a, b)
        case "string":
            return pa.large_string()
        case "binary":
            return pa.large_binary()
        case "date":
            return pa.date64()
        case "time":
            return pa.time64(_finest(a, b))
        case "duration":
            return pa.duration(_finest(a, b))
        case "timestamp" | "timestamp with zone":
            return pa.timestamp(_finest(a, b), a.tz)
    return None


def _finest(a: pa.DataType, b: pa.DataType) -> str:
    units = ("s", "ms", "us", "ns")
    finest = max(units.index(a.unit), units.index(b.unit))
    return units[max(finest, 2)] if types.is_time(a) else units[finest]


def _widest_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    digits = [(20, 0) if types.is_integer(side) else (side.precision - side.scale, side.scale) for side in (a, b)]
    scale = max(scale for _, scale in digits)
    precision = max(whole for whole, _ in digits) + scale
    if precision > 76:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def literal_type(value: object) -> pa.DataType:
    """Return the type of a constant by itself."""
    return pa.uint64() if isinstance(value, int) and value >= 2**63 else to_scalar(value).type
