"""Keys to dense slots: a hash table that returns positions in the columns of keyed state.

A key is deleted in two steps. ``remove`` takes it out of the table: it is not found any more, and its words stay, for
readers of a snapshot. ``release`` makes its slot free for another key.

>>> index = SlotIndex()
>>> index.lookup(np.array([700, -1, 700])).tolist(), index.fresh.tolist()
([0, 1, 0], [0, 1])
>>> index.words.tolist()
[[700], [-1]]
>>> index.remove(np.array([0], np.int32))
>>> index.release(np.array([0], np.int32))
>>> index.find(np.array([700, -1])).tolist(), index.lookup(np.array([5])).tolist()
([-1, 1], [0])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import Bits
from dataflow.state.free_numbers import FreeNumbers

__all__ = ["MAX_SLOTS", "SlotIndex", "Slots", "WideSlotIndex"]

Slots = npt.NDArray[np.int32]

MAX_SLOTS = 2**31 - 1
"""Slots are int32, which halves the memory traffic; a subtask has no memory for 2 billion keys anyway."""

_NOT_NULL: Bits = (np.empty(0, np.uint8), 0)
_FIRST = 512


class _Index(ABC):
    """Common base of both indexes: the state array, the free slots and the scratch memory.

    Invariant: there is room for ``capacity`` slots, and the table has twice as many entries, so it is at most half
    full and every probe ends.
    """

    def __init__(self, capacity: int) -> None:
        assert capacity.bit_count() == 1, f"the capacity is a power of two, got {capacity}"
        self._state = np.array([0, -1, 0, 0], np.int64)  # see the kernels
        self._free = FreeNumbers(self._state)
        self._removed = 0  # slots that were removed and are not free yet
        self._scratch: Slots = np.empty(0, np.int32)
        self._fresh: Slots = np.empty(0, np.int32)

    def __len__(self) -> int:
        """Return the number of slots that were ever used and still exist; some may have been removed since."""
        return self._free.used

    @property
    def fresh(self) -> Slots:
        """The rows of the last lookup whose key was new, in order; valid until the next lookup."""
        return self._fresh[: self._state[3]]

    @property
    def free(self) -> int:
        """The number of slots that were released and not used again."""
        return len(self._free)

    def release(self, slots: Slots) -> None:
        """Let new keys have ``slots``, whose keys were removed."""
        self._free.release(slots)
        self._removed -= len(slots)

    def shrink(self, live: int) -> bool:
        """Give memory back if ``live`` of many slots have keys; return whether the highest ones do not exist any more.

        Call it while no caller keeps a free slot. Readers keep what they have of the index.
        """
        if not self._free.is_worth_sorting(live) or not self._free.sort(live):
            return False
        self._rebuild(max(_FIRST, _capacity(len(self))))
        return True

    def _grow(self, capacity: int) -> None:
        """Make room for twice as many slots as ``capacity``, or four times as many while there are few."""
        self._rebuild(_checked(capacity * (4 if capacity < 2**17 else 2)))

    @abstractmethod
    def _rebuild(self, capacity: int) -> None:
        """Continue with room for ``capacity`` slots, in other arrays."""

    def _begin(self, rows: int) -> Slots:
        """Return scratch memory for the slots of ``rows`` rows, none of them new yet."""
        self._free.prepare(rows)
        if len(self._scratch) < rows:
            self._scratch = np.empty(max(rows, 2 * len(self._scratch)), np.int32)
            self._fresh = np.empty(len(self._scratch), np.int32)
        self._state[3] = 0
        return self._scratch[:rows]


class SlotIndex(_Index):
    """An index of one-word keys. The null key, if rows are marked null, has a slot like any other."""

    def __init__(self, capacity: int = _FIRST) -> None:
        """``capacity`` is the initial room, in keys; a power of two."""
        super().__init__(capacity)
        self._keys = np.empty(capacity, np.int64)
        self._table, self._shift = _empty_table(capacity)

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """The keys in the order of their slots, one row a slot: a view, valid until the next lookup."""
        return self._keys[: len(self), None]

    @property
    def null_slot(self) -> int | None:
        """The slot of the null key, or None if there is none."""
        slot = int(self._state[1])
        return None if slot < 0 else slot

    def lookup(self, words: npt.NDArray[np.int64], bits: Bits = _NOT_NULL) -> Slots:
        """Return the slot of each key; new keys get a slot. ``bits`` marks the rows that are not null.

        The result is scratch memory, valid until the next lookup.
        """
        from dataflow.state.kernels.index import lookup_words

        slots, row = self._begin(len(words)), 0
        while True:
            table = (self._table, self._shift, self._keys, self._state, self._free.stack)
            row = lookup_words(words, *bits, row, *table, slots, self._fresh)
            if row == len(words):
                return slots
            self._grow(len(self._keys))

    def find(self, words: npt.NDArray[np.int64], bits: Bits = _NOT_NULL) -> Slots:
        """Return the slot of each key, or -1 if it has none."""
        from dataflow.state.kernels.index import seek_words

        slots, missing = np.empty(len(words), np.int32), np.empty(len(words) + 1, np.int32)
        seek_words(words, *bits, self._table, self._shift, self._state[1], slots, missing)
        return slots

    def remove(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, each once; their words stay until the slots are released and used again."""
        from dataflow.state.kernels.index import remove_words

        self._removed += len(slots)
        missing = remove_words(slots, self._keys, self._table, self._shift, self._state)
        assert not missing, f"{missing} of {len(slots)} slots have no key to remove"

    def reserve(self, keys: int) -> None:
        """Make room for ``keys`` keys at once. The index has had none."""
        if keys > len(self._keys):
            self._keys = np.empty(_capacity(keys), np.int64)
            self._table, self._shift = _empty_table(len(self._keys))

    def _rebuild(self, capacity: int) -> None:
        from dataflow.state.kernels.index import rehash_words

        count, known = len(self), np.empty(0, np.bool_)
        if self._removed or len(self._free):
            slots = self._table[:, 1]
            known = np.zeros(count, np.bool_)
            known[slots[slots > 0] - 1] = True
        self._keys = _resized(self._keys, count, capacity)
        self._table, self._shift = _empty_table(capacity)
        rehash_words(self._keys, count, self._state[1], known, self._table, self._shift)


