"""``dt.truncate`` on the local engine: integer arithmetic in the column's own unit, on the clock of its zone.

Arrow's own ``floor_temporal`` raises if a zone's clock shows a time twice, as it does each autumn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers, to_scalar
from dataflow.expressions.local_intervals import LocalIntervals, Ticks
from dataflow.expressions.signatures import NANOSECONDS

__all__ = ["truncate"]

_DAY: Final = 86_400_000_000  # in microseconds
_LEAST: Final = np.iinfo(np.int64).min


def truncate(times: pa.Array, every: int, offset: int) -> pa.Array:
    """Return the start of each time's interval; ``every`` and ``offset`` in microseconds, which the unit can express.

    Raises: OverflowError if an interval begins beyond the times of the type.
    """
    dtype = times.type
    if types.is_date32(dtype):
        days = times.cast(pa.int32()).cast(pa.int64())
        return _floored(days, every // _DAY, offset // _DAY).cast(pa.int32()).cast(dtype)
    unit = "ms" if types.is_date64(dtype) else dtype.unit
    length, start = every * 1000 // NANOSECONDS[unit], offset * 1000 // NANOSECONDS[unit]
    if types.is_date64(dtype) or dtype.tz in (None, "UTC"):
        return _floored(times.cast(pa.int64()), length, start).cast(dtype)
    intervals = LocalIntervals(length, start, unit, dtype.tz)
    return _of_ticks(times.cast(pa.int64()), intervals.starts).cast(dtype)


def _floored(ticks: pa.Array, every: int, offset: int) -> pa.Array:
    def starts(given: Ticks) -> Ticks:
        since = np.remainder(np.remainder(given, every) - offset, every)
        if np.any(given < _LEAST + since):
            raise OverflowError(
                "an interval begins before the earliest time of the column's type; filter such rows out"
            )
        return given - since

    return _of_ticks(ticks, starts)


def _of_ticks(ticks: pa.Array, starts: Callable[[Ticks], Ticks]) -> pa.Array:
    """Return the start of each time's interval, in ticks, and null for null."""
    nulls = to_numbers(pc.is_null(ticks)) if ticks.null_count else None
    given = to_numbers(ticks.fill_null(to_scalar(0)) if ticks.null_count else ticks)
    return to_array(starts(given), pa.int64(), mask=nulls)
