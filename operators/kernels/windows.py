"""Kernels of windows: the number of each time's window, and the order of rows by window."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32, RI64, WI64

__all__ = ["count_rows", "number_windows"]


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


@njit(types.void(RI32, RI32, WI64, WI64), nogil=True, cache=True)
def count_rows(slots: Any, touched: Any, counts: Any, out: Any) -> None:
    """How often each slot of ``touched``, each once, is among ``slots``; ``counts`` is zero and stays so."""
    for i in range(slots.size):
        counts[types.uint64(slots[i])] += 1
    for i in range(touched.size):
        slot = types.uint64(touched[i])
        out[i] = counts[slot]
        counts[slot] = 0
