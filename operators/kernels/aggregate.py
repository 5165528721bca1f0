"""The kernel that folds a batch into records, and those that read records back.

A record is a row of int64 words, one record a slot. Word 0 holds flags: bit 0 says that the slot is in the list of
touched ones, bit b that the aggregate of bit b has seen a value. The other words belong to *instructions*: a batch is
folded by a small program of them, block by block, so that the records of a block are still in the cache when the next
instruction comes; each instruction is a tight loop of its own.

``EXTREME`` serves minimum and maximum of every type: a value is turned into a word whose order as a signed integer is
the order wanted, and the record keeps the largest one. For a word v the order is ``v ^ flip ^ ((v >> 63) & mask)``:

- signed integers: flip = 0, mask = 0; unsigned ones: flip = the sign bit;
- floats: mask = all but the sign bit, which is IEEE 754's totalOrder; a NaN of either sign first becomes the positive
  one, the greatest of all;
- a minimum is the maximum of the complement: flip is inverted.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32, RI64, RU8, WI32, WI64, valid

__all__ = ["COUNT", "EXTREME", "MARK", "SUM", "SUM_FLOAT", "SUM_UNSIGNED", "TOUCH", "WIDTH"]
__all__ += ["clear_touched", "fold", "read_flags", "read_words"]

TOUCH, MARK, COUNT, SUM, SUM_UNSIGNED, SUM_FLOAT, EXTREME = range(7)

WIDTH = 8
"""How many instructions one call of ``fold`` takes."""

BLOCK = 512
SIGN = -(2**63)

RECORDS = types.int64[:, ::1]
READ_RECORDS = types.Array(types.int64, 2, "C", readonly=True)


@njit(
    types.UniTuple(types.int64, 3)(
        RECORDS,
        types.float64[:, ::1],
        RI32,
        READ_RECORDS,
        types.UniTuple(RI64, WIDTH),
        types.UniTuple(RU8, WIDTH),
        RI64,
        WI32,
        types.int64,
    ),
    nogil=True,
    cache=True,
)
def fold(
    records: Any, floats: Any, slots: Any, program: Any, values: Any, bitmaps: Any, firsts: Any, touched: Any, count: Any
) -> Any:
    """Run ``program``, rows of (operation, word, flags, flip, mask, largest), over all rows of the batch.

    Instruction a reads ``values[a]``, one word a row; an empty ``bitmaps[a]`` says that no row is null, else bit
    ``firsts[a] + i`` belongs to row i. Rows that are null change nothing. ``touched`` has ``count`` entries, and room.
    Returns (entries of touched, row, instruction), the last two -1, or where a sum would have left 64 bits.
    """
    for start in range(0, slots.size, BLOCK):
        stop = min(start + BLOCK, slots.size)
        for a in range(program.shape[0]):
            operation = program[a, 0]
            word = types.uint64(program[a, 1])
            flags = program[a, 2]
            column = values[a]
            bits = bitmaps[a]
            first = firsts[a]
            if operation == TOUCH:
                for i in range(start, stop):
                    slot = types.uint64(slots[i])
                    before = records[slot, 0]
                    records[slot, 0] = before | flags
                    if before & 1 == 0:
                        touched[count] = slots[i]
                        count += 1
            elif operation == MARK:
                for i in range(start, stop):
                    if bits.size == 0 or valid(bits, first + i):
                        records[types.uint64(slots[i]), 0] |= flags
            elif operation == COUNT:
                if bits.size == 0:
                    for i in range(start, stop):
                        records[types.uint64(slots[i]), word] += 1
                else:
                    for i in range(start, stop):
                        records[types.uint64(slots[i]), word] += types.int64(valid(bits, first + i))
            elif operation == SUM:
                for i in range(start, stop):
                    if bits.size == 0 or valid(bits, first + i):
                        slot = types.uint64(slots[i])
                        before = records[slot, word]
                        after = before + column[i]
                        if (before ^ after) & (column[i] ^ after) < 0:
                            return count, i, a
                        records[slot, word] = after
            elif operation == SUM_UNSIGNED:
                for i in range(start, stop):
                    if bits.size == 0 or valid(bits, first + i):
                        slot = types.uint64(slots[i])
                        before = records[slot, word]
                        after = before + column[i]
                        if types.uint64(after) < types.uint64(before):
                            return count, i, a
                        records[slot, word] = after
            elif operation == SUM_FLOAT:
                numbers = column.view(types.float64)
                for i in range(start, stop):
                    if bits.size == 0 or valid(bits, first + i):
                        floats[types.uint64(slots[i]), word] += numbers[i]
            else:
                flip = program[a, 3]
                mask = program[a, 4]
                largest = program[a, 5]
                for i in range(start, stop):
                    if bits.size == 0 or valid(bits, first + i):
                        slot = types.uint64(slots[i])
                        value = column[i]
                        if value & ~SIGN > largest:
                            value = largest + 2**51
                        order = value ^ flip ^ ((value >> 63) & mask)
                        records[slot, word] = max(records[slot, word], order)
    return count, -1, -1


@njit(types.void(READ_RECORDS, RI32, types.int64, types.int64, types.int64, WI64), nogil=True, cache=True)
def read_words(records: Any, slots: Any, word: Any, flip: Any, mask: Any, out: Any) -> None:
    """One word of the record of each slot; ``flip`` and ``mask`` undo the order of an ``EXTREME`` (else 0)."""
    for i in range(slots.size):
        value = records[types.uint64(slots[i]), types.uint64(word)] ^ flip
        out[i] = value ^ ((value >> 63) & mask)


@njit(types.int64(READ_RECORDS, RI32, types.int64, types.uint8[::1]), nogil=True, cache=True)
def read_flags(records: Any, slots: Any, flag: Any, bitmap: Any) -> Any:
    """Set bit i of the zeroed ``bitmap`` where the record of slot i has ``flag``; returns how many have not."""
    absent = slots.size
    for i in range(slots.size):
        if records[types.uint64(slots[i]), 0] & flag != 0:
            bitmap[i >> 3] |= types.uint8(1 << (i & 7))
            absent -= 1
    return absent


@njit(types.void(RECORDS, RI32), nogil=True, cache=True)
def clear_touched(records: Any, slots: Any) -> None:
    for i in range(slots.size):
        records[types.uint64(slots[i]), 0] &= ~1
