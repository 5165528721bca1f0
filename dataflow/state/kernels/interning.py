"""Kernels of the interner: byte strings to dense codes.

A table entry is one word: the upper half of the hash, and the code plus one; 0 is a free entry. Probing is linear, and
removal moves later entries of a run back. The value of code k is ``arena[places[k, 0]:places[k, 1]]``.

``state`` is (codes ever used, code of null or -1, entries of ``free``, entries of ``fresh``, bytes used of ``arena``).
A new value gets the last code of the stack ``free``, or else the next one that was never used.

Finding a value takes three dependent reads: the table's entry, where its value is, and the bytes. With many values
each of them misses the cache. So rows are processed block by block, and each read of a block is prefetched in a pass of
its own before the pass that needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.index import take_slot
from dataflow.state.kernels.words import (
    READ_RECORDS,
    RI32,
    RI64,
    RU8,
    RU64,
    WI32,
    WI64,
    WU64,
    hash_bytes,
    prefetch,
    same_bytes,
    valid,
)

__all__ = ["copy_values", "gather_bytes", "intern_rows", "rehash_codes", "remove_codes", "seek_values"]

HIGH = 0xFFFFFFFF00000000
LOW = 0x00000000FFFFFFFF

BLOCK = 128
"""Rows whose reads are prefetched together."""
FEW = 1 << 13
"""Table entries up to which the table and its values stay in the cache without prefetching."""


@kernel(types.void(RU64, types.int64, RU64, RU8, READ_RECORDS))
def prefetch_values(hashes: Any, rows: Any, table: Any, arena: Any, places: Any) -> None:
    """Prefetch the values that the first ``rows`` hashes most likely refer to, whose entries are on their way."""
    mask = types.uint64(table.size - 1)
    for j in range(rows):
        entry = table[hashes[j] & mask]
        if (entry ^ hashes[j]) & types.uint64(HIGH) == 0:
            prefetch(places, (types.int64(entry & types.uint64(LOW)) - 1) * 2)
    for j in range(rows):
        entry = table[hashes[j] & mask]
        if (entry ^ hashes[j]) & types.uint64(HIGH) == 0 and entry & types.uint64(LOW) != 0:
            prefetch(arena, places[types.int64(entry & types.uint64(LOW)) - 1, 0])


@kernel(
    types.int64(
        RU8,
        RI64,
        RU8,
        types.int64,
        types.int64,
        WU64,
        types.uint8[::1],
        types.int64[:, ::1],
        WI64,
        RI32,
        WI64,
        WI32,
    )
)
def intern_rows(
    data: Any,
    offsets: Any,
    bits: Any,
    offset: Any,
    row: Any,
    table: Any,
    arena: Any,
    places: Any,
    state: Any,
    free: Any,
    codes: Any,
    fresh: Any,
) -> Any:
    """Write the code of every row from ``row`` on into ``codes``, until ``places`` or ``arena`` is full.

    Null is an empty value that the table does not have. Rows with a new code are listed in ``fresh``.
    Returns the first row without a code, or the number of rows.
    """
    mask = types.uint64(table.size - 1)
    rows = offsets.size - 1
    hashes = np.empty(BLOCK, np.uint64)
    for first in range(row, rows, BLOCK):
        stop = min(first + BLOCK, rows)
        for i in range(first, stop):
            hashes[i - first] = hash_bytes(data, offsets[i], offsets[i + 1])
            prefetch(table, types.int64(hashes[i - first] & mask))
        if table.size > FEW:
            prefetch_values(hashes, stop - first, table, arena, places)
        for i in range(first, stop):
            null = bits.size != 0 and not valid(bits, offset + i)
            if null and state[1] >= 0:
                codes[i] = state[1]
                continue
            start = offsets[i]
            length = 0 if null else offsets[i + 1] - start
            hashed = hashes[i - first]
            place = hashed & mask
            while True:
                entry = types.uint64(0) if null else table[place]
                if entry == 0:
                    at = state[4]
                    if at + length > arena.size:
                        return i
                    code = take_slot(state, free, places.shape[0])
                    if code < 0:
                        return i
                    for k in range(length):
                        arena[at + k] = data[start + k]
                    codes[i] = code
                    places[code, 0] = at
                    places[code, 1] = at + length
                    state[4] = at + length
                    fresh[state[3]] = i
                    state[3] += 1
                    if null:
                        state[1] = code
                    else:
                        table[place] = (hashed & types.uint64(HIGH)) | types.uint64(code + 1)
                    break
                if (entry ^ hashed) & types.uint64(HIGH) == 0:
                    code = types.int64(entry & types.uint64(LOW)) - 1
                    at = places[code, 0]
                    if places[code, 1] - at == length and same_bytes(data, start, arena, at, length):
                        codes[i] = code
                        break
                place = (place + types.uint64(1)) & mask
    return rows


@kernel(types.void(RU8, RI64, RU8, types.int64, RU64, RU8, READ_RECORDS, types.int64, WI64))
def seek_values(
    data: Any, offsets: Any, bits: Any, offset: Any, table: Any, arena: Any, places: Any, null: Any, codes: Any
) -> None:
    """Write the code of every row into ``codes``, or -1 if its value has none; ``null`` is the code of null."""
    mask = types.uint64(table.size - 1)
    for i in range(codes.size):
        if bits.size != 0 and not valid(bits, offset + i):
            codes[i] = null
            continue
        hashed = hash_bytes(data, offsets[i], offsets[i + 1])
        length = offsets[i + 1] - offsets[i]
        place = hashed & mask
        codes[i] = -1
        while table[place] != 0:
            if (table[place] ^ hashed) & types.uint64(HIGH) == 0:
                code = types.int64(table[place] & types.uint64(LOW)) - 1
                at = places[code, 0]
                if places[code, 1] - at == length and same_bytes(data, offsets[i], arena, at, length):
                    codes[i] = code
                    break
            place = (place + types.uint64(1)) & mask


@kernel(types.int64(RI64, RU8, READ_RECORDS, WU64, WI64))
def remove_codes(codes: Any, arena: Any, places: Any, table: Any, state: Any) -> Any:
    """Remove the values of ``codes``, each once; return the number of codes that the table does not have."""
    missing = 0
    mask = types.uint64(table.size - 1)
    for i in range(codes.size):
        code = codes[i]
        if code == state[1]:
            state[1] = -1
            continue
        gap = hash_bytes(arena, places[code, 0], places[code, 1]) & mask
        while table[gap] & types.uint64(LOW) != types.uint64(code + 1) and table[gap] != 0:
            gap = (gap + types.uint64(1)) & mask
        missing += table[gap] == 0
        place = (gap + types.uint64(1)) & mask
        while table[place] != 0:
            other = types.int64(table[place] & types.uint64(LOW)) - 1
            home = hash_bytes(arena, places[other, 0], places[other, 1]) & mask
            if (place - home) & mask >= (place - gap) & mask:
                table[gap] = table[place]
                gap = place
            place = (place + types.uint64(1)) & mask
        table[gap] = 0
    return missing


@kernel(types.void(RU64, RU8, READ_RECORDS, WU64))
def rehash_codes(old: Any, arena: Any, places: Any, table: Any) -> None:
    """Enter the values of the table ``old`` into an empty ``table``."""
    mask = types.uint64(table.size - 1)
    codes = np.empty(BLOCK, np.int64)
    entry = 0
    while entry < old.size:
        count = 0
        while entry < old.size and count < BLOCK:
            if old[entry] != 0:
                codes[count] = types.int64(old[entry] & types.uint64(LOW)) - 1
                prefetch(places, codes[count] * 2)
                count += 1
            entry += 1
        for j in range(count):
            prefetch(arena, places[codes[j], 0])
        for j in range(count):
            hashed = hash_bytes(arena, places[codes[j], 0], places[codes[j], 1])
            place = hashed & mask
            while table[place] != 0:
                place = (place + types.uint64(1)) & mask
            table[place] = (hashed & types.uint64(HIGH)) | types.uint64(codes[j] + 1)


@kernel(types.int64(RU8, READ_RECORDS, RU8, types.uint8[::1], types.int64[:, ::1]))
def copy_values(arena: Any, places: Any, kept: Any, out: Any, moved: Any) -> Any:
    """Copy the bytes of each code that has ``kept`` = 1 to ``out``, its new place to ``moved``; return their size."""
    at = 0
    for code in range(kept.size):
        if kept[code]:
            start = places[code, 0]
            length = places[code, 1] - start
            for k in range(length):
                out[at + k] = arena[start + k]
            moved[code, 0] = at
            at += length
            moved[code, 1] = at
    return at


@kernel(types.void(RU8, READ_RECORDS, RI64, RU8, RI64, types.uint8[::1]))
def gather_bytes(arena: Any, places: Any, codes: Any, bits: Any, ends: Any, out: Any) -> None:
    """Copy the bytes of each code to ``out``, where row i ends at ``ends[i]``; null rows (bit i is 0) are skipped."""
    for i in range(codes.size):
        if bits.size == 0 or valid(bits, i):
            start = places[codes[i], 0]
            length = places[codes[i], 1] - start
            for k in range(length):
                out[ends[i] - length + k] = arena[start + k]
