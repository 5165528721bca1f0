"""The order of rows by time."""

from __future__ import annotations

import numpy as np

from dataflow.state.arrays import Numbers, fresh
from dataflow.state.index import Slots

__all__ = ["KERNELS", "by_time"]

KERNELS = ("operators.kernels.time_order",)
"""The modules with the kernels that are called."""


def by_time(times: Numbers) -> Slots:
    """Return the rows in ascending order of their times; rows of one time in the order in which they are.

    >>> by_time(np.array([30, -10, 30, 20])).tolist()
    [1, 3, 0, 2]
    """
    from operators.kernels.time_order import BITS, order_by_digit

    count = len(times)
    order = np.arange(count, dtype=np.int32)
    if count < 2 or (times[1:] >= times[:-1]).all():
        return order
    low, high = int(times.min()), int(times.max())
    bits = (high - low).bit_length()
    if bits > 3 * BITS or count < 64:
        return np.argsort(times, kind="stable").astype(np.int32)
    counts, other = np.empty((1 << BITS) + 1, np.int64), fresh(np.int32, count)
    for shift in range(0, bits, BITS):
        order_by_digit(times, low, shift, order, counts, other)
        order, other = other, order
    return order
