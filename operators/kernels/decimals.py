"""Kernels of decimal sums: 128-bit integers as two words, the lower one first, limited to 38 digits."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, valid

__all__ = ["fold_decimals", "merge_decimals"]

BOUND_HIGH, BOUND_LOW = divmod(10**38, 2**64)

INT = types.int64


@kernel(types.boolean(RECORDS, types.uint64, INT, INT, INT))
def add(records: Any, slot: Any, word: Any, low: Any, high: Any) -> Any:
    """Add a number to the sum at ``word``; return False and change nothing if it would exceed 38 digits."""
    held_low, held_high = records[slot, word], records[slot, word + 1]
    sum_low = types.uint64(held_low) + types.uint64(low)
    carry = types.int64(1) if sum_low < types.uint64(low) else types.int64(0)
    sum_high = held_high + high + carry
    if (held_high < 0) == (high < 0) and (sum_high < 0) != (high < 0):
        return False
    size_low, size_high = sum_low, sum_high
    if sum_high < 0:
        size_low = ~sum_low + types.uint64(1)
        size_high = ~sum_high + (types.int64(1) if size_low == types.uint64(0) else types.int64(0))
    if size_high > BOUND_HIGH or (size_high == BOUND_HIGH and size_low >= types.uint64(BOUND_LOW)):
        return False
    records[slot, word] = types.int64(sum_low)
    records[slot, word + 1] = sum_high
    return True


@kernel(INT(RECORDS, RI32, RI64, RU8, INT, INT, INT))
def fold_decimals(records: Any, slots: Any, halves: Any, bits: Any, first: Any, word: Any, flag: Any) -> Any:
    """Add value i, the words ``halves[2 * i : 2 * i + 2]``; return the row that does not fit, or -1."""
    for i in range(slots.size):
        if bits.size != 0 and not valid(bits, first + i):
            continue
        slot = types.uint64(slots[i])
        records[slot, 0] |= flag
        if not add(records, slot, word, halves[2 * i], halves[2 * i + 1]):
            return i
    return -1


@kernel(INT(RECORDS, RI32, READ_RECORDS, INT))
def merge_decimals(records: Any, slots: Any, partials: Any, word: Any) -> Any:
    for i in range(slots.size):
        if not add(records, types.uint64(slots[i]), word, partials[i, word], partials[i, word + 1]):
            return i
    return -1
