"""Kernels of the rows of keys: of each slot a run of entries (time, number) in an arena, in the order of their times.

``runs`` has a row a slot: (place of its block in the arena, place of its first entry, entries, size of the block). A
size is a power of two, or 0 without a block. ``free`` has the first free block of each size, as its exponent; a free
block begins with the place of the next one, or -1. ``state`` is (used entries of the arena, late rows).
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, WI32, WI64

__all__ = [
    "add_entries",
    "count_before",
    "find_between",
    "find_entries",
    "find_first",
    "find_last",
    "least_room",
    "list_entries",
    "merge_entries",
    "rebuild_runs",
    "sweep_runs",
    "take_first",
]

SMALLEST = 1  # the exponent of the smallest block


@kernel(types.int64(READ_RECORDS, types.int64, types.int64, types.int64))
def lower_bound(arena: Any, start: Any, stop: Any, time: Any) -> Any:
    """Return the first place from ``start`` to ``stop`` whose time is at least ``time``."""
    while start < stop:
        middle = (start + stop) >> 1
        if arena[middle, 0] < time:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel(types.void(RECORDS, types.int64, types.int64, WI64))
def free_block(arena: Any, place: Any, size: Any, free: Any) -> None:
    """Add a block to the free ones of its size."""
    exponent = 0
    while (1 << exponent) < size:
        exponent += 1
    arena[place, 0] = free[exponent]
    free[exponent] = place


@kernel(types.int64(RECORDS, types.int64, WI64, WI64))
def take_block(arena: Any, exponent: Any, state: Any, free: Any) -> Any:
    """Return the place of a block, or -1 if the arena has no room for it."""
    place = free[exponent]
    if place >= 0:
        free[exponent] = arena[place, 0]
        return place
    place = state[0]
    if place + (1 << exponent) > arena.shape[0]:
        return -1
    state[0] = place + (1 << exponent)
    return place


@kernel(types.boolean(RECORDS, types.int64, types.int64, RECORDS, WI64, WI64))
def reserve(runs: Any, slot: Any, more: Any, arena: Any, state: Any, free: Any) -> Any:
    """Make room for ``more`` entries after the run of ``slot``; return False if the arena has none."""
    block, first, count, size = runs[slot, 0], runs[slot, 1], runs[slot, 2], runs[slot, 3]
    if size > 0 and first - block + count + more <= size:
        return True
    if count + more <= size and first - block >= count:  # as many entries have gone as are moved
        for i in range(count):
            arena[block + i, 0], arena[block + i, 1] = arena[first + i, 0], arena[first + i, 1]
        runs[slot, 1] = block
        return True
    exponent = SMALLEST
    while (1 << exponent) < count + more:
        exponent += 1
    place = take_block(arena, exponent, state, free)
    if place < 0:
        return False
    for i in range(count):
        arena[place + i, 0], arena[place + i, 1] = arena[first + i, 0], arena[first + i, 1]
    if size > 0:
        free_block(arena, block, size, free)
    runs[slot, 0], runs[slot, 1], runs[slot, 3] = place, place, 1 << exponent
    return True


@kernel(types.int64(RI32, RI64, RI32, types.int64, RECORDS, RECORDS, WI64, WI64, WI32))
def add_entries(
    slots: Any, times: Any, numbers: Any, start: Any, runs: Any, arena: Any, state: Any, free: Any, late: Any
) -> Any:
    """Append an entry for each row from ``start`` on to the run of its slot; list rows whose run has later times.

    Returns the first row for which the arena has no room, or the number of rows.
    """
    for row in range(start, slots.size):
        slot = types.int64(slots[row])
        end = runs[slot, 1] + runs[slot, 2]
        if runs[slot, 2] > 0 and arena[end - 1, 0] > times[row]:
            late[state[1]] = row
            state[1] += 1
            continue
        if not reserve(runs, slot, 1, arena, state, free):
            return row
        end = runs[slot, 1] + runs[slot, 2]
        arena[end, 0], arena[end, 1] = times[row], types.int64(numbers[row])
        runs[slot, 2] += 1
    return slots.size


@kernel(types.int64(RI32, RI64, RI32, types.int64, RECORDS, RECORDS, WI64, WI64))
def merge_entries(
    slots: Any, times: Any, numbers: Any, start: Any, runs: Any, arena: Any, state: Any, free: Any
) -> Any:
    """Merge rows, ordered by slot and time, into the runs of their slots, after the entries with equal times.

    Returns the first row of the slot for which the arena has no room, or the number of rows.
    """
    row = start
    while row < slots.size:
        slot, stop = types.int64(slots[row]), row + 1
        while stop < slots.size and slots[stop] == slots[row]:
            stop += 1
        if not reserve(runs, slot, stop - row, arena, state, free):
            return row
        old, new = runs[slot, 1] + runs[slot, 2] - 1, stop - 1
        place = old + stop - row
        while new >= row:
            if old >= runs[slot, 1] and arena[old, 0] > times[new]:
                arena[place, 0], arena[place, 1] = arena[old, 0], arena[old, 1]
                old -= 1
            else:
                arena[place, 0], arena[place, 1] = times[new], types.int64(numbers[new])
                new -= 1
            place -= 1
        runs[slot, 2] += stop - row
        row = stop
    return row


@kernel(types.int64(RECORDS))
def least_room(runs: Any) -> Any:
    """Return the size of an arena in which every run has the smallest block that holds it."""
    total = 0
    for slot in range(runs.shape[0]):
        if runs[slot, 2] > 0:
            size = 1 << SMALLEST
            while size < runs[slot, 2]:
                size <<= 1
            total += size
    return total


@kernel(types.void(RECORDS, READ_RECORDS, RECORDS, WI64, WI64))
def rebuild_runs(runs: Any, arena: Any, rebuilt: Any, state: Any, free: Any) -> None:
    """Copy all runs to another arena, each into the smallest block that holds it."""
    for exponent in range(free.size):
        free[exponent] = -1
    used = 0
    for slot in range(runs.shape[0]):
        first, count = runs[slot, 1], runs[slot, 2]
        runs[slot, 0], runs[slot, 1], runs[slot, 3] = 0, 0, 0
        if count > 0:
            size = 1 << SMALLEST
            while size < count:
                size <<= 1
            for i in range(count):
                rebuilt[used + i, 0], rebuilt[used + i, 1] = arena[first + i, 0], arena[first + i, 1]
            runs[slot, 0], runs[slot, 1], runs[slot, 3] = used, used, size
            used += size
    state[0] = used


@kernel(types.void(RI32, RI64, RI64, READ_RECORDS, READ_RECORDS, WI64, WI64))
def find_between(slots: Any, low: Any, high: Any, runs: Any, arena: Any, firsts: Any, offsets: Any) -> None:
    """Set the place of the first entry of each row's slot with a time from ``low`` to ``high``, and sum their numbers.

    ``low`` and ``high`` have an entry a row, or one for all; slot -1 has no entries.
    """
    offsets[0] = 0
    for row in range(slots.size):
        first, count = 0, 0
        if slots[row] >= 0 and slots[row] < runs.shape[0]:
            slot = types.int64(slots[row])
            stop = runs[slot, 1] + runs[slot, 2]
            first = lower_bound(arena, runs[slot, 1], stop, low[min(row, low.size - 1)])
            count = lower_bound(arena, first, stop, high[min(row, high.size - 1)]) - first
        firsts[row] = first
        offsets[row + 1] = offsets[row] + count


@kernel(types.void(RI32, RI64, READ_RECORDS, READ_RECORDS, WI32))
def find_first(slots: Any, times: Any, runs: Any, arena: Any, numbers: Any) -> None:
    """Set the number of the first entry of each row's slot with a time of at least ``times``, or -1.

    Rows of one slot should be adjacent, their times ascending: the search then begins where the last one ended.
    """
    place = types.int64(0)
    for row in range(slots.size):
        numbers[row] = -1
        if slots[row] < 0 or slots[row] >= runs.shape[0]:
            continue
        slot = types.int64(slots[row])
        stop = runs[slot, 1] + runs[slot, 2]
        if row == 0 or slots[row - 1] != slots[row] or times[row] < times[row - 1]:
            place = lower_bound(arena, runs[slot, 1], stop, times[row])
        else:
            step = 1
            while place + step < stop and arena[place + step, 0] < times[row]:
                place += step
                step <<= 1
            place = lower_bound(arena, place, min(place + step, stop), times[row])
        if place < stop:
            numbers[row] = arena[place, 1]


@kernel(types.void(RI32, RI64, READ_RECORDS, READ_RECORDS, WI32))
def find_last(slots: Any, times: Any, runs: Any, arena: Any, numbers: Any) -> None:
    """Set the number of the last entry of each row's slot with a time before ``times``, or -1."""
    for row in range(slots.size):
        numbers[row] = -1
        if slots[row] < 0 or slots[row] >= runs.shape[0]:
            continue
        slot = types.int64(slots[row])
        first = runs[slot, 1]
        place = lower_bound(arena, first, first + runs[slot, 2], times[row])
        if place > first:
            numbers[row] = arena[place - 1, 1]


