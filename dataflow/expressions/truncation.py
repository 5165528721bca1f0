"""``dt.truncate`` on the local engine: integer arithmetic in the column's own unit, on the clock of its zone.

Arrow's own ``floor_temporal`` raises if a zone's clock shows a time twice, as it does each autumn.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers, to_scalar
from dataflow.expressions.signatures import NANOSECONDS

__all__ = ["truncate"]

_DAY: Final = 86_400_000_000  # in microseconds
_LEAST: Final = np.iinfo(np.int64).min


def truncate(times: pa.Array, every: int, offset: int) -> pa.Array:
    """Return the start of each time's interval; ``every`` and ``offset`` in microseconds, which the unit can express.

    Raises: OverflowError below the earliest time.
    """
    dtype = times.type
    if types.is_date32(dtype):
        days = times.cast(pa.int32()).cast(pa.int64())
        return _floored(days, every // _DAY, offset // _DAY).cast(pa.int32()).cast(dtype)
    unit = "ms" if types.is_date64(dtype) else dtype.unit
    length, start = every * 1000 // NANOSECONDS[unit], offset * 1000 // NANOSECONDS[unit]
    if types.is_date64(dtype) or dtype.tz in (None, "UTC"):
        return _floored(times.cast(pa.int64()), length, start).cast(dtype)
    shown = pc.local_timestamp(times).cast(pa.int64())
    starts = _floored(shown, length, start)
    back = pc.subtract(shown, starts)
    result = pc.subtract_checked(times.cast(pa.int64()), back).cast(dtype)
    if every <= _DAY and pc.all(pc.equal(pc.local_timestamp(result).cast(pa.int64()), starts)).as_py() is not False:
        return result  # no clock changed between the start and the time
    return _on_the_clock(starts.cast(pa.timestamp(unit)), times)


def _on_the_clock(readings: pa.Array, times: pa.Array) -> pa.Array:
    """Return the latest instants up to ``times`` at which the zone's clock shows ``readings``, else the gap's end."""
    first, last = (
        pc.assume_timezone(readings, times.type.tz, ambiguous=which, nonexistent="latest")
        for which in ("earliest", "latest")
    )
    return pc.if_else(pc.less_equal(last, times), last, first)


def _floored(ticks: pa.Array, every: int, offset: int) -> pa.Array:
    nulls = to_numbers(pc.is_null(ticks)) if ticks.null_count else None
    given = to_numbers(ticks.fill_null(to_scalar(0)) if ticks.null_count else ticks)
    since = np.remainder(np.remainder(given, every) - offset, every)
    if np.any(given < _LEAST + since):
        raise OverflowError("an interval begins before the earliest time of the column's type; filter such rows out")
    return to_array(given - since, pa.int64(), mask=nulls)
