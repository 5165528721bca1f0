"""The kernel that folds a batch into records, and those that read records back.

A record is a row of int64 words, one record a slot. Word 0 holds flags: bit 0 means that the slot is in the list of
touched slots, bit b that the aggregate of bit b has seen a value. The other words belong to *instructions*: a small
program of them folds a batch block by block, so that a block's records are still in the cache for the next instruction.
Each instruction is a tight loop of its own.

``EXTREME`` computes minimum and maximum of every type: it maps a value to a word whose order as a signed integer is the
required order, and the record holds the largest word. For a word v the order is ``v ^ flip ^ ((v >> 63) & mask)``:

- signed integers: flip = 0, mask = 0; unsigned ones: flip = the sign bit;
- floats: mask = all but the sign bit, which gives IEEE 754's totalOrder; a NaN of either sign first becomes the
  positive NaN, the greatest of all;
- a minimum is the maximum of the complement: flip is inverted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

import dataflow.state.kernels.copy_on_write  # noqa: F401  load it with the first fold, not with the first fold after a barrier
from dataflow.state.kernels.words import RI32, RI64, RU8, WI32, WI64, valid
from operators.kernels.instructions import COUNT, MARK, SUM, SUM_FLOAT, SUM_UNSIGNED, TOUCH, WIDTH

__all__ = ["clear_touched", "fold", "gather_records", "read_words"]

BLOCK = 512
SIGN = -(2**63)

RECORDS = types.int64[:, ::1]
READ_RECORDS = types.Array(types.int64, 2, "C", readonly=True)


@njit(
    types.int64(RECORDS, types.float64[:, ::1], RI32, RI64, RI64),
    nogil=True,
    cache=True,
)
def run_instruction(records: Any, floats: Any, slots: Any, column: Any, instruction: Any) -> Any:
    """Run one instruction over a block without nulls; returns the row where a sum would exceed 64 bits, or -1."""
    operation = instruction[0]
    word = types.uint64(instruction[1])
    if operation == COUNT:
        for i in range(slots.size):
            records[types.uint64(slots[i]), word] += 1
    elif operation == MARK:
        flags = instruction[2]
        for i in range(slots.size):
            records[types.uint64(slots[i]), 0] |= flags
    elif operation == SUM:
        for i in range(slots.size):
            slot = types.uint64(slots[i])
            value = column[i]
            before = records[slot, word]
            after = before + value
            if (before ^ after) & (value ^ after) < 0:
                return i
            records[slot, word] = after
    elif operation == SUM_UNSIGNED:
        for i in range(slots.size):
            slot = types.uint64(slots[i])
            before = records[slot, word]
            after = before + column[i]
            if types.uint64(after) < types.uint64(before):
                return i
            records[slot, word] = after
    elif operation == SUM_FLOAT:
        numbers = column.view(types.float64)
        for i in range(slots.size):
            floats[types.uint64(slots[i]), word] += numbers[i]
    else:
        flip = instruction[3]
        mask = instruction[4]
        largest = instruction[5]
        for i in range(slots.size):
            slot = types.uint64(slots[i])
            value = column[i]
            if value & ~SIGN > largest:
                value = largest + 2**51
            order = value ^ flip ^ ((value >> 63) & mask)
            records[slot, word] = max(records[slot, word], order)
    return -1


@njit(
    types.UniTuple(types.int64, 3)(
        RECORDS,
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
    records: Any, slots: Any, program: Any, columns: Any, bitmaps: Any, firsts: Any, touched: Any, count: Any
) -> Any:
    """Run ``program``, rows of (operation, word, flags, flip, mask, largest), over all rows of the batch.

    Instruction a reads ``columns[a]``, one word a row (none for a count); an empty ``bitmaps[a]`` means that no row is
    null, else bit ``firsts[a] + i`` belongs to row i. The last record belongs to no slot: rows that are null are folded
    into it as 0. ``touched`` has ``count`` entries, and room for every slot and one more.
    Returns (entries of touched, row, instruction); the last two are -1 unless a sum would exceed 64 bits there.
    """
    floats = records.view(types.float64)
    spare = records.shape[0] - 1
    some_slots = np.empty(BLOCK, np.int32)
    some_values = np.empty(BLOCK, np.int64)
    for start in range(0, slots.size, BLOCK):
        stop = min(start + BLOCK, slots.size)
        for a in range(program.shape[0]):
            column = columns[a]
            bits = bitmaps[a]
            if program[a, 0] == TOUCH:
                flags = program[a, 2]
                for i in range(start, stop):
                    slot = types.uint64(slots[i])
                    before = records[slot, 0]
                    records[slot, 0] = before | flags
                    touched[count] = slots[i]  # no branch: the first row of a key cannot be predicted
                    count += 1 - (before & 1)
                continue
            if bits.size == 0:
                bad = run_instruction(records, floats, slots[start:stop], column[start:stop], program[a])
            else:
                for i in range(start, stop):
                    present = valid(bits, firsts[a] + i)
                    some_slots[i - start] = slots[i] if present else spare
                    some_values[i - start] = column[i] if present and column.size > 0 else 0
                bad = run_instruction(
                    records, floats, some_slots[: stop - start], some_values[: stop - start], program[a]
                )
            if bad >= 0:
                return count, start + bad, a
    return count, -1, -1


@njit(types.void(READ_RECORDS, RI32, RECORDS), nogil=True, cache=True)
def gather_records(records: Any, slots: Any, out: Any) -> None:
    """Copy the record of each slot to ``out``: the only random pass; columns are then read by a stride."""
    for i in range(slots.size):
        slot = types.uint64(slots[i])
        for word in range(records.shape[1]):
            out[i, word] = records[slot, word]


@njit(types.void(READ_RECORDS, types.int64, types.int64, types.int64, WI64), nogil=True, cache=True)
def read_words(records: Any, word: Any, flip: Any, mask: Any, out: Any) -> None:
    """Write one word of every record to ``out``; ``flip`` and ``mask`` undo the order of an ``EXTREME`` (else 0)."""
    for i in range(out.size):
        value = records[i, types.uint64(word)] ^ flip
        out[i] = value ^ ((value >> 63) & mask)


@njit(types.void(RECORDS, RI32), nogil=True, cache=True)
def clear_touched(records: Any, slots: Any) -> None:
    for i in range(slots.size):
        records[types.uint64(slots[i]), 0] &= ~1
