"""The kernel that counts the pairs of slot and value that are new."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RECORDS, RI32

__all__ = ["count_new"]


@kernel(types.void(RECORDS, RI32, RI32, types.int64, types.int64))
def count_new(records: Any, slots: Any, pairs: Any, known: Any, word: Any) -> None:
    """Add one to the record of ``slots[i]`` if ``pairs[i]`` is new; new pairs are numbered from ``known`` on."""
    for i in range(slots.size):
        if pairs[i] == known:
            known += 1
            records[types.uint64(slots[i]), types.uint64(word)] += 1
