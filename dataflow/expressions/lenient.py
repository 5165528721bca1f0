"""``cast(type, strict=False)`` on the local engine: the result of the strict cast, and null where it would raise.

The strict cast decides whether a value can be cast: it is tried on all values. If it fails, it is tried on halves of
the distinct values, without text that cannot be read by its look. Numbers that become integers are checked by range
instead, because most of them may be out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_scalar
from dataflow.expressions.branches import places
from dataflow.expressions.coercion import family, value_type

__all__ = ["try_cast"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types
_Cast = Callable[[Value, pa.DataType], Value]
_REFUSALS: Final = (pa.ArrowInvalid, OverflowError)
_LOOKS: Final = (
    (types.is_boolean, r"^(?i:true|false|[01])$"),
    (types.is_integer, r"^-?[0-9]+$"),
    (lambda dtype: types.is_floating(dtype) or types.is_decimal(dtype), r"^[+-]?(?:[0-9.][0-9.eE+-]*|(?i:inf|nan).*)$"),
    (lambda dtype: types.is_date(dtype) or types.is_timestamp(dtype), r"^[0-9][0-9T:. Z+-]*$"),
)
"""Patterns that all text read by the strict cast matches; text that does not match need not be tried."""


def try_cast(value: Value, target: pa.DataType, cast: _Cast) -> Value:
    """Return ``cast(value, target)`` with null for each value that makes it raise."""
    try:
        return cast(value, target)
    except _REFUSALS:
        pass
    if isinstance(value, pa.Scalar):
        return to_scalar(None, target)
    if types.is_dictionary(target):
        return try_cast(value, target.value_type, cast).cast(target)
    if value.type != value_type(value.type):  # a dictionary, or a view, which has few kernels
        value = value.cast(value_type(value.type))
    if types.is_integer(target) and types.is_integer(value.type):
        return _narrowed(value, target)
    if types.is_integer(target) and types.is_floating(value.type):
        return _truncated(value.cast(pa.float64()), target)
    distinct = value.dictionary_encode()
    entries = distinct.dictionary
    looks = next((pattern for belongs, pattern in _LOOKS if belongs(target)), None)
    if looks is None or family(value.type) != "string":
        return _cast_one_by_one(entries, target, cast).take(distinct.indices)
    possible = pc.match_substring_regex(entries, pattern=looks)
    results = _cast_one_by_one(entries.filter(possible), target, cast)
    return results.take(places(possible)).take(distinct.indices)


def _narrowed(value: pa.Array, target: pa.DataType) -> pa.Array:
    """Return ints as ``target``, and null where the cast back gives another value or sign."""
    wrapped = value.cast(target, safe=False)
    survives = pc.equal(wrapped.cast(value.type, safe=False), value)
    same_sign = pc.equal(*(pc.less(side, to_scalar(0, side.type)) for side in (wrapped, value)))
    return pc.if_else(pc.and_(survives, same_sign), wrapped, to_scalar(None, target))


def _truncated(value: pa.Array, target: pa.DataType) -> pa.Array:
    limits = np.iinfo(target.to_pandas_dtype())
    whole = pc.trunc(value)
    fits = pc.and_(
        pc.greater_equal(whole, to_scalar(float(limits.min))), pc.less(whole, to_scalar(float(limits.max + 1)))
    )
    return pc.if_else(fits, whole, to_scalar(None, pa.float64())).cast(target)


def _cast_one_by_one(values: pa.Array, target: pa.DataType, cast: _Cast) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, target), *_pieces(values, target, cast)])


def _pieces(values: pa.Array, target: pa.DataType, cast: _Cast) -> list[pa.Array]:
    try:
        return [cast(values, target)]
    except _REFUSALS:
        if len(values) == 1:
            return [pa.nulls(1, target)]
    half = len(values) // 2
    return _pieces(values.slice(0, half), target, cast) + _pieces(values.slice(half), target, cast)
