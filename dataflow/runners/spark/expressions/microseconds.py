"""Times as microseconds and back, exactly and whatever the session's time zone.

Spark's own timestamp arithmetic goes through local days of the session's zone, and so would shift by an hour twice a
year. Everything here is done on int64 microseconds, in which overflow raises.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.runners.spark.session import functions

__all__ = ["PER_UNIT", "day_in_zone", "from_ticks", "to_ticks"]

PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in one of each unit."""
_DAY: Final = 86_400_000_000


def to_ticks(column: Any, dtype: pa.DataType) -> Any:
    """Microseconds since 1970 of a date or a timestamp, those of a duration; an int as int64."""
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
    """The timestamp or the duration of so many microseconds."""
    f = functions()
    if types.is_timestamp(dtype) and dtype.tz is not None:
        return f.timestamp_micros(ticks)
    span = (f.expr("interval '0.000001' second") * ticks).cast("interval day to second")
    return _epoch() + span if types.is_timestamp(dtype) else span


def _epoch() -> Any:
    return functions().expr("timestamp_ntz'1970-01-01 00:00:00'")


def day_in_zone(column: Any, dtype: pa.DataType) -> Any:
    """The date that a clock in the type's zone shows at a timestamp."""
    return wall_clock(column, dtype).cast("date")


def wall_clock(column: Any, dtype: pa.DataType) -> Any:
    """What a clock in the type's zone shows, as a timestamp without a zone."""
    if dtype.tz is None:
        return column
    f = functions()
    utc = from_ticks(to_ticks(column, dtype), pa.timestamp("us"))
    return utc if dtype.tz == "UTC" else f.convert_timezone(f.lit("UTC"), f.lit(dtype.tz), utc)
