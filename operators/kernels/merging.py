"""The kernel that folds records into others: the records of several subtasks for a key become one.

It works record by record, unlike the fold of a batch, because a record's words are adjacent in source and target.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, WI32, prefetch
from operators.kernels.instructions import COUNT, EXTREME, SUM, SUM_FLOAT, SUM_UNSIGNED

__all__ = ["merge_records"]

AHEAD = 16
MOVING = 2**63 - 1
"""The flags that are merged: all but the sign, which says that keyed state has the slot in use."""


@kernel(types.UniTuple(types.int64, 3)(RECORDS, RI32, READ_RECORDS, RI64, WI32, types.int64))
def merge_records(records: Any, slots: Any, partials: Any, operations: Any, touched: Any, count: Any) -> Any:
    """Fold row i of ``partials`` into the record of ``slots[i]``, word w by ``operations[w]``, flags by a bitwise or.

    ``touched`` is as in ``fold``. Returns (entries of touched, row, word); the last two are -1 unless a sum would
    exceed 64 bits there.
    """
    floats = records.view(types.float64)
    numbers = partials.view(types.float64)
    width = records.shape[1]
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(records, types.int64(slots[i + AHEAD]) * width)
        slot = types.uint64(slots[i])
        before = records[slot, 0]
        records[slot, 0] = before | (partials[i, 0] & MOVING) | 1
        touched[count] = slots[i]
        count += 1 - (before & 1)
        for w in range(1, width):
            operation = operations[w]
            word = types.uint64(w)
            if operation == COUNT:
                records[slot, word] += partials[i, word]
            elif operation == EXTREME:
                records[slot, word] = max(records[slot, word], partials[i, word])
            elif operation == SUM_FLOAT:
                floats[slot, word] += numbers[i, word]
            elif operation == SUM:
                value = partials[i, word]
                held = records[slot, word]
                total = held + value
                if (held ^ total) & (value ^ total) < 0:
                    return count, i, w
                records[slot, word] = total
            elif operation == SUM_UNSIGNED:
                held = records[slot, word]
                total = held + partials[i, word]
                if types.uint64(total) < types.uint64(held):
                    return count, i, w
                records[slot, word] = total
    return count, -1, -1
