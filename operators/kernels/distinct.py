"""The kernel that counts the pairs of slot and value that are new."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from dataflow.state.kernels.words import RI32
from operators.kernels.aggregate import RECORDS

__all__ = ["count_new"]


@njit(types.void(RECORDS, RI32, RI32, types.int64, types.int64), nogil=True, cache=True)
def count_new(records: Any, slots: Any, pairs: Any, known: Any, word: Any) -> None:
    """Add one to the record of ``slots[i]`` if ``pairs[i]`` is new; new pairs are numbered from ``known`` on."""
    for i in range(slots.size):
        if pairs[i] == known:
            known += 1
            records[types.uint64(slots[i]), types.uint64(word)] += 1
