"""``cast(type, strict=False)`` on the local engine: what the strict cast makes, and null where it would raise.

Whether a value can be cast is the strict cast's to say: it is tried on everything, and where that fails, on halves of
the distinct values. Numbers that become integers go by their range instead, for most of them may be out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.expressions.coercion import value_type

__all__ = ["try_cast"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types
_Cast = Callable[[Value, pa.DataType], Value]
_REFUSALS: Final = (pa.ArrowInvalid, OverflowError)


def try_cast(value: Value, target: pa.DataType, cast: _Cast) -> Value:
    """``cast(value, target)`` with null for each value of which it raises."""
    try:
        return cast(value, target)
    except _REFUSALS:
        pass
    if isinstance(value, pa.Scalar):
        return pa.scalar(None, target)
    if types.is_dictionary(target):
        return try_cast(value, target.value_type, cast).cast(target)
    if types.is_dictionary(value.type):
        value = value.cast(value_type(value.type))
    if types.is_integer(target) and types.is_integer(value.type):
        return _narrowed(value, target)
    if types.is_integer(target) and types.is_floating(value.type):
        return _truncated(value.cast(pa.float64()), target)
    distinct = value.dictionary_encode()
    return pa.concat_arrays(_pieces(distinct.dictionary, target, cast)).take(distinct.indices)


def _narrowed(value: pa.Array, target: pa.DataType) -> pa.Array:
    """Ints that survive the way there and back with their sign."""
    wrapped = value.cast(target, safe=False)
    survives = pc.equal(wrapped.cast(value.type, safe=False), value)
    same_sign = pc.equal(*(pc.less(side, pa.scalar(0, side.type)) for side in (wrapped, value)))
    return pc.if_else(pc.and_(survives, same_sign), wrapped, pa.scalar(None, target))


def _truncated(value: pa.Array, target: pa.DataType) -> pa.Array:
    limits = np.iinfo(target.to_pandas_dtype())
    whole = pc.trunc(value)
    fits = pc.and_(pc.greater_equal(whole, float(limits.min)), pc.less(whole, float(limits.max + 1)))
    return pc.if_else(fits, whole, pa.scalar(None, pa.float64())).cast(target)


def _pieces(values: pa.Array, target: pa.DataType, cast: _Cast) -> list[pa.Array]:
    try:
        return [cast(values, target)]
    except _REFUSALS:
        if len(values) == 1:
            return [pa.nulls(1, target)]
    half = len(values) // 2
    return _pieces(values.slice(0, half), target, cast) + _pieces(values.slice(half), target, cast)
