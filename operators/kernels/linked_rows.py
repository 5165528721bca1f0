"""Kernels of rows that are linked by key, and never removed.

``heads`` has a row for each slot: its first row plus one, or 0, and its number of rows. ``links`` has for each row the
next one of its slot, or -1. Rows that are added one after the other are linked newest first.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, WI32, WI64

__all__ = ["count_linked", "link_all", "link_newest", "list_linked", "pair_linked"]

HEADS = types.int32[:, ::1]
READ_HEADS = types.Array(types.int32, 2, "C", readonly=True)


@kernel(types.void(RI32, types.int64, HEADS, WI32))
def link_newest(slots: Any, first: Any, heads: Any, links: Any) -> None:
    """Link rows from number ``first`` on, one for each of ``slots``."""
    for i in range(slots.size):
        slot = types.int64(slots[i])
        links[first + i] = heads[slot, 0] - 1
        heads[slot, 0] = first + i + 1
        heads[slot, 1] += 1


@kernel(types.void(RI32, HEADS, WI32))
def link_all(slots: Any, heads: Any, links: Any) -> None:
    """Link all rows, one for each of ``slots``, the oldest first; -1 has none."""
    for row in range(slots.size - 1, -1, -1):
        slot = types.int64(slots[row])
        if slot >= 0:
            links[row] = heads[slot, 0] - 1
            heads[slot, 0] = row + 1
            heads[slot, 1] += 1


@kernel(types.void(RI32, READ_HEADS, WI64))
def count_linked(slots: Any, heads: Any, counts: Any) -> None:
    """Write the number of rows of each of ``slots``; slots without an entry in ``heads``, and -1, have none."""
    for i in range(slots.size):
        slot = types.int64(slots[i])
        counts[i] = heads[slot, 1] if 0 <= slot < heads.shape[0] else 0


@kernel(types.void(RI32, RI64, READ_HEADS, RI32, WI32))
def list_linked(slots: Any, offsets: Any, heads: Any, links: Any, rows: Any) -> None:
    """Write the rows of each of ``slots`` from ``offsets[i]`` on, as many as it has there."""
    for i in range(slots.size):
        if offsets[i] == offsets[i + 1]:
            continue
        row = heads[types.int64(slots[i]), 0] - 1
        for place in range(offsets[i], offsets[i + 1]):
            rows[place] = row
            row = links[types.int64(row)]


@kernel(types.int64(RI32, READ_HEADS, RI32, WI64, WI32, WI32))
def pair_linked(slots: Any, heads: Any, links: Any, position: Any, at: Any, rows: Any) -> Any:
    """Write pairs of an entry of ``slots`` and a row of that slot until ``at`` is full; return their number.

    ``position`` has the entry to continue with, and its next row plus one; 0: its first one. It is moved on.
    """
    count, entry, row = 0, position[0], position[1] - 1
    while entry < slots.size:
        if row < 0:
            slot = types.int64(slots[entry])
            row = types.int64(heads[slot, 0]) - 1 if 0 <= slot < heads.shape[0] else -1
        while row >= 0 and count < at.size:
            at[count], rows[count] = entry, row
            count += 1
            row = types.int64(links[row])
        if row >= 0:
            break
        entry += 1
    position[0], position[1] = entry, row + 1
    return count
