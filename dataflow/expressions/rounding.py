"""``round`` on the local engine: halves away from zero, in int64, uint64, float64 and decimals."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_scalar

__all__ = ["WHOLE", "power_of_ten", "round_half_away"]

WHOLE: Final = 2.0**52
"""Every float64 from here on is a whole number."""
_INT_DIGITS: Final = 19
_MODE: Final = "half_towards_infinity"  # pyarrow's name for away from zero


def power_of_ten(digits: int) -> float:
    """Return the float64 nearest to 10 to the power of ``abs(digits)``."""
    return float(f"1e{abs(digits)}")


def round_half_away(values: pa.Array, digits: int) -> pa.Array:
    """Return ``values`` rounded to ``digits`` places.

    Raises: OverflowError if a rounded value does not fit the type.
    """
    dtype = values.type
    if types.is_floating(dtype):
        return _round_floats(values, digits)
    whole_digits, scale = (dtype.precision - dtype.scale, dtype.scale) if types.is_decimal(dtype) else (_INT_DIGITS, 0)
    if digits >= scale:
        return values
    if -digits > whole_digits:
        return _zeros(values)
    if -digits == whole_digits:
        return _round_below_one_unit(values, whole_digits)
    try:
        return pc.round(values, ndigits=digits, round_mode=_MODE)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"{error}; cast to a wider type, or filter such rows out first") from error


def _round_floats(values: pa.Array, digits: int) -> pa.Array:
    power = to_scalar(power_of_ten(digits))
    forth, back = (pc.multiply, pc.divide) if digits >= 0 else (pc.divide, pc.multiply)
    scaled = forth(values, power)
    rounded = back(pc.round(scaled, round_mode=_MODE), power)
    return pc.if_else(pc.less(pc.abs(scaled), to_scalar(WHOLE)), rounded, values)


def _round_below_one_unit(values: pa.Array, whole_digits: int) -> pa.Array:
    """Round to a power of ten that the type does not hold, except uint64, which has one multiple of 10**19."""
    if types.is_uint64(values.type):
        return _round_unsigned(values)
    half_unit = 5 * 10 ** (whole_digits - 1)
    half = to_scalar(Decimal(half_unit) if types.is_decimal(values.type) else half_unit, values.type)
    if pc.any(pc.greater_equal(pc.abs_checked(values), half)).as_py():
        raise OverflowError(f"rounding to {-whole_digits} digits does not fit {values.type}; cast to float64 first")
    return _zeros(values)


def _round_unsigned(values: pa.Array) -> pa.Array:
    half, three_halves, unit = (to_scalar(number, values.type) for number in (5 * 10**18, 15 * 10**18, 10**19))
    if pc.any(pc.greater_equal(values, three_halves)).as_py():
        raise OverflowError("rounding to -19 digits does not fit uint64; cast to float64 first")
    return pc.if_else(pc.less(values, half), _zeros(values), unit)


def _zeros(values: pa.Array) -> pa.Array:
    zero = to_scalar(Decimal(0) if types.is_decimal(values.type) else 0, values.type)
    return pc.if_else(pc.is_null(values), values, zero)
