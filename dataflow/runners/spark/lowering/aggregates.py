"""Aggregates as aggregates of Spark's, and what is computed of them for each group in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.expressions import AggregateKind, Aggregation
from dataflow.expressions.coercion import value_type
from dataflow.runners.spark.expressions.columns import column_of
from dataflow.runners.spark.expressions.microseconds import from_ticks, to_ticks
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.expressions.spark_types import spark_type
from dataflow.runners.spark.lowering.inputs import NotLowered
from dataflow.runners.spark.session import functions

__all__ = ["Lowered", "lowered"]

_K: Final = AggregateKind


@dataclass(frozen=True)
class Lowered:
    """An aggregate: Spark's aggregates, and a function of their results."""

    parts: Sequence[Any]
    result: Callable[..., Any]


def lowered(aggregation: Aggregation, schema: pa.Schema, where: str) -> Lowered:
    """Return the aggregates of Spark's for ``aggregation`` over rows of ``schema``.

    Raises: NotLowered, UnsupportedOnRunner if Spark cannot compute it exactly.
    """
    f = functions()
    predicate = None if aggregation.where is None else column_of(aggregation.where, schema, where)
    if aggregation.argument is None:
        counted = f.lit(1) if predicate is None else f.when(predicate, f.lit(1))
        return Lowered([f.count(counted)], _as_it_is)
    dtype = value_type(aggregation.argument.dtype(schema))
    rule = _RULES[aggregation.kind]
    if isinstance(rule, str):
        raise NotLowered(f"{aggregation} {rule}")
    value = column_of(aggregation.argument, schema, where)
    value = value if predicate is None else f.when(predicate, value)
    return rule(value, dtype, aggregation, where)


def _as_it_is(value: Any) -> Any:
    return value


def _count(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    return Lowered([functions().count(value)], _as_it_is)


def _count_distinct(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    if types.is_floating(dtype):
        raise NotLowered("Spark counts distinct floats in another way: 0.0 and -0.0, and NaN")
    return Lowered([functions().count_distinct(value)], _as_it_is)


def _sum(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    f = functions()
    what = f"{where}: the sum {aggregation.name!r}"
    if types.is_boolean(dtype):
        return Lowered([f.sum(value.cast("int"))], _as_it_is)
    if types.is_floating(dtype):
        return Lowered([f.sum(value.cast("double"))], _as_it_is)
    if types.is_decimal(dtype):
        return Lowered([f.sum(value)], _as_it_is) if dtype.precision <= _SUMMED else _decimal_sum(value, dtype, what)
    if types.is_duration(dtype):
        whole = _whole_sum(to_ticks(value, dtype), what)
        return Lowered(whole.parts, lambda *parts: from_ticks(whole.result(*parts), dtype))
    if types.is_unsigned_integer(dtype):
        raise NotLowered("Spark has no type for a sum of unsigned integers, uint64")
    return Lowered([f.sum(value)], _as_it_is) if dtype.bit_width <= _HALF else _whole_sum(value, what)


_SUMMED: Final = 28
"""The most digits of decimals whose sum always fits: Spark's has ten more, and at most 38."""
_HALF: Final = 32
"""The bits of each half of an int64."""


def _whole_sum(value: Any, what: str) -> Lowered:
    """Return the sum of int64 numbers, exact whatever their order: of the high and the low halves, joined at the end.

    Neither sum overflows below 2**31 rows of a group; above, Spark raises an error if one does.
    """
    f = functions()
    low_bits = f.lit(2**_HALF - 1)
    error = fail(OverflowError, f"{what} does not fit into 64 bits: cast its argument to float64")

    def joined(high: Any, low: Any) -> Any:
        carried = high + f.shiftright(low, _HALF)
        fits = (carried >= f.lit(-(2 ** (_HALF - 1)))) & (carried < f.lit(2 ** (_HALF - 1)))
        total = f.shiftleft(carried, _HALF).bitwiseOR(low.bitwiseAND(low_bits))
        # null if there is no value, as ``fits`` is then
        return f.when(fits, total).when(~fits, error.cast("bigint"))

    return Lowered([f.sum(f.shiftright(value, _HALF)), f.sum(value.bitwiseAND(low_bits))], joined)


def _decimal_sum(value: Any, dtype: pa.DataType, what: str) -> Lowered:
    """Return the sum of decimals, which may have too many digits. Spark's own error would not say where."""
    f, widest = functions(), pa.decimal128(38, dtype.scale)
    error = fail(OverflowError, f"{what} does not fit into {widest}: cast its argument to float64")

    def checked(total: Any, n: Any) -> Any:
        # not of another scale: Spark would round the total to it
        return f.when((n > 0) & total.isNull(), error.cast(spark_type(widest, what))).otherwise(total)

    return Lowered([f.try_sum(value), f.count(value)], checked)


def _mean(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    f = functions()
    if types.is_decimal(dtype):
        if dtype.precision <= _SUMMED:
            return Lowered([f.sum(value), f.count(value)], lambda total, n: f.try_divide(total.cast("double"), n))
        parts = [f.try_sum(value), f.sum(value.cast("double")), f.count(value)]
        return Lowered(parts, lambda exact, near, n: f.try_divide(f.coalesce(exact.cast("double"), near), n))
    value = value.cast("int") if types.is_boolean(dtype) else value
    return Lowered([f.avg(value.cast("double"))], _as_it_is)


def _variance(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    f = functions()
    value, ddof = value.cast("double"), aggregation.ddof
    if ddof == 0:
        return Lowered([f.var_pop(value)], _as_it_is)
    if ddof == 1:
        return Lowered([f.var_samp(value)], _as_it_is)
    return Lowered(
        [f.var_pop(value), f.count(value)], lambda spread, n: f.when(n > ddof, spread * n / (n - f.lit(ddof)))
    )


def _deviation(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    variance = _variance(value, dtype, aggregation, where)
    return Lowered(variance.parts, lambda *parts: functions().sqrt(variance.result(*parts)))


def _least(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    return Lowered([functions().min(value)], _as_it_is)


def _greatest(value: Any, dtype: pa.DataType, aggregation: Aggregation, where: str) -> Lowered:
    return Lowered([functions().max(value)], _as_it_is)


_BY_ORDER: Final = "depends on the order of rows"
_OF_USER: Final = "is a function of the user's"

_RULES: Final[dict[AggregateKind, Callable[[Any, pa.DataType, Aggregation, str], Lowered] | str]] = {
    _K.COUNT: _count,
    _K.COUNT_DISTINCT: _count_distinct,
    _K.SUM: _sum,
    _K.MEAN: _mean,
    _K.VARIANCE: _variance,
    _K.STDDEV: _deviation,
    _K.MIN: _least,
    _K.MAX: _greatest,
    _K.FIRST: _BY_ORDER,
    _K.LAST: _BY_ORDER,
    _K.ARG_MIN: _BY_ORDER,
    _K.ARG_MAX: _BY_ORDER,
    _K.TO_LIST: _BY_ORDER,
    _K.QUANTILE: "is rounded in another way by Spark",
    _K.KERNEL: _OF_USER,
    _K.PYTHON: _OF_USER,
}
"""How each kind of aggregate is computed, or why it is not."""
