"""Kernels of the slot index: key words to dense slots, by open addressing with linear probing.

One-word keys are stored in the table itself, beside their slot, so that a hit costs one cache line: ``table[p]`` is
``(key, slot + 1)``. Wider keys are stored in ``keys``, and the table has a tag, half their hash: ``table[p]`` is
``tag << 32 | slot + 1``. In both, a slot part of 0 marks a free entry.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import (
    GOLDEN,
    RI64,
    RU8,
    WI32,
    WI64,
    WU64,
    hash_word,
    prefetch,
    valid,
)

__all__ = ["find_rows", "find_words", "rehash_rows", "rehash_words"]

HIGH = 0xFFFFFFFF00000000
LOW = 0x00000000FFFFFFFF

AHEAD = 32
"""How many rows ahead a table entry is prefetched: a quarter faster with millions of keys, no slower with few."""


@kernel(types.uint64(types.int64, types.uint64))
def preferred_position(key: Any, shift: Any) -> Any:
    """Return the preferred position of a key in a table of ``2**(64 - shift)`` entries (Fibonacci hashing)."""
    word = types.uint64(key)
    return ((word ^ (word >> types.uint64(32))) * types.uint64(GOLDEN)) >> shift


@kernel(types.int64(RI64, RU8, types.int64, types.int64, types.int64[:, ::1], types.uint64, WI64, WI64, WI32))
def find_words(
    words: Any, bits: Any, offset: Any, row: Any, table: Any, shift: Any, keys: Any, state: Any, slots: Any
) -> Any:
    """Write the slot of each one-word key from ``row`` on into ``slots``, entering new keys, until ``keys`` is full.

    ``state`` is (number of slots, slot of the null key or -1). Returns the first row without a slot, or the length.
    """
    mask = types.uint64(table.shape[0] - 1)
    count = state[0]
    for i in range(row, words.size):
        if i + AHEAD < words.size:
            prefetch(table, types.int64(preferred_position(words[i + AHEAD], shift)) * 2)
        if bits.size != 0 and not valid(bits, offset + i):
            if state[1] < 0:
                if count == keys.size:
                    state[0] = count
                    return i
                keys[count] = 0
                state[1] = count
                count += 1
            slots[i] = state[1]
            continue
        key = words[i]
        place = preferred_position(key, shift)
        while True:
            slot = table[place, 1]
            if slot == 0:
                if count == keys.size:
                    state[0] = count
                    return i
                keys[count] = key
                count += 1
                table[place, 0] = key
                table[place, 1] = count
                slot = count
                break
            if table[place, 0] == key:
                break
            place = (place + types.uint64(1)) & mask
        slots[i] = slot - 1
    state[0] = count
    return words.size


@kernel(types.void(RI64, types.int64, types.int64, types.int64[:, ::1], types.uint64))
def rehash_words(keys: Any, count: Any, null_slot: Any, table: Any, shift: Any) -> None:
    """Enter the first ``count`` keys into an empty ``table``."""
    mask = types.uint64(table.shape[0] - 1)
    for slot in range(count):
        if slot != null_slot:
            place = preferred_position(keys[slot], shift)
            while table[place, 1] != 0:
                place = (place + types.uint64(1)) & mask
            table[place, 0] = keys[slot]
            table[place, 1] = slot + 1


@kernel(
    types.int64(types.Array(types.int64, 2, "C", readonly=True), types.int64, WU64, types.int64[:, ::1], WI64, WI32)
)
def find_rows(words: Any, row: Any, table: Any, keys: Any, state: Any, slots: Any) -> Any:
    """Do the same as ``find_words`` for the keys ``words[:, i]`` of several words."""
    mask = types.uint64(table.size - 1)
    width = words.shape[0]
    count = state[0]
    for i in range(row, words.shape[1]):
        hashed = types.uint64(0)
        for c in range(width):
            hashed = hash_word(hashed * types.uint64(GOLDEN) + types.uint64(words[c, i]))
        place = hashed & mask
        while True:
            entry = table[place]
            if entry == 0:
                if count == keys.shape[0]:
                    state[0] = count
                    return i
                for c in range(width):
                    keys[count, c] = words[c, i]
                slots[i] = count
                count += 1
                table[place] = (hashed & types.uint64(HIGH)) | types.uint64(count)
                break
            if (entry ^ hashed) & types.uint64(HIGH) == 0:
                slot = types.int64(entry & types.uint64(LOW)) - 1
                same = True
                for c in range(width):
                    same &= keys[slot, c] == words[c, i]
                if same:
                    slots[i] = slot
                    break
            place = (place + types.uint64(1)) & mask
    state[0] = count
    return words.shape[1]


@kernel(types.void(types.int64[:, ::1], types.int64, WU64))
def rehash_rows(keys: Any, count: Any, table: Any) -> None:
    """Enter the first ``count`` keys of several words into an empty ``table``."""
    mask = types.uint64(table.size - 1)
    for slot in range(count):
        hashed = types.uint64(0)
        for c in range(keys.shape[1]):
            hashed = hash_word(hashed * types.uint64(GOLDEN) + types.uint64(keys[slot, c]))
        place = hashed & mask
        while table[place] != 0:
            place = (place + types.uint64(1)) & mask
        table[place] = (hashed & types.uint64(HIGH)) | types.uint64(slot + 1)