class WideSlotIndex(_Index):
    """An index of keys of ``width`` words each."""

    def __init__(self, width: int, capacity: int = _FIRST) -> None:
        super().__init__(capacity)
        self._keys = np.empty((capacity, width), np.int64)
        self._table = np.zeros(2 * capacity, np.uint64)

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """The keys in the order of their slots, one row a slot: a view, valid until the next lookup."""
        return self._keys[: len(self)]

    def lookup(self, words: npt.NDArray[np.int64]) -> Slots:
        """Return the slot of each key ``words[:, i]``, as ``SlotIndex.lookup`` does."""
        from dataflow.state.kernels.index import lookup_rows

        slots, row = self._begin(words.shape[1]), 0
        while True:
            table = (self._table, self._keys, self._state, self._free.stack)
            row = lookup_rows(words, row, *table, slots, self._fresh)
            if row == words.shape[1]:
                return slots
            self._grow(len(self._keys))

    def find(self, words: npt.NDArray[np.int64]) -> Slots:
        """Return the slot of each key ``words[:, i]``, or -1 if it has none."""
        from dataflow.state.kernels.index import seek_rows

        slots = np.empty(words.shape[1], np.int32)
        seek_rows(words, self._table, self._keys, slots)
        return slots

    def beside(self, slots: Slots, column: int) -> tuple[Slots, Slots]:
        """Return the neighbours of ``slots``: the slot whose key has one less in word ``column``, and one more; or -1.

        >>> index = WideSlotIndex(2)
        >>> slots = index.lookup(np.array([[7, 7, 8], [1, 2, 3]])).copy()
        >>> [found.tolist() for found in index.beside(slots, 1)]
        [[-1, 0, -1], [1, -1, -1]]
        """
        from dataflow.state.kernels.index import seek_beside

        lower, upper = np.empty(len(slots), np.int32), np.empty(len(slots), np.int32)
        seek_beside(slots, column, self._table, self._keys, lower, upper)
        return lower, upper

    def remove(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, as ``SlotIndex.remove`` does."""
        from dataflow.state.kernels.index import remove_rows

        self._removed += len(slots)
        missing = remove_rows(slots, self._keys, self._table)
        assert not missing, f"{missing} of {len(slots)} slots have no key to remove"

    def reserve(self, keys: int) -> None:
        """Make room for ``keys`` keys at once. The index has had none."""
        if keys > len(self._keys):
            self._keys = np.empty((_capacity(keys), self._keys.shape[1]), np.int64)
            self._table = np.zeros(2 * len(self._keys), np.uint64)

    def _rebuild(self, capacity: int) -> None:
        from dataflow.state.kernels.index import rehash_rows

        old = self._table
        self._keys = _resized(self._keys, len(self), capacity)
        self._table = np.zeros(2 * capacity, np.uint64)
        rehash_rows(old, self._table)


def _capacity(keys: int) -> int:
    """Return the least power of two that is at least ``keys``."""
    return _checked(1 << max(keys - 1, 0).bit_length())


def _checked(capacity: int) -> int:
    assert capacity <= MAX_SLOTS, f"a subtask has at most {MAX_SLOTS} keys"
    return capacity


def _empty_table(capacity: int) -> tuple[npt.NDArray[np.int64], np.uint64]:
    entries = 2 * capacity
    return np.zeros((entries, 2), np.int64), np.uint64(64 - (entries.bit_length() - 1))


def _resized(keys: npt.NDArray[Any], count: int, capacity: int) -> npt.NDArray[Any]:
    """Return a copy of the first ``count`` of ``keys`` with room for ``capacity``."""
    resized = np.empty((capacity, *keys.shape[1:]), keys.dtype)
    resized[:count] = keys[:count]
    return resized
