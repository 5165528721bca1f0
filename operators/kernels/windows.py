"""Kernels of windows: the number of each time's window, and the order of rows by window."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["count_places", "find_places", "number_windows"]


@njit(types.int64(types.int64, types.int64, types.int64), nogil=True, cache=True)
def find_number(time: Any, size: Any, offset: Any) -> Any:
    """``(time - offset) // size``, without a difference that could leave 64 bits."""
    number = time // size
    return number if time - number * size >= offset else number - 1


@njit(types.UniTuple(types.int64, 2)(RI64, types.int64, types.int64, WI64), nogil=True, cache=True)
def number_windows(times: Any, size: Any, offset: Any, out: Any) -> Any:
    """``(time - offset) // size`` of each time, and the least and the greatest of these; 0 <= ``offset`` <= ``size``.

    Neighbours mostly share a window: only a change of it divides. Distances are taken modulo 2**64, where they are
    exact however far apart two times lie.
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


@njit(types.void(RI32, RI64, types.int64, types.int64, WI32), nogil=True, cache=True)
def find_places(slots: Any, numbers: Any, low: Any, known: Any, out: Any) -> None:
    """One number for a slot, of which there are ``known``, and a window, the first of which is ``low``."""
    for i in range(out.size):
        out[i] = (numbers[i] - low) * known + slots[i]


@njit(types.void(RI32, RI32, WI64, WI64), nogil=True, cache=True)
def count_places(places: Any, touched: Any, counts: Any, out: Any) -> None:
    """How often each of ``touched``, each once, is among ``places``; ``counts`` is zero and stays so."""
    for i in range(places.size):
        counts[types.uint64(places[i])] += 1
    for i in range(touched.size):
        place = types.uint64(touched[i])
        out[i] = counts[place]
        counts[place] = 0
