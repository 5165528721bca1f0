"""Event times as integers: microseconds for the engine, numbers of windows for the state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array
from dataflow.contracts.windows import Tumbling
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import words

__all__ = ["Numbers", "edges", "latest", "row_times", "window_numbers"]

Numbers = npt.NDArray[np.int64]
"""Window numbers."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def latest(times: pa.Array) -> int:
    """Return the latest of ``times`` (no nulls, at least one), in microseconds, rounded down.

    >>> latest(pa.array([3, -5], pa.timestamp("ns"))), latest(pa.array([-1500], pa.timestamp("ns")))
    (0, -2)
    """
    return _microseconds(pc.max(times).value, times.type.unit)


def _microseconds(time: int, unit: str) -> int:
    return time * 1_000_000 // _PER_SECOND[unit]


def row_times(times: pa.Array, back: int = 0) -> npt.NDArray[np.int64]:
    """Return each of ``times`` (no nulls) minus ``back``, in its unit, as microseconds, rounded down.

    Raises: OverflowError if one does not fit into 64 bits.

    >>> row_times(pa.array([-1500, 2000], pa.timestamp("ns"))).tolist()
    [-2, 2]
    """
    per_second = _PER_SECOND[times.type.unit]
    if per_second < 1_000_000:
        return words(_finer(times)) - back * (1_000_000 // per_second)
    return (words(times) - back) // (per_second // 1_000_000)


def window_numbers(times: pa.Array, window: Tumbling, back: int = 0) -> tuple[Numbers, int, int]:
    """Return the window of each of ``times`` (no nulls, at least one), and the first and the last of these windows.

    Event times are the column's values minus ``back``, in its unit.

    Raises: OverflowError if the edges of a window do not fit microseconds in 64 bits: year 294247 is the last.

    >>> numbers, low, high = window_numbers(pa.array([-1, 0, 9_999, 10_000], pa.timestamp("ms")), Tumbling(10_000_000))
    >>> numbers.tolist(), low, high
    ([-1, 0, 0, 1], -1, 1)
    """
    from operators.kernels.windows import number_windows

    per_second = _PER_SECOND[times.type.unit]
    if window.size * per_second % 1_000_000 or window.offset * per_second % 1_000_000:
        times, per_second = _finer(times), 1_000_000
    numbers = np.empty(len(times), np.int64)
    size, offset = (length * per_second // 1_000_000 for length in (window.size, window.offset))
    low, high = number_windows(words(times), size, offset + back, numbers)
    if window.start(low) < -MAX_WATERMARK or window.end(high) >= MAX_WATERMARK:
        at = [f"{window.start(number)}" for number in (low, high)]
        raise OverflowError(
            f"event times between {at[0]} and {at[1]} us are out of range for window edges: filter such rows out"
        )
    return numbers, low, high


def _finer(times: pa.Array) -> pa.Array:
    try:
        return times.cast(pa.timestamp("us", times.type.tz))
    except pa.ArrowInvalid as error:
        raise OverflowError(f"an event time does not fit into microseconds of 64 bits: {error}") from error


def edges(starts: npt.NDArray[np.int64], dtype: pa.DataType) -> pa.Array:
    """Return ``starts`` (microseconds) as a column of ``dtype``, a timestamp of any unit that holds them exactly.

    Raises: OverflowError if its 64 bits cannot hold them.
    """
    try:
        return to_array(starts, pa.timestamp("us", dtype.tz)).cast(dtype)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"the edge of a window does not fit into {dtype}: {error}") from error
