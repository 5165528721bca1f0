"""Kernels of windows: the number of each time's window, and the order of rows by window."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["count_places", "find_places", "number_windows"]


@njit(types.void(RI64, types.int64, types.int64, WI64), nogil=True, cache=True)
def number_windows(times: Any, size: Any, offset: Any, out: Any) -> None:
    """``(time - offset) // size`` of each time. Neighbours mostly share a window: only a change of it divides.

    The arithmetic wraps where a time is within ``size`` of the end of 64 bits; no Arrow timestamp of use is.
    """
    number = types.int64(0)
    start = types.int64(0)
    for i in range(times.size):
        time = times[i] - offset
        if time < start or time - start >= size:
            number = time // size
            start = number * size
        out[i] = number


@njit(types.void(RI32, RI64, types.int64, types.int64, WI32), nogil=True, cache=True)
def find_places(slots: Any, numbers: Any, low: Any, spread: Any, out: Any) -> None:
    """One number for a slot and a window out of ``spread``, the first of which is ``low``."""
    for i in range(out.size):
        out[i] = slots[i] * spread + (numbers[i] - low)


@njit(types.void(RI32, RI32, WI64, WI64), nogil=True, cache=True)
def count_places(places: Any, touched: Any, counts: Any, out: Any) -> None:
    """How often each of ``touched``, each once, is among ``places``; ``counts`` is zero and stays so."""
    for i in range(places.size):
        counts[types.uint64(places[i])] += 1
    for i in range(touched.size):
        place = types.uint64(touched[i])
        out[i] = counts[place]
        counts[place] = 0
