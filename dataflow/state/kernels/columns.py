"""Kernels of state columns whose values are words of the records."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RECORDS, RI32, RI64, RU8, prefetch

__all__ = ["write_words"]

AHEAD = 16


@kernel(types.void(RECORDS, RI32, RI64, RU8, types.int64, types.int64, types.int64))
def write_words(records: Any, slots: Any, words: Any, bits: Any, first: Any, word: Any, flag: Any) -> None:
    """Write ``words[i]`` into word ``word`` of the record of ``slots[i]``, in order, and set its ``flag``.

    ``bits``, if there are any, are the validity of the rows from bit ``first`` on; a null clears the flag.
    """
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(records, types.int64(slots[i + AHEAD]) * records.shape[1])
        slot = types.uint64(slots[i])
        at = first + i
        if bits.size > 0 and (bits[at >> 3] >> (at & 7)) & 1 == 0:
            records[slot, 0] &= ~flag
        else:
            records[slot, 0] |= flag
            records[slot, word] = words[i]
