"""Event times as integers: microseconds for the engine, numbers of windows for the state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array
from dataflow.contracts.windows import Sliced
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers, words

__all__ = ["edges", "latest", "row_times", "slice_numbers", "time_column"]


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def latest(times: pa.Array) -> int:
    """Return the latest of ``times`` (no nulls, at least one), in microseconds, rounded down.

    >>> latest(pa.array([3, -5], pa.timestamp("ns"))), latest(pa.array([-1500], pa.timestamp("ns")))
    (0, -2)
    """
    return _microseconds(pc.max(times).value, times.type.unit)


def _microseconds(time: int, unit: str) -> int:
    return time * 1_000_000 // _PER_SECOND[unit]


def time_column(batch: pa.RecordBatch, column: str, where: str) -> pa.Array:
    """Return the event times of a batch; ``where`` names the operator. Raises: ValueError if one is null.

    >>> time_column(pa.record_batch({"at": pa.array([None], pa.timestamp("s"))}), "at", "hourly")
    Traceback (most recent call last):
    ValueError: hourly: 1 event times are null in 'at'; filter such rows out, or give on_error= to with_watermark
    """
    times = batch.column(column)
    if times.null_count:
        raise ValueError(
            f"{where}: {times.null_count} event times are null in {column!r}; filter such rows out, or give on_error= "
            "to with_watermark"
        )
    return times


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


def slice_numbers(times: pa.Array, window: Sliced, back: int = 0) -> tuple[Numbers, int, int]:
    """Return the slice of each of ``times`` (no nulls, at least one), and the first and the last of these slices.

    Event times are the column's values minus ``back``, in its unit.

    Raises: OverflowError if the edges of a window do not fit microseconds in 64 bits: year 294247 is the last.

    >>> from dataflow.contracts.window_kinds import Hopping, Tumbling
    >>> numbers, low, high = slice_numbers(pa.array([-1, 0, 9_999, 10_000], pa.timestamp("ms")), Tumbling(10_000_000))
    >>> numbers.tolist(), low, high
    ([-1, 0, 0, 1], -1, 1)
    >>> slice_numbers(pa.array([5, 6, 9, 10], pa.timestamp("us")), Hopping(6, 5))[0].tolist()
    [2, 3, 3, 4]
    """
    from operators.kernels.windows import number_slices, number_windows

    slices = window.slices
    lengths = (slices.every, slices.offset, slices.split)
    per_second = _PER_SECOND[times.type.unit]
    if any([length * per_second % 1_000_000 for length in lengths]):
        times, per_second = _finer(times), 1_000_000
    numbers = np.empty(len(times), np.int64)
    every, offset, split = (length * per_second // 1_000_000 for length in lengths)
    if split:
        low, high = number_slices(words(times), every, offset + back, split, numbers)
    else:
        low, high = number_windows(words(times), every, offset + back, numbers)
    first, last = window.start(window.containing(low)[0]), window.end(window.containing(high)[1])
    if first < -MAX_WATERMARK or last >= MAX_WATERMARK:
        raise OverflowError(f"windows from {first} to {last} us are out of range for microseconds of 64 bits")
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
    kind = pa.timestamp("us", dtype.tz)
    try:
        if len(starts) > 1 and (starts == starts[0]).all():
            (edge,) = words(to_array(starts[:1], kind).cast(dtype))
            return to_array(np.full(len(starts), edge), dtype)
        return to_array(starts, kind).cast(dtype)
    except pa.ArrowInvalid as error:
        raise OverflowError(
            f"the edge of a window does not fit into {dtype}, the type of the event time: {error}; cast the event time "
            "to a coarser unit before with_watermark, such as pa.timestamp('us')"
        ) from error
