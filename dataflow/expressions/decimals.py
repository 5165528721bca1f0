"""Conversions between decimals and other numbers, where Arrow's own casts refuse values that fit, or round twice."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_scalar
from dataflow.expressions.coercion import integer_digits

__all__ = ["decimal_to_float", "integer_to_decimal"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types

_MOST_DIGITS: Final = 76
"""The digits of the widest decimals."""
_EXACT: Final = 2**53
"""All ints up to here are float64s."""
_EXACT_POWER: Final = 22
"""All powers of ten up to this one are float64s."""


def integer_to_decimal(value: Value, target: pa.DataType) -> Value:
    """Return ints as decimals. Arrow alone refuses a type that cannot hold all ints, whatever the values are.

    Raises: ArrowInvalid for a value that does not fit.

    >>> integer_to_decimal(pa.array([12, None]), pa.decimal128(4, 2)).to_pylist()
    [Decimal('12.00'), None]
    """
    scale = max(target.scale, 0)
    digits = integer_digits(value.type) + scale
    if digits <= target.precision or digits > _MOST_DIGITS:
        return value.cast(target)
    return value.cast(pa.decimal256(digits, scale)).cast(target)


def decimal_to_float(value: Value, target: pa.DataType) -> Value:
    """Return the nearest float of each decimal. Arrow multiplies by a rounded power of ten, and rounds again.

    >>> from decimal import Decimal
    >>> decimal_to_float(pa.array([Decimal("1234567.89")]), pa.float64()).to_pylist()
    [1234567.89]
    """
    if isinstance(value, pa.Scalar):
        return decimal_to_float(pa.repeat(value, 1), target)[0]
    if not pa.types.is_float64(target) or not 0 <= value.type.scale <= _EXACT_POWER:
        return _by_text(value, target)
    narrow = pa.types.is_decimal32(value.type) or pa.types.is_decimal64(value.type)
    column = value.cast(pa.decimal128(value.type.precision, value.type.scale)) if narrow else value
    kind = pa.decimal256 if pa.types.is_decimal256(column.type) else pa.decimal128
    digits = pa.Array.from_buffers(kind(column.type.precision, 0), len(column), column.buffers(), offset=column.offset)
    ends = pc.min_max(digits).as_py()
    if ends["min"] is not None and not -_EXACT <= ends["min"] <= ends["max"] <= _EXACT:
        return _by_text(value, target)
    return pc.divide(digits.cast(pa.int64()).cast(pa.float64()), to_scalar(10.0**value.type.scale))


def _by_text(value: pa.Array, target: pa.DataType) -> pa.Array:
    return value.cast(pa.string()).cast(target)
