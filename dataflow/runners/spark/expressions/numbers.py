"""Arithmetic and comparisons of numbers, where Spark's own differ from ``dataflow.expressions``.

Spark raises on division by zero, truncates when it divides ints, gives ``%`` the dividend's sign, and treats NaN as
equal to itself and greater than all other values. The float operations follow numpy's ``divmod`` step by step, so
results are equal to the last bit and the sign of zero.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.nodes import BinaryOperator
from dataflow.expressions.rounding import WHOLE, power_of_ten
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.expressions.shared_columns import Let, Operand, bind_both
from dataflow.runners.spark.expressions.spark_types import spark_type
from dataflow.runners.spark.session import functions

__all__ = [
    "COMPARE",
    "compare_floats",
    "divide",
    "float_floor",
    "float_remainder",
    "int_floor",
    "int_remainder",
    "round_half_away",
]


def compare_floats(operator: BinaryOperator, left: Operand, right: Operand) -> Any:
    """Return the comparison by IEEE 754: with NaN only ``!=`` is true."""
    f = functions()
    beside_nan = f.lit(operator is BinaryOperator.NOT_EQUAL)

    def compared(a: Any, b: Any, _: Let) -> Any:
        both = a.isNotNull() & b.isNotNull()
        return f.when(both & (f.isnan(a) | f.isnan(b)), beside_nan).otherwise(COMPARE[operator](a, b))

    return bind_both(left, right, compared)


COMPARE = {
    BinaryOperator.EQUAL: lambda a, b: a == b,
    BinaryOperator.NOT_EQUAL: lambda a, b: a != b,
    BinaryOperator.LESS: lambda a, b: a < b,
    BinaryOperator.LESS_EQUAL: lambda a, b: a <= b,
    BinaryOperator.GREATER: lambda a, b: a > b,
    BinaryOperator.GREATER_EQUAL: lambda a, b: a >= b,
}


def divide(left: Operand, right: Operand) -> Any:
    """Return the quotient by IEEE 754: by zero it is the dividend times 1 / 0, the infinity with the zero's sign."""
    f = functions()

    def quotient(a: Any, b: Any, _: Let) -> Any:
        return f.when(b == 0.0, a * f.pow(b, f.lit(-1.0))).otherwise(a / b)

    return bind_both(left, right, quotient)


def int_floor(left: Operand, right: Operand) -> Any:
    """Return Spark's ``div``, less one if truncation rounded up; null by zero. The least int by -1 raises."""
    f = functions()

    def floor(a: Any, b: Any, _: Let) -> Any:
        above = (a % b != 0) & ((a < 0) != (b < 0))
        return f.when(b != 0, f.call_function("div", a, b) - f.when(above, f.lit(1)).otherwise(f.lit(0)))

    return bind_both(left, right, floor)


def int_remainder(left: Operand, right: Operand) -> Any:
    """Return Spark's ``%``, plus the divisor if the signs differ; null by zero."""
    f = functions()
    if isinstance(right.constant, int) and right.constant > 0:
        return f.pmod(left.column, right.column)

    def remainder(a: Any, b: Any, let: Let) -> Any:
        moved = let(a % b, lambda r: f.when((r != 0) & ((r < 0) != (b < 0)), r + b).otherwise(r))
        return f.when(b != 0, moved)

    return bind_both(left, right, remainder)


def float_remainder(left: Operand, right: Operand) -> Any:
    """Return numpy's ``remainder``: with the divisor's sign, also on zeros; NaN by zero."""
    f = functions()

    def signed(r: Any, b: Any) -> Any:
        zero = f.lit(0.0) / b  # Spark's optimizer would turn a constant -0.0 into 0.0
        return f.when(r == 0, zero).when((r < 0) != (b < 0), r + b).otherwise(r)

    def remainder(a: Any, b: Any, let: Let) -> Any:
        return f.when(b == 0.0, a * f.lit(math.nan)).otherwise(let(a % b, lambda r: signed(r, b)))

    return bind_both(left, right, remainder)


def float_floor(left: Operand, right: Operand) -> Any:
    """Return numpy's ``floor_divide``: exact even if the rounded quotient is one off; by zero, the result of ``/``."""
    f = functions()

    def less_one(q: Any, condition: Any) -> Any:
        return q - f.when(condition, f.lit(1.0)).otherwise(f.lit(0.0))

    def floored(q: Any, a: Any, b: Any, let: Let) -> Any:
        near = let(f.rint(q), lambda n: less_one(n, n > q))
        whole = let(near, lambda n: n + f.when(q - n > 0.5, f.lit(1.0)).otherwise(f.lit(0.0)))
        return f.when(q == 0, (a / b) * f.lit(0.0)).otherwise(whole)

    def floor(a: Any, b: Any, let: Let) -> Any:
        quotient = let(a % b, lambda r: less_one((a - r) / b, (r != 0) & ((r < 0) != (b < 0))))
        by_zero = a * f.pow(b, f.lit(-1.0))
        return f.when(b == 0.0, by_zero).otherwise(let(quotient, lambda q: floored(q, a, b, let)))

    return bind_both(left, right, floor)


def round_half_away(operand: Operand, digits: int, own: pa.DataType, result: pa.DataType, what: str) -> Any:
    """Return ``round(digits)`` of int64, float64 or decimals, whose type is ``own``."""
    f = functions()
    if types.is_floating(own):
        return operand.bind(lambda x: _round_float(x, digits, operand.let))
    whole_digits, scale = (own.precision - own.scale, own.scale) if types.is_decimal(own) else (19, 0)
    if digits >= scale:
        return operand.column
    sparks = spark_type(result, what)
    zero = f.lit(0).cast(sparks)
    if -digits > whole_digits:
        return f.when(operand.column.isNotNull(), zero)
    if -digits == whole_digits:
        half = f.lit(5 * 10 ** (whole_digits - 1))
        beyond = fail(OverflowError, f"{what}: rounding to {digits} digits does not fit {own}; cast to float64 first")
        below = operand.bind(lambda x: f.when((x < half) & (x > -half), zero).when(x.isNotNull(), beyond))
        return below
    if types.is_decimal(own):
        return f.round(operand.column, digits).cast(sparks)
    unit = 10**-digits
    return operand.bind(lambda x: operand.let(x % unit, lambda rest: x - rest + _carried(rest, unit)))


def _carried(rest: Any, unit: int) -> Any:
    f = functions()
    up, down = (f.lit(number).cast("bigint") for number in (unit, -unit))
    return f.when(rest >= unit // 2, up).when(rest <= -(unit // 2), down).otherwise(f.lit(0).cast("bigint"))


def _round_float(x: Any, digits: int, let: Let) -> Any:
    f = functions()
    power = f.lit(power_of_ten(digits))

    def rounded(scaled: Any) -> Any:
        back = let(
            f.rint(scaled), lambda near: let(_away(scaled, near), lambda n: n / power if digits >= 0 else n * power)
        )
        return f.when(f.abs(scaled) < WHOLE, back).otherwise(x)

    return let(x * power if digits >= 0 else x / power, rounded)


def _away(scaled: Any, near: Any) -> Any:
    """Return ``near``, which ties to even, or the other neighbour of a half if that is farther from zero."""
    f = functions()
    lower, upper = (scaled > 0) & (scaled - near == 0.5), (scaled < 0) & (scaled - near == -0.5)
    return f.when(lower, near + 1.0).when(upper, near - 1.0).otherwise(near)
