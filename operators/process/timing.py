"""Times of process functions: datetimes for users, microseconds since 1970 for the engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.contracts.windows import EventTime
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers, words
from operators.process.values import shown
from operators.stateful.times import row_times

__all__ = ["Moments", "due_time", "due_times"]

_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_LEAST: Final = (datetime.min - _EPOCH) // _MICROSECOND
_GREATEST: Final = (datetime.max - _EPOCH) // _MICROSECOND


class Moments:
    """Converts microseconds to datetimes, which have a zone if the stream's event time has one.

    >>> Moments(None, None).moment(1_500_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000)
    """

    def __init__(self, time: EventTime | None, schema: pa.Schema | None) -> None:
        tz = None if time is None or schema is None else schema.field(time.column).type.tz
        self.type = pa.timestamp("us", None if tz is None else "UTC")
        self._zone = None if tz is None else UTC

    def moment(self, time: int) -> datetime:
        """Return a time as a datetime; one that no datetime can be is the nearest one."""
        moment = _EPOCH + timedelta(microseconds=min(max(time, _LEAST), _GREATEST))
        return moment if self._zone is None else moment.replace(tzinfo=self._zone)

    def watermark(self, watermark: int | None) -> datetime | None:
        """Return a watermark for users; the last one is the greatest datetime."""
        return None if watermark is None else self.moment(watermark)


def due_time(due: Any, where: str) -> int:
    """Return a due time in microseconds. Raises: TypeError unless it is a datetime or a timestamp of Arrow.

    >>> due_time(datetime(1970, 1, 2), "process 'p'")
    86400000000
    """
    if isinstance(due, pa.TimestampScalar) and due.is_valid:
        multiplied, divided = _UNITS[due.type.unit]
        time = -(-due.value * multiplied // divided)  # never too early
        if not -(2**63) <= time < MAX_WATERMARK:
            raise OverflowError(f"{where}: the due time {due} does not fit into microseconds of 64 bits")
        return time
    if not isinstance(due, datetime):
        raise TypeError(f"{where}: a timer is due at a datetime, got {shown(due)}")
    offset = due.utcoffset()
    if offset is not None:
        return (due.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND
    return (due.replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def due_times(dues: Any, rows: int, where: str) -> Numbers:
    """Return the due times of ``rows`` slots in microseconds.

    Raises: TypeError for anything but times; ValueError for nulls or another number of them; OverflowError for a time
        out of range.
    """
    if isinstance(dues, datetime):
        return np.full(rows, due_time(dues, where), np.int64)
    times = _times(dues, where)
    if len(times) != rows:
        raise ValueError(f"{where}: expected {rows} due times, one for each slot, got {len(times)}")
    if len(times) and int(times.max()) >= MAX_WATERMARK:
        raise OverflowError(f"{where}: a due time does not fit into microseconds of 64 bits")
    return times


def _times(dues: Any, where: str) -> Numbers:
    if isinstance(dues, pa.ChunkedArray):
        dues = pa.concat_arrays(dues.chunks) if dues.num_chunks else pa.array([], dues.type)
    if isinstance(dues, np.ndarray) and dues.dtype.kind == "M":
        if np.isnat(dues).any():
            raise ValueError(f"{where}: some due times are null")
        whole = dues.astype("datetime64[us]")
        return whole.astype(np.int64) + (whole < dues)  # never too early
    if isinstance(dues, pa.Array):
        if dues.null_count:
            raise ValueError(f"{where}: {dues.null_count} due times are null; leave these slots out")
        if pa.types.is_timestamp(dues.type):
            return -(-words(dues) // 1000) if dues.type.unit == "ns" else row_times(dues)  # never too early
        dues = to_numbers(dues)
    if isinstance(dues, list | tuple):
        return np.array([due_time(due, where) for due in dues], np.int64)
    if not isinstance(dues, np.ndarray) or dues.dtype.kind not in "iu":
        kind = f"an array of {dues.dtype}" if isinstance(dues, np.ndarray) else shown(dues)
        raise TypeError(f"{where}: expected due times as timestamps, or as int64 microseconds, got {kind}")
    return dues.astype(np.int64)
