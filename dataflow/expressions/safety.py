"""Which expressions never raise, whatever the rows. The list is short on purpose: all others may raise."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.coercion import value_type
from dataflow.expressions.nodes import (
    Alias,
    Binary,
    BinaryOperator,
    Column,
    FillNull,
    IsIn,
    Literal,
    Unary,
    UnaryOperator,
)
from dataflow.expressions.typing import COMPARISONS, LOGIC, Typed

__all__ = ["never_raises"]

_O, _U = BinaryOperator, UnaryOperator


def never_raises(typed: Typed) -> bool:
    """Return whether evaluating ``typed`` can raise for no row.

    >>> from dataflow.expressions import col
    >>> from dataflow.expressions.typing import resolve
    >>> schema = pa.schema({"x": pa.int64()})
    >>> [never_raises(resolve(e, schema, "")) for e in (col("x") > 1.5, col("x") * 1.5, col("x") * 2 > 1)]
    [True, True, False]
    """
    pairs = zip(typed.operands, typed.compute, strict=True)
    return _is_safe(typed) and all(never_raises(side) and _converts(side, target) for side, target in pairs)


def _is_safe(typed: Typed) -> bool:
    """Return whether the operation never raises once its operands are computed and converted."""
    match typed.node:
        case Column() | Literal() | Alias() | IsIn() | Unary(_U.NOT | _U.IS_NULL | _U.IS_NOT_NULL):
            return True
        case Binary(_O.ADD | _O.SUBTRACT | _O.MULTIPLY | _O.DIVIDE):
            return bool(types.is_float64(typed.dtype))
        case Binary(operator):
            return operator in COMPARISONS or operator in LOGIC
        case FillNull():
            return not types.is_dictionary(typed.dtype)
    return False


def _converts(side: Typed, target: pa.DataType) -> bool:
    """Return whether the values of ``side`` can be converted to ``target``; a literal was, before the first row."""
    own = value_type(side.dtype)
    if isinstance(side.node, Literal) or side.dtype == target or own == target or types.is_null(own):
        return True
    if types.is_integer(own) and types.is_integer(target):
        narrow = types.is_signed_integer(target) and types.is_uint64(own)
        signed = types.is_unsigned_integer(target) and types.is_signed_integer(own)
        return target.bit_width == 64 and not narrow and not signed
    if types.is_float64(target):
        return bool(types.is_integer(own) or types.is_floating(own))
    wide = (types.is_large_string(target) and types.is_string(own)) or (
        types.is_large_binary(target) and types.is_binary(own)
    )
    return bool(wide)
