"""The kernel that folds byte values: a record chooses the least or greatest (see ``dataflow.state.kernels.kept``)."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, load, valid

__all__ = ["fold_bytes"]

INT = types.int64


@kernel(INT(RU8, INT, INT, RU8, INT, INT))
def compare_bytes(left: Any, left_start: Any, left_stop: Any, right: Any, right_start: Any, right_stop: Any) -> Any:
    """Return a number below, equal to or above zero if the left bytes are less than, equal to or above the right."""
    shared = min(left_stop - left_start, right_stop - right_start)
    k = 0
    while k + 8 <= shared and load(left, left_start + k) == load(right, right_start + k):
        k += 8
    while k < shared:
        difference = types.int64(left[left_start + k]) - types.int64(right[right_start + k])
        if difference != 0:
            return difference
        k += 1
    return (left_stop - left_start) - (right_stop - right_start)


@kernel(INT(RU8, INT, INT, RU8, INT, INT))
def compare_numbers(left: Any, left_start: Any, left_stop: Any, right: Any, right_start: Any, right_stop: Any) -> Any:
    """Compare integers of one width in two's complement, least byte first; see ``compare_bytes``."""
    width = left_stop - left_start
    flip = 0x80  # for the byte with the sign: negative numbers are less
    for k in range(width - 1, -1, -1):
        difference = types.int64(left[left_start + k] ^ flip) - types.int64(right[right_start + k] ^ flip)
        if difference != 0:
            return difference
        flip = 0
    return 0


@kernel(types.void(RECORDS, RI32, RU8, RI64, RU8, INT, RU8, READ_RECORDS, INT, INT, INT, INT))
def fold_bytes(
    records: Any,
    slots: Any,
    data: Any,
    offsets: Any,
    bits: Any,
    first: Any,
    arena: Any,
    places: Any,
    word: Any,
    flag: Any,
    sign: Any,
    numbers: Any,
) -> None:
    """Choose the greatest value (``sign`` 1) or the least (-1); ``numbers`` = 1: the bytes are integers."""
    at = types.uint64(word)
    for i in range(slots.size):
        if bits.size != 0 and not valid(bits, first + i):
            continue
        slot = types.uint64(slots[i])
        found = types.int64(1)
        if records[slot, 0] & flag != 0:
            held = records[slot, at]
            if held < 0:
                other, start, stop = data, offsets[-2 - held], offsets[-1 - held]
            else:
                other, start, stop = arena, places[held, 0], places[held, 1]
            if numbers == 1:
                found = sign * compare_numbers(data, offsets[i], offsets[i + 1], other, start, stop)
            else:
                found = sign * compare_bytes(data, offsets[i], offsets[i + 1], other, start, stop)
        if found > 0:
            records[slot, 0] |= flag
            records[slot, at] = -2 - i
