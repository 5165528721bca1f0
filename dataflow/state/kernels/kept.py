"""The kernel that stores the byte values that records chose from a batch.

While a batch is processed, a record's word is either the number of a stored value, from 0 on, or -2 - i for row i of
the batch. ``settle`` then stores these rows' bytes, one value a record however often it changed, and sets the numbers.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RECORDS, RI32, RI64, RU8, WI64

__all__ = ["settle"]


@kernel(types.void(RECORDS, RI32, types.int64, RU8, RI64, types.uint8[::1], RECORDS, WI64))
def settle(records: Any, slots: Any, word: Any, data: Any, offsets: Any, arena: Any, places: Any, state: Any) -> None:
    """Append the bytes of each row that a record of ``slots`` chose to ``arena``, which must have room for all rows.

    Value k is ``arena[places[k, 0]:places[k, 1]]``. ``state`` is (number of values, bytes used of the arena).
    """
    at = types.uint64(word)
    for i in range(slots.size):
        slot = types.uint64(slots[i])
        held = records[slot, at]
        if held >= 0:
            continue
        begin = offsets[-2 - held]
        length = offsets[-1 - held] - begin
        end = state[1]
        for k in range(length):
            arena[end + k] = data[begin + k]
        records[slot, at] = state[0]
        places[state[0], 0] = end
        places[state[0], 1] = end + length
        state[0] += 1
        state[1] = end + length
