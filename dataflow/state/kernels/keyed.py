"""Kernels of keyed state: which values are still visible, and when they were last written.

Word 0 of a record holds flags. Its sign bit means that the key has a value; bit 0 is set while the aggregate still has
to emit this key, so that its value may not expire yet. A value is visible at time t if t < stamp + ttl; stamps are
words of the record.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, WI32, prefetch

__all__ = ["find_expired", "reset_records", "set_live", "stamp_rows", "visible_rows"]

AHEAD = 16
SIGN = -(2**63)
LAST = 2**63 - 1
BOOLS = types.boolean[::1]


@kernel(types.boolean(types.int64, types.int64, types.int64))
def is_visible(time: Any, stamp: Any, ttl: Any) -> Any:
    """Return whether a value with ``stamp`` is visible at ``time``; with a negative ``ttl`` it always is."""
    return ttl < 0 or stamp > LAST - ttl or time < stamp + ttl


@kernel(types.int64(RECORDS, RI32, RI64, RI64, types.int64, types.int64, BOOLS, WI32))
def stamp_rows(records: Any, slots: Any, now: Any, stamps: Any, word: Any, ttl: Any, fresh: Any, expired: Any) -> Any:
    """Give the key of each row a value and a stamp, row by row: the greatest of ``stamps`` since it had no value.

    ``fresh`` is set for rows that found no visible value at their time in ``now``; slots whose value had expired are
    listed in ``expired``, perhaps more than once. ``now`` and ``stamps`` have an entry a row, or one for all. Without a
    ``ttl``, ``word`` is 0 and there are no stamps. Returns the entries of ``expired``.
    """
    count = 0
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(records, types.int64(slots[i + AHEAD]) * records.shape[1])
        slot = types.uint64(slots[i])
        flags = records[slot, 0]
        stamp = stamps[min(i, stamps.size - 1)]
        if flags < 0 and is_visible(now[min(i, now.size - 1)], records[slot, word], ttl):
            fresh[i] = False
            if word != 0 and stamp > records[slot, word]:
                records[slot, word] = stamp
            continue
        fresh[i] = True
        if flags < 0:
            expired[count] = slots[i]
            count += 1
        records[slot, 0] = flags | SIGN
        if word != 0:
            records[slot, word] = stamp
    return count


@kernel(types.void(READ_RECORDS, RI32, RI64, types.int64, types.int64, BOOLS))
def visible_rows(records: Any, slots: Any, now: Any, word: Any, ttl: Any, visible: Any) -> None:
    """Set ``visible`` for each row whose slot, if it has one, has a visible value."""
    for i in range(slots.size):
        visible[i] = False
        if slots[i] >= 0:
            slot = types.uint64(slots[i])
            time = now[min(i, now.size - 1)]
            visible[i] = records[slot, 0] < 0 and is_visible(time, records[slot, word], ttl)


@kernel(types.int64(READ_RECORDS, types.int64, types.int64, types.int64, types.int64, types.int64, WI32))
def find_expired(records: Any, start: Any, stop: Any, word: Any, ttl: Any, now: Any, found: Any) -> Any:
    """List the slots from ``start`` to ``stop`` whose value expired by ``now`` and is not held; return how many."""
    count = 0
    for slot in range(start, stop):
        flags = records[slot, 0]
        if flags < 0 and flags & 1 == 0 and not is_visible(now, records[slot, word], ttl):
            found[count] = slot
            count += 1
    return count


@kernel(types.void(RECORDS, RI32, RI32, BOOLS))
def set_live(records: Any, slots: Any, rows: Any, fresh: Any) -> None:
    """Give the slots of the new ``rows`` a value, and mark these rows in ``fresh``."""
    for j in range(rows.size):
        records[types.uint64(slots[rows[j]]), 0] |= SIGN
        fresh[rows[j]] = True


@kernel(types.void(RECORDS, RI32, RI64, types.int64, types.int64))
def reset_records(records: Any, slots: Any, template: Any, words: Any, kept: Any) -> None:
    """Reset the first ``words`` words of each record, but for the flags ``kept``."""
    for i in range(slots.size):
        slot = types.uint64(slots[i])
        flags = records[slot, 0] & kept
        for word in range(words):
            records[slot, word] = template[word]
        records[slot, 0] |= flags
