"""Kernels of the interner: byte strings to dense codes.

A table entry is one word: the upper half of the hash, and the code plus one; 0 is a free entry. Probing is linear.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI64, RU8, WI64, WU64, hash_bytes, same_bytes, valid

__all__ = ["gather_bytes", "intern_rows", "rehash_codes"]

HIGH = 0xFFFFFFFF00000000
LOW = 0x00000000FFFFFFFF


@njit(
    types.int64(RU8, RI64, RU8, types.int64, types.int64, WU64, types.uint8[::1], WI64, WI64, WI64),
    nogil=True,
    cache=True,
)
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
    """Write the code of every row from ``row`` on into ``codes`` (0 for null), until ``starts`` or ``arena`` is full.

    ``state`` is (number of values). Value k begins at ``starts[k]`` in ``arena`` and ends at ``starts[k + 1]``.
    Returns the first row without a code, or the number of rows.
    """
    count = state[0]
    mask = types.uint64(table.size - 1)
    for i in range(row, offsets.size - 1):
        if bits.size != 0 and not valid(bits, offset + i):
            codes[i] = 0
            continue
        start = offsets[i]
        length = offsets[i + 1] - start
        hashed = hash_bytes(data, start, offsets[i + 1])
        place = hashed & mask
        while True:
            entry = table[place]
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
                table[place] = (hashed & types.uint64(HIGH)) | types.uint64(count)
                break
            if (entry ^ hashed) & types.uint64(HIGH) == 0:
                code = types.int64(entry & types.uint64(LOW)) - 1
                if starts[code + 1] - starts[code] == length and same_bytes(data, start, arena, starts[code], length):
                    codes[i] = code
                    break
            place = (place + types.uint64(1)) & mask
    state[0] = count
    return offsets.size - 1


@njit(types.void(RU8, RI64, types.int64, WU64), nogil=True, cache=True)
def rehash_codes(arena: Any, starts: Any, count: Any, table: Any) -> None:
    """Enter the first ``count`` values of the arena into an empty ``table``."""
    mask = types.uint64(table.size - 1)
    for code in range(count):
        hashed = hash_bytes(arena, starts[code], starts[code + 1])
        place = hashed & mask
        while table[place] != 0:
            place = (place + types.uint64(1)) & mask
        table[place] = (hashed & types.uint64(HIGH)) | types.uint64(code + 1)


@njit(types.void(RU8, RI64, RI64, RU8, RI64, types.uint8[::1]), nogil=True, cache=True)
def gather_bytes(arena: Any, starts: Any, codes: Any, bits: Any, ends: Any, out: Any) -> None:
    """Copy the bytes of each code to ``out``, where row i ends at ``ends[i]``; null rows (bit i is 0) are skipped."""
    for i in range(codes.size):
        if bits.size == 0 or valid(bits, i):
            length = starts[codes[i] + 1] - starts[codes[i]]
            for k in range(length):
                out[ends[i] - length + k] = arena[starts[codes[i]] + k]
