"""The kernel that reads the slots of dictionary rows from a table."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RU8, WI32, valid

__all__ = ["read_slots"]

UNKNOWN = -1
ASKED_FOR = -2


@kernel(types.int64(RI32, RU8, types.int64, WI32, WI32, WI32, WI32))
def read_slots(indices: Any, bits: Any, offset: Any, table: Any, missing: Any, rows: Any, slots: Any) -> Any:
    """Write ``table[indices[i]]`` into ``slots[i]``; a null row uses the last entry of the table.

    Entries whose slot is unknown are listed in ``missing``, each once, in the order of their first rows, which go to
    ``rows``, and marked in the table. Returns their number; the caller sets their slots and calls again.
    """
    count = 0
    null = table.size - 1
    for i in range(indices.size):
        entry = null
        if bits.size == 0 or valid(bits, offset + i):
            entry = types.int64(indices[i])
        slot = table[types.uint64(entry)]
        slots[i] = slot
        if slot == UNKNOWN:
            table[types.uint64(entry)] = ASKED_FOR
            missing[count] = entry
            rows[count] = i
            count += 1
    return count
