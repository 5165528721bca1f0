"""The kernel that finds the rows of a batch that count: those since their key last began anew."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, WI32

__all__ = ["mark_lasting"]

BOOLS = types.boolean[::1]


@kernel(types.int64(RI32, BOOLS, WI32, BOOLS))
def mark_lasting(slots: Any, fresh: Any, last: Any, lasting: Any) -> Any:
    """Set ``lasting`` for rows with no ``fresh`` row of their slot after them; return how many there are.

    ``last`` has an entry of -1 for each slot, and has so again afterwards.
    """
    for i in range(slots.size):
        if fresh[i]:
            last[slots[i]] = i
    count = 0
    for i in range(slots.size):
        lasting[i] = i >= last[slots[i]]
        count += types.int64(lasting[i])
    for i in range(slots.size):
        last[slots[i]] = -1
    return count
