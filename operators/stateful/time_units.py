"""Event times without loss: in nanoseconds if their column has these, else in microseconds, and compared exactly.

Watermarks, timers and ``lateness`` are whole microseconds. A row is late if its time, rounded down to microseconds, is
before the watermark. It is the same to say: if it is before the first time of its unit at or after the watermark.

Each input of an operator keeps its times in its own unit, so no time is rounded and none overflows. Times of two inputs
are compared by turning the one into a bound for the other: of right times in nanoseconds, those at or after the left
time of t microseconds begin at 1000 t. A bound that 64 bits cannot hold is cut off at their ends. That changes no
comparison, because the greatest number of 64 bits is refused as a time. So times that nanoseconds cannot hold, after
the year 2262, are compared with times in nanoseconds, too.

A distance of two times is in nanoseconds: "less than 1 us" is "at most 999 ns".
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.windows import EventTime
from dataflow.state.arrays import GREATEST, LEAST, Numbers, words
from dataflow.state.ttl import Ttl
from operators.stateful.times import edges, row_times, time_column

__all__ = ["TimeUnit", "shifted"]


class TimeUnit(Enum):
    """The unit in which an operator keeps the event times of an input.

    >>> us, ns = TimeUnit.of(pa.timestamp("s")), TimeUnit.of(pa.timestamp("ns"))
    >>> us, ns
    (<TimeUnit.MICROSECOND: 'us'>, <TimeUnit.NANOSECOND: 'ns'>)
    >>> ns.times(pa.array([1500], pa.timestamp("ns"))).tolist(), us.times(pa.array([1], pa.timestamp("s"))).tolist()
    ([1500], [1000000])
    """

    MICROSECOND = "us"
    NANOSECOND = "ns"

    @classmethod
    def of(cls, dtype: pa.DataType) -> TimeUnit:
        """Return the unit in which times of a timestamp column are kept."""
        return cls.NANOSECOND if dtype.unit == "ns" else cls.MICROSECOND

    @classmethod
    def of_time(cls, schema: pa.Schema, time: EventTime | None) -> TimeUnit:
        """Return the unit of the event time of rows; microseconds without one, because the clock has these."""
        return cls.MICROSECOND if time is None else cls.of(schema.field(time.column).type)

    @property
    def per_microsecond(self) -> int:
        """How many of this unit a microsecond has."""
        return 1000 if self is TimeUnit.NANOSECOND else 1

    def times(self, column: pa.Array, back: int = 0) -> Numbers:
        """Return each value of a timestamp column (no nulls) minus ``back``, in its unit, as numbers of this unit.

        Raises: OverflowError if one does not fit into 64 bits, or is the greatest number of 64 bits.
        """
        times: Numbers = row_times(column, back) if self is TimeUnit.MICROSECOND else words(column) - back
        if len(times) and int(times.max()) == GREATEST:
            raise OverflowError(f"{GREATEST} {self.value} is no event time, because no number of 64 bits is after it")
        return times

    def times_of(self, batch: pa.RecordBatch, time: EventTime, where: str) -> Numbers:
        """Return the event times of rows, which are of this unit; ``where`` names the operator.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        column = time_column(batch, time.column, where)
        try:
            return self.times(column, time.back)
        except OverflowError as error:
            raise OverflowError(
                f"{where}: event times in {time.column!r} are out of range: {error}; filter such rows out"
            ) from error

    def microseconds(self, times: Numbers) -> Numbers:
        """Return times of this unit in microseconds, rounded down."""
        return times if self is TimeUnit.MICROSECOND else times // 1000

    def in_microseconds(self, time: int) -> int:
        """Return one time of this unit in microseconds, rounded down."""
        return time // self.per_microsecond

    def first(self, time: int) -> int:
        """Return the first time of this unit at or after ``time`` microseconds, within 64 bits.

        >>> TimeUnit.NANOSECOND.first(7), TimeUnit.NANOSECOND.first(-(2**60)) == -(2**63)
        (7000, True)
        """
        return max(LEAST, min(GREATEST, time * self.per_microsecond))

    def first_at(self, times: Numbers, unit: TimeUnit, distance: int = 0) -> Numbers:
        """Return for each of ``times`` the first time of this unit at or after it plus ``distance``, within 64 bits.

        Args:
            times: times of ``unit``.
            unit: any unit.
            distance: nanoseconds, at most ``clock.LONGEST`` and one more.

        >>> us, ns = TimeUnit.MICROSECOND, TimeUnit.NANOSECOND
        >>> ns.first_at(np.array([5, 2**62]), us, -1).tolist() == [4999, 2**63 - 1]
        True
        >>> us.first_at(np.array([5000, 5001, -1]), ns).tolist()
        [5, 6, 0]
        """
        whole, part = divmod(distance, 1000)
        if self is unit:
            by = distance if self is TimeUnit.NANOSECOND else whole + (part > 0)
            return shifted(times, by) if by else times
        if self is TimeUnit.MICROSECOND:
            return times // 1000 + whole + (times % 1000 + part + 999) // 1000
        moved = shifted(times, whole)
        bounds = moved * 1000 + part  # where this overflows, it is replaced
        bounds[moved > (GREATEST - part) // 1000] = GREATEST
        bounds[moved < -((part - LEAST) // 1000)] = LEAST
        return bounds

    def first_one_at(self, time: int, unit: TimeUnit, distance: int = 0) -> int:
        """Return what ``first_at`` returns for one time. The ends of 64 bits, the ends of time, stay where they are."""
        if time in (LEAST, GREATEST):
            return time
        bound = -(-(1000 * time // unit.per_microsecond + distance) * self.per_microsecond // 1000)
        return max(LEAST, min(GREATEST, bound))

    def ttl(self, ttl: Ttl | None) -> Ttl | None:
        """Return ``ttl``, which is in microseconds, in this unit."""
        return None if ttl is None else replace(ttl, length=ttl.length * self.per_microsecond)

    def edges(self, times: Numbers, dtype: pa.DataType) -> pa.Array:
        """Return times of this unit as a column of ``dtype``, which is of nanoseconds if these times are.

        Raises: OverflowError if its 64 bits cannot hold them.
        """
        return edges(times, dtype) if self is TimeUnit.MICROSECOND else to_array(times, dtype)


def shifted(times: Numbers, by: int) -> Numbers:
    """Return ``times`` + ``by``, cut off at the ends of int64.

    >>> shifted(np.array([5, 2**63 - 2]), 3).tolist() == [8, 2**63 - 1]
    True
    """
    sums = times + np.int64(by)
    if by > 0:
        sums[sums < times] = GREATEST
    elif by < 0:
        sums[sums > times] = LEAST
    return sums
