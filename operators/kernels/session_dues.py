"""Kernels of the times at which cells of sessions are to be looked at: a binary heap of due times and slots.

An entry has no effect any more if ``pending`` of its slot has another time.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["NEVER", "push_dues", "take_dues"]

NEVER = 2**63 - 1
"""The due time of a slot that has none."""


@kernel(types.int64(WI64, WI32, types.int64, WI64, RI32, RI64))
def push_dues(heap: Any, owners: Any, size: Any, pending: Any, slots: Any, dues: Any) -> Any:
    """Give each slot a due time, unless it has an earlier one; return the size of the heap, which has room."""
    for i in range(slots.size):
        slot = slots[i]
        due = dues[i]
        if due >= pending[slot]:
            continue
        pending[slot] = due
        place = size
        size += 1
        while place > 0:
            above = (place - 1) >> 1
            if heap[above] <= due:
                break
            heap[place] = heap[above]
            owners[place] = owners[above]
            place = above
        heap[place] = due
        owners[place] = slot
    return size


@kernel(types.UniTuple(types.int64, 2)(WI64, WI32, types.int64, WI64, types.int64, WI32))
def take_dues(heap: Any, owners: Any, size: Any, pending: Any, upto: Any, out: Any) -> Any:
    """Remove entries with due times of at most ``upto``, in order, and write their slots to ``out``, until it is full.

    Returns (size of the heap, slots written).
    """
    count = types.int64(0)
    while size > 0 and heap[0] <= upto and count < out.size:
        due = heap[0]
        slot = owners[0]
        size -= 1
        last = heap[size]
        owner = owners[size]
        place = types.int64(0)
        while True:
            below = 2 * place + 1
            if below >= size:
                break
            if below + 1 < size and heap[below + 1] < heap[below]:
                below += 1
            if heap[below] >= last:
                break
            heap[place] = heap[below]
            owners[place] = owners[below]
            place = below
        if size > 0:
            heap[place] = last
            owners[place] = owner
        if pending[slot] == due:
            pending[slot] = NEVER
            out[count] = slot
            count += 1
    return size, count
