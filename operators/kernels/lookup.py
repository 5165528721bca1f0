"""Kernels of lookups by an integer key, and of the rows that have a counterpart."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, RU8, WI32, valid

__all__ = ["keep_found", "seek_dense"]


@kernel(types.void(RI64, RU8, types.int64, types.int64, RI32, WI32))
def seek_dense(words: Any, bits: Any, offset: Any, low: Any, table: Any, slots: Any) -> None:
    """Write the slot of each key into ``slots``: entry ``key - low`` of ``table``, or -1 if there is none."""
    size = types.uint64(table.size)
    for i in range(words.size):
        place = types.uint64(words[i] - low)  # a key below low becomes a large number
        null = bits.size != 0 and not valid(bits, offset + i)
        slots[i] = -1 if null or place >= size else table[types.int64(place)]


@kernel(types.int64(RI32, WI32, WI32))
def keep_found(slots: Any, rows: Any, found: Any) -> Any:
    """List the rows with a slot in ``rows``, and their slots in ``found``; return their number.

    Both have room for all rows and one more.
    """
    count = 0
    for i in range(slots.size):
        rows[count], found[count] = i, slots[i]
        count += types.int64(slots[i] >= 0)
    return count
