"""Kernels of windows: number the window of each time, and number pairs of slot and window."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["count_numbers", "count_places", "find_places", "number_slices", "number_windows", "scatter_numbers"]


@kernel(types.int64(types.int64, types.int64, types.int64))
def find_number(time: Any, size: Any, offset: Any) -> Any:
    """Return ``(time - offset) // size`` without a difference that could exceed 64 bits."""
    number = time // size
    return number if time - number * size >= offset else number - 1


@kernel(types.UniTuple(types.int64, 2)(RI64, types.int64, types.int64, WI64))
def number_windows(times: Any, size: Any, offset: Any, out: Any) -> Any:
    """Write ``(time - offset) // size`` of each time to ``out``; return the least and the greatest of them.

    0 <= ``offset`` <= ``size``. Neighbours mostly share a window, so it divides only when the window changes. Distances
    are computed modulo 2**64, which is exact however far apart two times are.
    """
    number = find_number(times[0], size, offset)
    start = number * size + offset
    low = number
    high = number
    for i in range(times.size):
        time = times[i]
        if types.uint64(time) - types.uint64(start) >= types.uint64(size):
            number = find_number(time, size, offset)
            start = number * size + offset
            low = min(low, number)
            high = max(high, number)
        out[i] = number
    return low, high


@kernel(types.UniTuple(types.int64, 2)(RI64, types.int64, types.int64, types.int64, WI64))
def number_slices(times: Any, every: Any, offset: Any, split: Any, out: Any) -> Any:
    """Write the slice of each time to ``out``; return the least and the greatest of them.

    There are two slices in each ``every``: number 2 * k begins at ``k * every + offset``, and number 2 * k + 1 is the
    rest from ``split`` on, 0 < ``split`` < ``every``. Otherwise as ``number_windows``.
    """
    low = types.int64(2**63 - 1)
    high = types.int64(-(2**63))
    number = types.int64(0)
    start = types.int64(0)
    length = types.int64(0)
    for i in range(times.size):
        time = times[i]
        if types.uint64(time) - types.uint64(start) >= types.uint64(length):
            step = find_number(time, every, offset)
            start = step * every + offset
            number = 2 * step
            length = split
            if types.uint64(time) - types.uint64(start) >= types.uint64(split):
                number += 1
                start += split
                length = every - split
            low = min(low, number)
            high = max(high, number)
        out[i] = number
    return low, high


@kernel(types.void(RI32, RI64, types.int64, types.int64, WI32))
def find_places(slots: Any, numbers: Any, low: Any, known: Any, out: Any) -> None:
    """Write one number for each pair of slot (``known`` in all) and window (from ``low`` on) to ``out``."""
    for i in range(out.size):
        out[i] = (numbers[i] - low) * known + slots[i]


@kernel(types.void(RI32, RI32, WI64, WI64))
def count_places(places: Any, touched: Any, counts: Any, out: Any) -> None:
    """Write to ``out`` how often each distinct place in ``touched`` is in ``places``; ``counts`` stays zero."""
    for i in range(places.size):
        counts[types.uint64(places[i])] += 1
    for i in range(touched.size):
        place = types.uint64(touched[i])
        out[i] = counts[place]
        counts[place] = 0


@kernel(types.void(RI64, types.int64, WI64))
def count_numbers(numbers: Any, low: Any, counts: Any) -> None:
    """Add up how often each number from ``low`` on is in ``numbers``."""
    for i in range(numbers.size):
        counts[types.uint64(numbers[i] - low)] += 1


@kernel(types.void(RI64, types.int64, RI32, WI64, WI32))
def scatter_numbers(numbers: Any, low: Any, targets: Any, places: Any, order: Any) -> None:
    """Write each row's index to the next place of ``targets[number - low]``, so rows of a target keep their order."""
    for i in range(numbers.size):
        target = types.uint64(targets[types.uint64(numbers[i] - low)])
        order[places[target]] = i
        places[target] += 1
