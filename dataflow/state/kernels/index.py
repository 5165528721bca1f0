"""Kernels of the slot index: key words to dense slots, by open addressing with linear probing.

One-word keys are stored in the table itself, beside their slot, so that a hit costs one cache line: ``table[p]`` is
``(key, slot + 1)``. Wider keys are stored in ``keys``, and the table has a tag, half their hash: ``table[p]`` is
``tag << 32 | slot + 1``. In both, a slot part of 0 marks a free entry. The preferred position of a wider key depends on
its tag alone, so entries are moved without a look at their keys.

``state`` is (slots ever used, slot of the null key or -1, entries of ``free``, entries of ``fresh``). A new key gets
the last slot of the stack ``free``, or else the next one that was never used; its row is listed in ``fresh``.

A key is removed by moving later entries of its run back, so that no run has a gap and no marker stays behind: the table
is as fast after a billion removals as after none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import (
    GOLDEN,
    READ_RECORDS,
    RI32,
    RI64,
    RU8,
    RU64,
    WI32,
    WI64,
    WU64,
    hash_word,
    prefetch,
    valid,
)

__all__ = [
    "lookup_rows",
    "lookup_words",
    "rehash_rows",
    "rehash_words",
    "remove_rows",
    "remove_words",
    "seek_beside",
    "seek_rows",
    "seek_words",
    "take_slot",
]

HIGH = 0xFFFFFFFF00000000
LOW = 0x00000000FFFFFFFF

AHEAD = 32
"""How many rows ahead a table entry is prefetched: a quarter faster with millions of keys, no slower with few."""

BLOCK = 1024
"""Rows that are looked up before the new keys among them are entered."""

WIDE_BLOCK = 256
"""Hashes of keys of several words that are computed together, while the memory they lead to is prefetched."""

PAIRS = types.int64[:, ::1]
BOOLS = types.Array(types.boolean, 1, "C", readonly=True)


@kernel(types.uint64(types.int64, types.uint64))
def preferred_position(key: Any, shift: Any) -> Any:
    """Return the preferred position of a key in a table of ``2**(64 - shift)`` entries (Fibonacci hashing)."""
    word = types.uint64(key)
    return ((word ^ (word >> types.uint64(32))) * types.uint64(GOLDEN)) >> shift


@kernel(types.int64(WI64, RI32, types.int64))
def take_slot(state: Any, free: Any, capacity: Any) -> Any:
    """Return a slot for a new key: a free one, or the next; -1 if all of ``capacity`` are in use."""
    if state[2] > 0:
        state[2] -= 1
        return types.int64(free[state[2]])
    if state[0] == capacity:
        return types.int64(-1)
    state[0] += 1
    return state[0] - 1


@kernel(types.int64(RI64, RU8, types.int64, READ_RECORDS, types.uint64, types.int64, WI32, WI32))
def seek_words(words: Any, bits: Any, offset: Any, table: Any, shift: Any, null: Any, slots: Any, missing: Any) -> Any:
    """Write the slot of each one-word key into ``slots``, or -1 if there is none; ``null`` is that of the null key.

    Rows without a slot are listed in ``missing``, which has room for all rows and one more. Returns their number.
    """
    mask = types.uint64(table.shape[0] - 1)
    count = 0
    for i in range(words.size):
        if i + AHEAD < words.size:
            prefetch(table, types.int64(preferred_position(words[i + AHEAD], shift)) * 2)
        if bits.size != 0 and not valid(bits, offset + i):
            slot = null
        else:
            place = preferred_position(words[i], shift)
            while table[place, 1] != 0 and table[place, 0] != words[i]:
                place = (place + types.uint64(1)) & mask
            slot = table[place, 1] - 1
        slots[i] = slot
        missing[count] = i
        count += types.int64(slot < 0)
    return count


@kernel(types.int64(RI64, RU8, types.int64, RI32, types.int64, PAIRS, types.uint64, WI64, WI64, RI32, WI32, WI32))
def enter_words(
    words: Any,
    bits: Any,
    offset: Any,
    missing: Any,
    base: Any,
    table: Any,
    shift: Any,
    keys: Any,
    state: Any,
    free: Any,
    slots: Any,
    fresh: Any,
) -> Any:
    """Enter the keys of the rows ``missing`` until ``keys`` is full; write their slots, and list new rows by number.

    Row 0 has the number ``base``. Returns the position of the first row without a slot, or the number of rows.
    """
    mask = types.uint64(table.shape[0] - 1)
    # in variables, not in memory, where each new key would wait for the one before
    used, unused, listed = state[0], state[2], state[3]
    done = missing.size
    for j in range(missing.size):
        if j + AHEAD < missing.size:
            prefetch(table, types.int64(preferred_position(words[types.uint64(missing[j + AHEAD])], shift)) * 2)
        i = types.uint64(missing[j])
        is_null = bits.size != 0 and not valid(bits, offset + types.int64(i))
        if is_null and state[1] >= 0:
            slots[i] = state[1]
            continue
        key = 0 if is_null else words[i]
        place = preferred_position(key, shift)
        while not is_null and table[place, 1] != 0 and table[place, 0] != key:
            place = (place + types.uint64(1)) & mask
        slot = 0 if is_null else table[place, 1]
        if slot == 0:
            if unused > 0:
                unused -= 1
                slot = types.int64(free[unused]) + 1
            elif used < keys.size:
                used += 1
                slot = used
            else:
                done = j
                break
            keys[slot - 1] = key
            if is_null:
                state[1] = slot - 1
            else:
                table[place, 0] = key
                table[place, 1] = slot
            fresh[listed] = base + types.int64(i)
            listed += 1
        slots[i] = slot - 1
    state[0], state[2], state[3] = used, unused, listed
    return done


@kernel(types.int64(RI64, RU8, types.int64, types.int64, PAIRS, types.uint64, WI64, WI64, RI32, WI32, WI32))
def lookup_words(
    words: Any,
    bits: Any,
    offset: Any,
    first: Any,
    table: Any,
    shift: Any,
    keys: Any,
    state: Any,
    free: Any,
    slots: Any,
    fresh: Any,
) -> Any:
    """Write the slot of each key from row ``first`` on, and enter new keys, until ``keys`` is full.

    A loop that only reads is faster, and most rows have known keys. So new keys are entered in a loop of their own,
    block by block: what it reads is still in the cache. While many keys are new, it gets all rows of a block.
    Returns the first row without a slot, or the number of rows.
    """
    every, missing = np.arange(BLOCK).astype(np.int32), np.empty(BLOCK + 1, np.int32)
    many_new = False
    for start in range(first, words.size, BLOCK):
        stop = min(start + BLOCK, words.size)
        some, found = words[start:stop], slots[start:stop]
        listed = state[3]
        if many_new:
            done = enter_words(
                some, bits, offset + start, every[: stop - start], start, table, shift, keys, state, free, found, fresh
            )
            if done < stop - start:
                return start + done
            many_new = 4 * (state[3] - listed) > stop - start
            continue
        count = seek_words(some, bits, offset + start, table, shift, state[1], found, missing)
        if count > 0:
            rows = missing[:count]
            done = enter_words(some, bits, offset + start, rows, start, table, shift, keys, state, free, found, fresh)
            if done < count:
                return start + types.int64(missing[done])
            many_new = 4 * (state[3] - listed) > stop - start
    return words.size


@kernel(types.int64(RI32, RI64, PAIRS, types.uint64, WI64))
def remove_words(slots: Any, keys: Any, table: Any, shift: Any, state: Any) -> Any:
    """Remove the keys of ``slots``, each once; return the number of slots whose key is not in the table."""
    missing = 0
    mask = types.uint64(table.shape[0] - 1)
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(table, types.int64(preferred_position(keys[slots[i + AHEAD]], shift)) * 2)
        slot = types.int64(slots[i])
        if slot == state[1]:
            state[1] = -1
            continue
        gap = preferred_position(keys[slot], shift)
        while table[gap, 1] != slot + 1 and table[gap, 1] != 0:
            gap = (gap + types.uint64(1)) & mask
        missing += table[gap, 1] == 0
        # Close the gap with a later entry of the run that may stand there: one whose preferred position is not after
        # the gap, seen from where the entry is. That leaves a new gap further on, which is closed in the same way. An
        # entry that was moved before its preferred position would not be found again, and its key get a second slot.
        place = (gap + types.uint64(1)) & mask
        while table[place, 1] != 0:
            home = preferred_position(table[place, 0], shift)
            if (place - home) & mask >= (place - gap) & mask:
                table[gap, 0] = table[place, 0]
                table[gap, 1] = table[place, 1]
                gap = place
            place = (place + types.uint64(1)) & mask
        table[gap, 1] = 0
    return missing


@kernel(
    types.void(RI64, types.int64, types.int64, types.Array(types.boolean, 1, "C", readonly=True), PAIRS, types.uint64)
)
def rehash_words(keys: Any, count: Any, null: Any, known: Any, table: Any, shift: Any) -> None:
    """Enter the first ``count`` keys that are ``known`` into an empty ``table``; an empty ``known`` means all."""
    mask = types.uint64(table.shape[0] - 1)
    for slot in range(count):
        if slot + AHEAD < count:
            prefetch(table, types.int64(preferred_position(keys[slot + AHEAD], shift)) * 2)
        if slot != null and (known.size == 0 or known[slot]):
            place = preferred_position(keys[slot], shift)
            while table[place, 1] != 0:
                place = (place + types.uint64(1)) & mask
            table[place, 0] = keys[slot]
            table[place, 1] = slot + 1


@kernel(types.uint64(READ_RECORDS, types.int64))
def hash_column(words: Any, i: Any) -> Any:
    """Return the hash of the key ``words[:, i]``."""
    hashed = types.uint64(0)
    for c in range(words.shape[0]):
        hashed = hash_word(hashed * types.uint64(GOLDEN) + types.uint64(words[c, i]))
    return hashed


@kernel(types.uint64(READ_RECORDS, types.int64))
def hash_row(keys: Any, slot: Any) -> Any:
    """Return the hash of the key ``keys[slot]``, which is that of the same words in a column."""
    hashed = types.uint64(0)
    for c in range(keys.shape[1]):
        hashed = hash_word(hashed * types.uint64(GOLDEN) + types.uint64(keys[slot, c]))
    return hashed


@kernel(types.boolean(READ_RECORDS, types.int64, READ_RECORDS, types.int64))
def is_same(words: Any, i: Any, keys: Any, slot: Any) -> Any:
    """Return whether the key ``words[:, i]`` is ``keys[slot]``."""
    same = True
    for c in range(words.shape[0]):
        same &= keys[slot, c] == words[c, i]
    return same


@kernel(types.boolean(READ_RECORDS, types.int64, types.int64, types.int64, types.int64))
def is_beside(keys: Any, slot: Any, column: Any, step: Any, other: Any) -> Any:
    """Return whether ``keys[other]`` is ``keys[slot]`` with ``step`` added to the word ``column``."""
    same = True
    for c in range(keys.shape[1]):
        same &= keys[other, c] == keys[slot, c] + (step if c == column else 0)
    return same


@kernel(types.uint64(types.uint64, types.uint64))
def home(entry: Any, mask: Any) -> Any:
    """Return the preferred position of a table entry, or of a hash: it depends on the tag alone."""
    return (entry >> types.uint64(32)) & mask


@kernel(types.void(RU64, types.int64, RU64, READ_RECORDS))
def prefetch_rows(hashes: Any, count: Any, table: Any, keys: Any) -> None:
    """Prefetch the keys that the first ``count`` of ``hashes`` may be of, after the table entries of the hashes."""
    mask = types.uint64(table.size - 1)
    for j in range(count):
        entry = table[home(hashes[j], mask)]
        if entry != 0 and (entry ^ hashes[j]) & types.uint64(HIGH) == 0:
            prefetch(keys, (types.int64(entry & types.uint64(LOW)) - 1) * keys.shape[1])


@kernel(types.void(READ_RECORDS, types.int64, types.int64, RU64, READ_RECORDS, WU64))
def hash_columns(words: Any, first: Any, stop: Any, table: Any, keys: Any, hashes: Any) -> None:
    """Write the hashes of the keys ``words[:, i]`` from row ``first`` to ``stop``, and prefetch what they lead to."""
    mask = types.uint64(table.size - 1)
    for i in range(first, stop):
        hashed = hash_column(words, i)
        hashes[i - first] = hashed
        prefetch(table, types.int64(home(hashed, mask)))
    prefetch_rows(hashes, stop - first, table, keys)


@kernel(types.void(READ_RECORDS, RU64, READ_RECORDS, WI32))
def seek_rows(words: Any, table: Any, keys: Any, slots: Any) -> None:
    """Write the slot of each key ``words[:, i]`` into ``slots``, or -1 if there is none."""
    mask = types.uint64(table.size - 1)
    hashes = np.empty(WIDE_BLOCK, np.uint64)
    for start in range(0, words.shape[1], WIDE_BLOCK):
        stop = min(start + WIDE_BLOCK, words.shape[1])
        hash_columns(words, start, stop, table, keys, hashes)
        for i in range(start, stop):
            hashed = hashes[i - start]
            place = home(hashed, mask)
            slots[i] = -1
            while table[place] != 0:
                if (table[place] ^ hashed) & types.uint64(HIGH) == 0:
                    slot = types.int64(table[place] & types.uint64(LOW)) - 1
                    if is_same(words, i, keys, slot):
                        slots[i] = slot
                        break
                place = (place + types.uint64(1)) & mask


@kernel(types.void(RI32, types.int64, RU64, READ_RECORDS, WI32, WI32))
def seek_beside(slots: Any, column: Any, table: Any, keys: Any, lower: Any, upper: Any) -> None:
    """Write the neighbours of ``slots``: the slot whose key has one less in word ``column``, and one more; or -1."""
    mask = types.uint64(table.size - 1)
    hashes = np.empty(WIDE_BLOCK, np.uint64)
    half = WIDE_BLOCK // 2
    for start in range(0, slots.size, half):
        stop = min(start + half, slots.size)
        for i in range(start, stop):
            slot = types.int64(slots[i])
            for side in range(2):
                hashed = types.uint64(0)
                for c in range(keys.shape[1]):
                    word = keys[slot, c] + (2 * side - 1 if c == column else 0)
                    hashed = hash_word(hashed * types.uint64(GOLDEN) + types.uint64(word))
                hashes[2 * (i - start) + side] = hashed
                prefetch(table, types.int64(home(hashed, mask)))
        prefetch_rows(hashes, 2 * (stop - start), table, keys)
        for i in range(start, stop):
            for side in range(2):
                hashed = hashes[2 * (i - start) + side]
                place = home(hashed, mask)
                found = types.int64(-1)
                while table[place] != 0:
                    if (table[place] ^ hashed) & types.uint64(HIGH) == 0:
                        other = types.int64(table[place] & types.uint64(LOW)) - 1
                        if is_beside(keys, types.int64(slots[i]), column, 2 * side - 1, other):
                            found = other
                            break
                    place = (place + types.uint64(1)) & mask
                if side == 0:
                    lower[i] = found
                else:
                    upper[i] = found


@kernel(types.int64(READ_RECORDS, types.int64, WU64, PAIRS, WI64, RI32, WI32, WI32))
def lookup_rows(words: Any, first: Any, table: Any, keys: Any, state: Any, free: Any, slots: Any, fresh: Any) -> Any:
    """Do the same as ``lookup_words`` for the keys ``words[:, i]`` of several words."""
    mask = types.uint64(table.size - 1)
    hashes = np.empty(WIDE_BLOCK, np.uint64)
    # in variables, not in memory, where each new key would wait for the one before
    used, unused, listed = state[0], state[2], state[3]
    done = types.int64(words.shape[1])
    for start in range(first, words.shape[1], WIDE_BLOCK):
        stop = min(start + WIDE_BLOCK, words.shape[1])
        hash_columns(words, start, stop, table, keys, hashes)
        for i in range(start, stop):
            hashed = hashes[i - start]
            place = home(hashed, mask)
            slot = types.int64(-1)
            while table[place] != 0:
                if (table[place] ^ hashed) & types.uint64(HIGH) == 0:
                    slot = types.int64(table[place] & types.uint64(LOW)) - 1
                    if is_same(words, i, keys, slot):
                        break
                    slot = types.int64(-1)
                place = (place + types.uint64(1)) & mask
            if slot < 0:
                if unused > 0:
                    unused -= 1
                    slot = types.int64(free[unused])
                elif used < keys.shape[0]:
                    slot = used
                    used += 1
                else:
                    done = i
                    break
                for c in range(words.shape[0]):
                    keys[slot, c] = words[c, i]
                table[place] = (hashed & types.uint64(HIGH)) | types.uint64(slot + 1)
                fresh[listed] = i
                listed += 1
            slots[i] = slot
        if done < words.shape[1]:
            break
    state[0], state[2], state[3] = used, unused, listed
    return done


@kernel(types.int64(RI32, READ_RECORDS, WU64))
def remove_rows(slots: Any, keys: Any, table: Any) -> Any:
    """Do the same as ``remove_words`` for keys of several words."""
    missing = 0
    mask = types.uint64(table.size - 1)
    places = np.empty(WIDE_BLOCK, np.uint64)
    for start in range(0, slots.size, WIDE_BLOCK):
        stop = min(start + WIDE_BLOCK, slots.size)
        for i in range(start, stop):
            if i + AHEAD < slots.size:
                prefetch(keys, types.int64(slots[i + AHEAD]) * keys.shape[1])
            places[i - start] = home(hash_row(keys, types.int64(slots[i])), mask)
            prefetch(table, types.int64(places[i - start]))
        for i in range(start, stop):
            gap = places[i - start]
            while table[gap] & types.uint64(LOW) != types.uint64(slots[i]) + types.uint64(1) and table[gap] != 0:
                gap = (gap + types.uint64(1)) & mask
            missing += table[gap] == 0
            place = (gap + types.uint64(1)) & mask
            while table[place] != 0:
                if (place - home(table[place], mask)) & mask >= (place - gap) & mask:
                    table[gap] = table[place]
                    gap = place
                place = (place + types.uint64(1)) & mask
            table[gap] = 0
    return missing


@kernel(types.void(RU64, WU64))
def rehash_rows(old: Any, table: Any) -> None:
    """Enter the entries of the table ``old`` into an empty ``table``."""
    mask = types.uint64(table.size - 1)
    for i in range(old.size):
        if old[i] != 0:
            place = home(old[i], mask)
            while table[place] != 0:
                place = (place + types.uint64(1)) & mask
            table[place] = old[i]
