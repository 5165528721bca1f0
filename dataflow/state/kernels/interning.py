"""Kernels of the interner: byte strings to dense codes.

A table entry is one word: the upper half of the hash, and the code plus one; 0 is a free entry. Probing is linear.

Finding a value takes three dependent reads: the table's entry, where its value starts, and the bytes. With many values
each of them misses the cache. So rows are processed block by block, and each read of a block is prefetched in a pass of
its own before the pass that needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI64, RU8, RU64, WI64, WU64, hash_bytes, prefetch, same_bytes, valid

__all__ = ["gather_bytes", "intern_rows", "rehash_codes"]

HIGH = 0xFFFFFFFF00000000
LOW = 0x00000000FFFFFFFF

BLOCK = 128
"""Rows whose reads are prefetched together."""
FEW = 1 << 13
"""Table entries up to which the table and its values stay in the cache without prefetching."""


@kernel(types.void(RU64, types.int64, RU64, RU8, RI64))
def prefetch_values(hashes: Any, rows: Any, table: Any, arena: Any, starts: Any) -> None:
    """Prefetch the values that the first ``rows`` hashes most likely refer to, whose entries are on their way."""
    mask = types.uint64(table.size - 1)
    for j in range(rows):
        entry = table[hashes[j] & mask]
        if (entry ^ hashes[j]) & types.uint64(HIGH) == 0:
            prefetch(starts, types.int64(entry & types.uint64(LOW)) - 1)
    for j in range(rows):
        entry = table[hashes[j] & mask]
        if (entry ^ hashes[j]) & types.uint64(HIGH) == 0 and entry & types.uint64(LOW) != 0:
            prefetch(arena, starts[types.int64(entry & types.uint64(LOW)) - 1])


@kernel(types.int64(RU8, RI64, RU8, types.int64, types.int64, WU64, types.uint8[::1], WI64, WI64, WI64))
def intern_rows(
    data: Any,
    offsets: Any,
    bits: Any,
    offset: Any,
    row: Any,
    table: Any,
    arena: Any,
    starts: Any,
    state: Any,
    codes: Any,
) -> Any:
    """Write the code of every row from ``row`` on into ``codes``, until ``starts`` or ``arena`` is full.

    ``state`` is (number of values, code of null or -1). Value k begins at ``starts[k]`` in ``arena`` and ends at
    ``starts[k + 1]``; null is an empty value that the table does not have.
    Returns the first row without a code, or the number of rows.
    """
    count = state[0]
    mask = types.uint64(table.size - 1)
    rows = offsets.size - 1
    hashes = np.empty(BLOCK, np.uint64)
    for first in range(row, rows, BLOCK):
        stop = min(first + BLOCK, rows)
        for i in range(first, stop):
            hashes[i - first] = hash_bytes(data, offsets[i], offsets[i + 1])
            prefetch(table, types.int64(hashes[i - first] & mask))
        if table.size > FEW:
            prefetch_values(hashes, stop - first, table, arena, starts)
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
                    at = starts[count]
                    if count + 1 >= starts.size or at + length > arena.size:
                        state[0] = count
                        return i
                    for k in range(length):
                        arena[at + k] = data[start + k]
                    codes[i] = count
                    count += 1
                    starts[count] = at + length
                    if null:
                        state[1] = count - 1
                    else:
                        table[place] = (hashed & types.uint64(HIGH)) | types.uint64(count)
                    break
                if (entry ^ hashed) & types.uint64(HIGH) == 0:
                    code = types.int64(entry & types.uint64(LOW)) - 1
                    at = starts[code]
                    if starts[code + 1] - at == length and same_bytes(data, start, arena, at, length):
                        codes[i] = code
                        break
                place = (place + types.uint64(1)) & mask
    state[0] = count
    return rows


@kernel(types.void(RU8, RI64, types.int64, types.int64, WU64))
def rehash_codes(arena: Any, starts: Any, count: Any, null: Any, table: Any) -> None:
    """Enter the first ``count`` values of the arena, but the one of code ``null``, into an empty ``table``."""
    mask = types.uint64(table.size - 1)
    hashes = np.empty(BLOCK, np.uint64)
    for first in range(0, count, BLOCK):
        stop = min(first + BLOCK, count)
        for code in range(first, stop):
            hashes[code - first] = hash_bytes(arena, starts[code], starts[code + 1])
            prefetch(table, types.int64(hashes[code - first] & mask))
        for code in range(first, stop):
            if code != null:
                hashed = hashes[code - first]
                place = hashed & mask
                while table[place] != 0:
                    place = (place + types.uint64(1)) & mask
                table[place] = (hashed & types.uint64(HIGH)) | types.uint64(code + 1)


@kernel(types.void(RU8, RI64, RI64, RU8, RI64, types.uint8[::1]))
def gather_bytes(arena: Any, starts: Any, codes: Any, bits: Any, ends: Any, out: Any) -> None:
    """Copy the bytes of each code to ``out``, where row i ends at ``ends[i]``; null rows (bit i is 0) are skipped."""
    for i in range(codes.size):
        if bits.size == 0 or valid(bits, i):
            length = starts[codes[i] + 1] - starts[codes[i]]
            for k in range(length):
                out[ends[i] - length + k] = arena[starts[codes[i]] + k]
