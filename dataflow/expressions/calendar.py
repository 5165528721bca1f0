"""Years, and days of the year, of all timestamps and dates that Arrow has.

Arrow counts years in 16 bits: its results are wrong before -32,767 and after 32,767. The Gregorian calendar repeats
itself every 400 years, so times beyond are moved by whole cycles into the years that Arrow knows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.expressions.signatures import NANOSECONDS

__all__ = ["day_of_year", "year"]

_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_MOST_CYCLES: Final = 75
"""Cycles from 1970 on, and back, whose years fit into 16 bits."""


def year(times: pa.Array) -> pa.Array:
    """Return the year of each timestamp or date, on the clock of its zone.

    >>> year(pa.array([0, 2**41, 10**12], pa.timestamp("s"))).to_pylist()
    [1970, 71654, 33658]
    """
    if _are_known(times):
        return pc.year(times)
    days, cycles = _cycle_days(times)
    return pc.add(pc.year(days), pc.multiply(cycles, _CYCLE_YEARS))


def day_of_year(times: pa.Array) -> pa.Array:
    """Return the day of the year of each timestamp or date, from 1 on.

    >>> day_of_year(pa.array([0, 10**12], pa.timestamp("s"))).to_pylist()
    [1, 270]
    """
    return pc.day_of_year(times if _are_known(times) else _cycle_days(times)[0])


def _are_known(times: pa.Array) -> bool:
    """Return whether Arrow knows the year of each time."""
    if types.is_date32(times.type):
        ticks, a_day = times.cast(pa.int32()), 1
    else:
        unit = "ms" if types.is_date64(times.type) else times.type.unit
        ticks, a_day = times.cast(pa.int64()), 86_400 * NANOSECONDS["s"] // NANOSECONDS[unit]
    ends, limit = pc.min_max(ticks).as_py(), _MOST_CYCLES * _CYCLE_DAYS * a_day
    return ends["min"] is None or -limit <= ends["min"] <= ends["max"] < limit


def _cycle_days(times: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the day of each time, moved into the years from 1970 to 2369, and by how many cycles it was moved."""
    days = times.cast(pa.date32()).cast(pa.int32())
    cycles = pc.floor(pc.divide(days.cast(pa.float64()), float(_CYCLE_DAYS))).cast(pa.int64())
    moved = pc.subtract(days.cast(pa.int64()), pc.multiply(cycles, _CYCLE_DAYS))
    return moved.cast(pa.int32()).cast(pa.date32()), cycles
