"""Kernels for rows in the order of their times: a radix sort, and the last row of a key before a time."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["BITS", "last_before", "order_by_digit"]

BITS = 11
"""Bits of a digit."""


@kernel(types.void(RI64, types.int64, types.int64, RI32, WI64, WI32))
def order_by_digit(times: Any, low: Any, shift: Any, rows: Any, counts: Any, order: Any) -> None:
    """Write ``rows`` to ``order``, sorted by 11 bits of ``times`` - ``low`` from bit ``shift`` on; ties stay.

    ``counts`` is memory for one number of each value of the digit and one more.
    """
    counts[:] = 0
    mask = types.int64(counts.size - 2)
    for i in range(rows.size):
        counts[((times[types.int64(rows[i])] - low) >> shift & mask) + 1] += 1
    for digit in range(1, counts.size):
        counts[digit] += counts[digit - 1]
    for i in range(rows.size):
        digit = (times[types.int64(rows[i])] - low) >> shift & mask
        order[counts[digit]] = rows[i]
        counts[digit] += 1


@kernel(types.void(RI32, RI64, RI64, RI64, WI64))
def last_before(keys: Any, times: Any, offsets: Any, others: Any, places: Any) -> None:
    """Write the place of the last of ``others`` of each key that is before the time, or -1.

    The times of key k are ``others[offsets[k]:offsets[k + 1]]``, in ascending order; key -1 has none.
    """
    for i in range(keys.size):
        places[i] = -1
        key = types.int64(keys[i])
        if key < 0:
            continue
        low, high = offsets[key], offsets[key + 1]
        while low < high:
            middle = (low + high) >> 1
            if others[middle] < times[i]:
                low = middle + 1
            else:
                high = middle
        if low > offsets[key]:
            places[i] = low - 1