@kernel(types.void(RI64, RI64, READ_RECORDS, WI32))
def list_entries(firsts: Any, offsets: Any, arena: Any, numbers: Any) -> None:
    """Write the numbers of ``offsets[i + 1] - offsets[i]`` entries from each place on."""
    for row in range(firsts.size):
        for i in range(offsets[row + 1] - offsets[row]):
            numbers[offsets[row] + i] = arena[firsts[row] + i, 1]


@kernel(types.int64(RI32, types.int64, READ_RECORDS, READ_RECORDS, WI64))
def count_before(slots: Any, time: Any, runs: Any, arena: Any, counts: Any) -> Any:
    """Set how many entries of each slot have a time before ``time``; return the sum."""
    total = 0
    for row in range(slots.size):
        slot = types.int64(slots[row])
        first = runs[slot, 1]
        counts[row] = lower_bound(arena, first, first + runs[slot, 2], time) - first
        total += counts[row]
    return total


@kernel(types.void(RI32, RI64, RECORDS, RECORDS, WI64, WI32))
def take_first(slots: Any, counts: Any, runs: Any, arena: Any, free: Any, numbers: Any) -> None:
    """Remove the first ``counts[i]`` entries of each slot, which occurs once, and write their numbers."""
    taken = 0
    for row in range(slots.size):
        slot = types.int64(slots[row])
        for i in range(counts[row]):
            numbers[taken] = arena[runs[slot, 1] + i, 1]
            taken += 1
        runs[slot, 1] += counts[row]
        runs[slot, 2] -= counts[row]
        if runs[slot, 2] == 0 and runs[slot, 3] > 0:
            free_block(arena, runs[slot, 0], runs[slot, 3], free)
            runs[slot, 3] = 0


