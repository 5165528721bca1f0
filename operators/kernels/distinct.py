"""Kernels of the set of pairs of slot and value: the pairs of a slot are a linked list, the newest first.

Two words of a record are the number of its pairs and the newest one, or -1. ``before[p]`` is the pair before p. Entries
of ``before`` do not change while their pair is in use, so the list of a frozen record stays as it was.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, WI32

__all__ = ["link_pairs", "list_pairs"]


@kernel(types.void(RECORDS, RI32, RI32, RI32, WI32, types.int64))
def link_pairs(records: Any, places: Any, pairs: Any, rows: Any, before: Any, word: Any) -> None:
    """Add the new pairs, those of ``rows``, to the lists of their records: pair i to record ``places[i]``."""
    for k in range(rows.size):
        i = rows[k]
        record = types.uint64(places[i])
        before[pairs[i]] = records[record, word + 1]
        records[record, word + 1] = pairs[i]
        records[record, word] += 1


@kernel(types.void(READ_RECORDS, types.int64, RI32, RI64, WI32))
def list_pairs(records: Any, word: Any, before: Any, ends: Any, pairs: Any) -> None:
    """Write the pairs of each record, the oldest first; those of record i end at ``ends[i]``."""
    for i in range(ends.size):
        pair, at = records[i, word + 1], ends[i]
        while pair >= 0:
            at -= 1
            pairs[at] = pair
            pair = types.int64(before[pair])
