"""Kernels of sessions: cells of a key beside each other, and the sessions that they make.

A cell is a record: word ``FIRST`` holds the complement of its first time (an ``EXTREME`` of a minimum), word ``LAST``
its last time. ``before`` and ``after`` hold, for each slot, the slot of its key's cell right before and after it in
time, or -1. Two such cells are *joined*, that is, of one session, if the later one begins at most ``gap`` after the
last time of the earlier one. A record without rows is joined to nothing.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RI32, RI64, WI32, WI64

__all__ = ["FIRST", "LAST", "count_back", "find_ends", "link", "list_back", "look", "meet", "unlink"]

FIRST, LAST = 1, 2
"""The words of a cell's times."""


@kernel(types.boolean(READ_RECORDS, types.int64, types.int64, types.int64))
def are_joined(records: Any, earlier: Any, later: Any, gap: Any) -> Any:
    """Return whether two cells next to each other, or -1, are of one session."""
    if earlier < 0 or later < 0:
        return False
    return ~records[later, FIRST] <= records[earlier, LAST] + gap


@kernel(types.void(RI32, READ_RECORDS, RI32, types.int64, WI64, types.boolean[::1]))
def look(slots: Any, records: Any, after: Any, gap: Any, lasts: Any, joined: Any) -> None:
    """Write the last time of each cell to ``lasts``, and whether it is joined to the one after it to ``joined``."""
    for i in range(slots.size):
        slot = types.int64(slots[i])
        lasts[i] = records[slot, LAST]
        joined[i] = are_joined(records, slot, types.int64(after[slot]), gap)


@kernel(types.void(RI32, RI32, RI32, WI32, WI32))
def link(slots: Any, befores: Any, afters: Any, before: Any, after: Any) -> None:
    """Enter new cells with the cells before and after them, or -1."""
    for i in range(slots.size):
        slot = slots[i]
        before[slot] = befores[i]
        after[slot] = afters[i]
        if befores[i] >= 0:
            after[befores[i]] = slot
        if afters[i] >= 0:
            before[afters[i]] = slot


@kernel(types.void(RI32, WI32, WI32))
def unlink(slots: Any, before: Any, after: Any) -> None:
    """Remove cells, each once, from those before and after them."""
    # The cells on both sides are not linked with each other. Cells are removed when no row can come any more at or
    # before their times, so the chain before a removed cell is over as well, and nothing on time could join across the
    # gap. If cells were removed earlier, a row between the two sides would find no neighbour, and split its session.
    for i in range(slots.size):
        slot = slots[i]
        if before[slot] >= 0:
            after[before[slot]] = -1
        if after[slot] >= 0:
            before[after[slot]] = -1
        before[slot] = -1
        after[slot] = -1


@kernel(types.void(RI32, READ_RECORDS, RI32, types.int64, WI32, WI32))
def find_ends(slots: Any, records: Any, after: Any, gap: Any, memo: Any, out: Any) -> None:
    """Write the last cell of the session of each slot to ``out``; ``memo`` is -1 everywhere, and again at the end.

    Each cell is visited a constant number of times, however many ``slots`` are of one session.
    """
    # Walk to the end first, then write it to every cell of the walk: a later slot of the same session stops at the
    # first cell that an earlier walk has passed. Without the memo, a session of n cells that a batch touches n times
    # would cost n * n steps. The last loop empties the memo along the same walks; it must come after all of them,
    # because walks share cells.
    for i in range(slots.size):
        slot = types.int64(slots[i])
        while memo[slot] < 0 and are_joined(records, slot, types.int64(after[slot]), gap):
            slot = types.int64(after[slot])
        end = memo[slot] if memo[slot] >= 0 else types.int32(slot)
        out[i] = end
        slot = types.int64(slots[i])
        while memo[slot] < 0:
            memo[slot] = end
            if slot != end:
                slot = types.int64(after[slot])
    for i in range(slots.size):
        slot = types.int64(slots[i])
        while memo[slot] >= 0:
            end = memo[slot]
            memo[slot] = -1
            if slot != end:
                slot = types.int64(after[slot])


@kernel(types.void(RI32, READ_RECORDS, RI32, types.int64, WI64))
def count_back(ends: Any, records: Any, before: Any, gap: Any, offsets: Any) -> None:
    """Write to ``offsets``, from entry 1 on, how many cells there are up to each of ``ends``, as a running sum."""
    total = types.int64(0)
    offsets[0] = 0
    for i in range(ends.size):
        slot = types.int64(ends[i])
        total += 1
        while are_joined(records, types.int64(before[slot]), slot, gap):
            slot = types.int64(before[slot])
            total += 1
        offsets[i + 1] = total


@kernel(types.void(RI32, RI32, RI64, WI32))
def list_back(ends: Any, before: Any, offsets: Any, out: Any) -> None:
    """Write the cells that ``count_back`` counted to ``out``, those of each session in the order of time."""
    for i in range(ends.size):
        slot = ends[i]
        for place in range(offsets[i + 1] - 1, offsets[i] - 1, -1):
            out[place] = slot
            slot = before[slot]


@kernel(types.int64(RI32, RI64, READ_RECORDS, RI32, RI32, types.int64, types.int64, WI32))
def meet(slots: Any, times: Any, records: Any, before: Any, after: Any, gap: Any, flag: Any, out: Any) -> Any:
    """Write the cells with ``flag`` that rows merge with to ``out``, perhaps several times; return their number.

    Row i is of cell ``slots[i]``, and not in it yet. ``out`` has room for three cells a row.
    """
    # Only the cells next to that of the row can meet it: a cell is as long as the gap, so whatever lies beyond them is
    # more than a gap away. It runs before the fold, while FIRST and LAST are those of the rows that were shown.
    count = 0
    for i in range(slots.size):
        slot = types.int64(slots[i])
        if records[slot, 0] & flag:
            out[count] = slots[i]
            count += 1
        other = types.int64(before[slot])
        if other >= 0 and records[other, 0] & flag and times[i] <= records[other, LAST] + gap:
            out[count] = before[slot]
            count += 1
        other = types.int64(after[slot])
        if other >= 0 and records[other, 0] & flag and ~records[other, FIRST] <= times[i] + gap:
            out[count] = after[slot]
            count += 1
    return count