@kernel(types.void(RI32, RI64, RI64, READ_RECORDS, READ_RECORDS, READ_RECORDS, types.int64, WI32))
def find_entries(
    slots: Any, times: Any, sequences: Any, runs: Any, arena: Any, records: Any, word: Any, numbers: Any
) -> None:
    """Set the number with this time and this sequence number, which is ``word`` of its record, or -1, for each row."""
    for row in range(slots.size):
        numbers[row] = -1
        if slots[row] < 0 or slots[row] >= runs.shape[0]:
            continue
        slot = types.int64(slots[row])
        end = runs[slot, 1] + runs[slot, 2]
        low, high = lower_bound(arena, runs[slot, 1], end, times[row]), end
        while low < high:  # entries of one time are in the order of their sequence numbers
            middle = (low + high) >> 1
            if arena[middle, 0] == times[row] and records[arena[middle, 1], word] < sequences[row]:
                low = middle + 1
            else:
                high = middle
        if low < end and arena[low, 0] == times[row] and records[arena[low, 1], word] == sequences[row]:
            numbers[row] = arena[low, 1]


@kernel(types.void(RI32, RECORDS, RECORDS, READ_RECORDS, WI64))
def sweep_runs(slots: Any, runs: Any, arena: Any, records: Any, free: Any) -> None:
    """Remove the entries of ``slots`` whose record does not exist any more: the sign bit of its word 0 is not set."""
    for row in range(slots.size):
        slot = types.int64(slots[row])
        first, kept = runs[slot, 1], 0
        for i in range(runs[slot, 2]):
            if records[arena[first + i, 1], 0] < 0:
                arena[first + kept, 0], arena[first + kept, 1] = arena[first + i, 0], arena[first + i, 1]
                kept += 1
        runs[slot, 2] = kept
        if kept == 0 and runs[slot, 3] > 0:
            free_block(arena, runs[slot, 0], runs[slot, 3], free)
            runs[slot, 3] = 0
