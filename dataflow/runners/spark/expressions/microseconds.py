"""Conversions of times to microseconds and back, exact in every time zone of the session.

Spark's own timestamp arithmetic uses local days of the session's zone, so it would shift by an hour twice a year. All
arithmetic here is on int64 microseconds, and overflow raises.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.runners.spark.session import functions, pyspark
from dataflow.runners.spark.session_kinds import is_connect

__all__ = ["PER_UNIT", "day_in_zone", "from_ticks", "to_ticks"]

PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""The microseconds of each unit."""
_DAY: Final = 86_400_000_000


def to_ticks(column: Any, dtype: pa.DataType) -> Any:
    """Return the microseconds since 1970 of a date or timestamp, the microseconds of a duration, or an int as int64."""
    f = functions()
    if types.is_integer(dtype):
        return column.cast("bigint")
    if types.is_date(dtype):
        return f.unix_date(column).cast("bigint") * f.lit(_DAY)
    if types.is_timestamp(dtype) and dtype.tz is not None:
        return f.unix_micros(column)
    if types.is_timestamp(dtype):
        exact = _converted(column, "TimestampNTZType", "LongType")
        if exact is not None:
            return exact
    span = column - _epoch() if types.is_timestamp(dtype) else column
    return (span.cast("interval second").cast("decimal(19,6)") * f.lit(1_000_000)).cast("bigint")


def from_ticks(ticks: Any, dtype: pa.DataType) -> Any:
    """Return the timestamp or duration of so many microseconds."""
    f = functions()
    if types.is_timestamp(dtype) and dtype.tz is not None:
        return f.timestamp_micros(ticks)
    if types.is_timestamp(dtype):
        exact = _converted(ticks.cast("bigint"), "LongType", "TimestampNTZType")
        if exact is not None:
            return exact
    span = (f.expr("interval '0.000001' second") * ticks).cast("interval day to second")
    return _epoch() + span if types.is_timestamp(dtype) else span


def _converted(column: Any, given: str, wanted: str) -> Any:
    """Return the column with the same 64 bits as another of Spark's types; None: this session has no such conversion.

    It is the expression with which Spark's own ``window`` converts times. By intervals and decimals, the only other way
    that is exact in every time zone of the session, a value takes eight times as long.
    """
    context = pyspark().SparkContext._active_spark_context
    if context is None or is_connect(column):
        return None
    java = context._jvm.org.apache.spark.sql
    try:
        expressions = java.classic.ExpressionUtils
        types_ = (getattr(java.types.DataTypes, name) for name in (given, wanted))
        changed = java.catalyst.expressions.PreciseTimestampConversion(expressions.expression(column._jc), *types_)
    except TypeError:  # another version of Spark, without one of the classes
        return None
    return pyspark("pyspark.sql.classic.column").Column(expressions.column(changed))


def _epoch() -> Any:
    return functions().expr("timestamp_ntz'1970-01-01 00:00:00'")


def day_in_zone(column: Any, dtype: pa.DataType) -> Any:
    """Return the date of a timestamp in the type's zone."""
    return wall_clock(column, dtype).cast("date")


def wall_clock(column: Any, dtype: pa.DataType) -> Any:
    """Return the local time of a timestamp in the type's zone, as a timestamp without a zone."""
    if dtype.tz is None:
        return column
    f = functions()
    utc = from_ticks(to_ticks(column, dtype), pa.timestamp("us"))
    return utc if dtype.tz == "UTC" else f.convert_timezone(f.lit("UTC"), f.lit(dtype.tz), utc)
