"""Conversions of times to microseconds and back, exact in every time zone of the session.

Spark's own timestamp arithmetic uses local days of the session's zone, so it would shift by an hour twice a year. All
arithmetic here is on int64 microseconds, and overflow raises.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.runners.spark.session import functions

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
    span = column - _epoch() if types.is_timestamp(dtype) else column
    return (span.cast("interval second").cast("decimal(19,6)") * f.lit(1_000_000)).cast("bigint")


def from_ticks(ticks: Any, dtype: pa.DataType) -> Any:
    """Return the timestamp or duration of so many microseconds."""
    f = functions()
    if types.is_timestamp(dtype) and dtype.tz is not None:
        return f.timestamp_micros(ticks)
    span = (f.expr("interval '0.000001' second") * ticks).cast("interval day to second")
    return _epoch() + span if types.is_timestamp(dtype) else span


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
