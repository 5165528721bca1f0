"""Kernels of frozen rows: save rows before they are overwritten, and put them back into a copy."""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RECORDS, RI32, RU8, WI32, WI64, prefetch

__all__ = ["copy_rows", "mark_rows", "put_back", "put_back_found", "save_rows"]

AHEAD = 16
"""How many rows ahead a record is prefetched; the fold that follows finds it in the cache."""

RO64 = types.Array(types.int64, 2, "C", readonly=True)


@kernel(
    types.int64(
        RO64, RI32, types.int64, types.int64, types.int64, RU8, types.uint8[::1], WI32, types.int64[:, ::1], WI64
    )
)
def save_rows(
    rows: Any,
    slots: Any,
    start: Any,
    low: Any,
    high: Any,
    chosen: Any,
    saved: Any,
    log_slots: Any,
    log_rows: Any,
    used: Any,
) -> Any:
    """Append ``rows[slot]`` to the log for each slot from ``low`` to ``high`` that is not marked in ``saved``; mark it.

    If ``chosen`` is not empty, slots that are not marked in it are left out.
    ``used`` is (entries of the log). Begins at ``slots[start]``. Returns the first position for which the log had no
    room, or the length.
    """
    entries = used[0]
    for i in range(start, slots.size):
        if i + AHEAD < slots.size:
            prefetch(rows, types.int64(slots[i + AHEAD]) * rows.shape[1])
        slot = types.int64(slots[i])
        if slot < low or slot >= high or (saved[slot >> 3] >> (slot & 7)) & 1:
            continue
        if chosen.size > 0 and (chosen[slot >> 3] >> (slot & 7)) & 1 == 0:
            continue
        if entries == log_slots.size:
            used[0] = entries
            return i
        saved[slot >> 3] |= types.uint8(1 << (slot & 7))
        log_slots[entries] = slot
        for word in range(rows.shape[1]):
            log_rows[entries, word] = rows[types.uint64(slot), word]
        entries += 1
    used[0] = entries
    return slots.size


@kernel(types.void(RI32, RO64, types.int64, types.int64[:, ::1]))
def put_back(log_slots: Any, log_rows: Any, first: Any, copy: Any) -> None:
    """Overwrite the rows of ``copy``, which begins at slot ``first``, with the logged ones."""
    for entry in range(log_slots.size):
        place = types.uint64(types.int64(log_slots[entry]) - first)
        if place < types.uint64(copy.shape[0]):
            for word in range(copy.shape[1]):
                copy[place, word] = log_rows[entry, word]


@kernel(types.void(RO64, RI32, RECORDS))
def copy_rows(rows: Any, slots: Any, out: Any) -> None:
    """Copy the row of each slot to ``out``."""
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(rows, types.int64(slots[i + AHEAD]) * rows.shape[1])
        for word in range(rows.shape[1]):
            out[i, word] = rows[types.uint64(slots[i]), word]


@kernel(types.void(RI32, RO64, RI32, RECORDS))
def put_back_found(log_slots: Any, log_rows: Any, slots: Any, copy: Any) -> None:
    """Overwrite the rows of ``copy``, which are those of the ascending ``slots``, with the logged ones."""
    for entry in range(log_slots.size):
        low, high = 0, slots.size
        while low < high:
            middle = (low + high) // 2
            if slots[middle] < log_slots[entry]:
                low = middle + 1
            else:
                high = middle
        if low < slots.size and slots[low] == log_slots[entry]:
            for word in range(copy.shape[1]):
                copy[low, word] = log_rows[entry, word]


@kernel(types.int64(RI32, types.uint8[::1]))
def mark_rows(slots: Any, marks: Any) -> Any:
    """Set the bit of each slot in ``marks``, and return how many were not set before."""
    count = 0
    for i in range(slots.size):
        slot = types.int64(slots[i])
        byte, bit = slot >> 3, slot & 7
        before = marks[byte]
        count += 1 - ((types.int64(before) >> bit) & 1)
        marks[byte] = before | types.uint8(1 << bit)
    return count
