"""Merged records over a range of slices that slides: two stacks for each key.

A result of a window is the merge of the records of its slices. To merge all of them anew for each window would cost
``period / every`` merges a result. Instead the slices up to a *middle* are in front, those from it on at the back. The
back holds one record a key: the merge of all of its slices, extended when the range grows. The front holds, for each
key and slice, the merge of that slice and all later ones in front, so when the range leaves a slice behind, the record
of the key's next slice is already there. A result is one merge of two records. When the front is used up, all slices
of the range become the new front, merged from the last to the first. So each slice of a key is merged a constant number
of times in all (Tangwongsan, Hirzel, Schneider, Wu 2015, "General incremental sliding-window aggregation"; the two
stacks are an old trick for queues with a minimum).

A slice that changes after it was merged makes the records of its changed keys wrong. Their front is then made anew,
from all slices of the range (``note_changed``).

Invariant: for every key that is not noted as changed, merging ``front[heads[key]]`` (if any) and ``back[key]`` (if any)
gives the merge of its records in the slices ``_start`` to ``_stop`` - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from operators.aggregation.records import Records
from operators.windows.panes import Pane
from operators.windows.slice_range import SliceRange

__all__ = ["Slides"]

_NONE = -1


class Slides(SliceRange):
    """The merged records of the keys of panes in a range of slices; see ``SliceRange``."""

    @property
    def stop(self) -> int | None:
        return self._stop

    def reset(self) -> None:
        self._start: int = 0
        self._middle: int = 0
        self._stop: int | None = None
        self._changed: list[list[pa.Array]] = []
        self._scratch = self._new_records()
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty front and back."""
        self._begin_index()
        self._front, self._back = self._new_records(), self._new_records()
        self._entries = 0
        self._entry_keys = np.empty(0, np.int32)  # the key of each entry of the front
        self._next = np.empty(0, np.int32)  # the key's entry of a later slice
        self._heads = np.empty(0, np.int32)  # the entry of each key's first slice in front
        self._in_back = np.empty(0, np.bool_)
        self._of_slice: dict[int, list[range]] = {}  # the entries of each slice
        self._make_room()

    def note_changed(self, keys: list[pa.Array]) -> None:
        self._changed.append(keys)

    def move(self, first: int, stop: int) -> Slots:
        assert self._stop is None or (self._start <= first and self._stop <= stop), (
            f"the range {self._start} to {self._stop} cannot move back to {first} to {stop}"
        )
        if self._stop is None or first >= self._middle or self._many_changed():
            self._turn(first, stop)
        else:
            self._leave(first)
            for number in self._present(self._stop, stop):
                self._push(number)
            self._start, self._stop = first, stop
            self._mend()
        return np.flatnonzero((self._heads >= 0) | self._in_back).astype(np.int32)

    def read(self, slots: Slots) -> list[pa.Array]:
        scratch, count = self._scratch, len(slots)
        positions, heads = np.arange(count, dtype=np.int32), self._heads[slots]
        for records, present, places in (
            (self._front, heads >= 0, heads),
            (self._back, self._in_back[slots], slots),
        ):
            self._merge(scratch, positions[present], count, records, places[present], slots[present])
        columns = scratch.read(positions)
        scratch.clear()
        return columns

    # --- the range

    def _present(self, first: int, stop: int, *, reverse: bool = False) -> list[int]:
        """Return the slices ``first`` .. ``stop`` - 1 that have rows, in order."""
        numbers = self._panes.present(first, stop - 1)
        return numbers[::-1] if reverse else numbers

    def _turn(self, first: int, stop: int) -> None:
        """Make all slices of the range the front."""
        # From the last slice to the first: each entry of the front is its slice merged with the entry after it, so the
        # entry after it must be there. Records are merged in the order of time, because first, last and sums of floats
        # depend on it; _prepend merges the slice before what follows it.
        self._begin()
        self._changed = []
        for number in self._present(first, stop, reverse=True):
            pane, slots, keys = self._slice(number)
            self._prepend(number, keys, pane.records, slots)
        self._start, self._middle, self._stop = first, stop, stop

    def _push(self, number: int) -> None:
        """Add a slice to the back."""
        pane, slots, keys = self._slice(number)
        self._merge(self._back, keys, len(self._index), pane.records, slots, keys)
        self._in_back[keys] = True

    def _slice(self, number: int) -> tuple[Pane, Slots | range, Slots]:
        """Return the pane of a slice, the slots of its keys there, and their slots here."""
        pane = self._panes.holding(number)
        assert pane is not None, f"slice {number} has no pane"
        if self._only is None:
            slots = pane.of(number)
            return pane, slots, self._enter(pane.keys(slots)[0])
        slots = pane.find(self._only, number)
        keys = np.flatnonzero(slots >= 0).astype(np.int32)
        return pane, slots[keys], keys

    def _leave(self, first: int) -> None:
        """Leave the slices before ``first`` behind. They are all in front."""
        # In the order of time, because a key's head moves to the entry after it: if a later slice were left first, its
        # entries would lead no key yet, and the head of the earlier one would then move to an entry that has left.
        # A slice has several ranges of entries after _mend; only the entry that leads its key counts.
        for number in sorted(number for number in self._of_slice if number < first):
            for entries in self._of_slice.pop(number):
                keys = self._entry_keys[entries.start : entries.stop]
                leading = self._heads[keys] == np.arange(entries.start, entries.stop)
                self._heads[keys[leading]] = self._next[entries.start : entries.stop][leading]

    def _prepend(self, number: int, keys: Slots, records: Records, slots: Slots | range) -> None:
        """Put slice ``number`` before the front of ``keys``, each once; its records are at ``slots``."""
        start, stop = self._entries, self._entries + len(keys)
        entries, heads = np.arange(start, stop, dtype=np.int32), self._heads[keys]
        self._entry_keys = _longer(self._entry_keys, stop)
        self._next = _longer(self._next, stop)
        self._entry_keys[start:stop], self._next[start:stop] = keys, heads
        self._merge(self._front, entries, stop, records, slots, keys)
        later = heads >= 0
        self._merge(self._front, entries[later], stop, self._front, heads[later], keys[later])
        self._heads[keys] = entries
        self._entries = stop
        self._of_slice.setdefault(number, []).append(range(start, stop))

    # --- changes in slices of the range

    def _many_changed(self) -> bool:
        """Return whether so many keys changed that making everything anew is cheaper."""
        return sum([len(keys[0]) for keys in self._changed]) * 2 > len(self._index)

    def _mend(self) -> None:
        """Make the front of the changed keys anew, from all slices of the range."""
        if not self._changed:
            return
        assert self._stop is not None, "keys change in a range"
        changed = KeyIndex(self._key_schema)
        for columns in self._changed:
            changed.slots(columns)
        self._changed = []
        # The old entries of these keys stay in the front, without a head that leads to them, until the next turn. Open:
        # a few late rows before each of many windows add up to entries that are never read; nothing limits them but the
        # turn, which comes after as many windows as the range has slices.
        columns = changed.keys(range(len(changed)))
        keys = self._enter(columns)
        self._heads[keys] = _NONE
        self._back.reset(keys[self._in_back[keys]])
        self._in_back[keys] = False
        for number in self._present(self._start, self._stop, reverse=True):
            pane = self._panes.holding(number)
            assert pane is not None, f"slice {number} has no pane"
            slots = pane.find(columns, number)
            found = slots >= 0
            self._prepend(number, keys[found], pane.records, slots[found])

    # --- keys and records

    def _enter(self, columns: Sequence[pa.Array]) -> Slots:
        """Return the slot of each key, which gets one if it is new."""
        keys = self._index.slots(columns).copy()
        self._make_room()
        return keys

    def _make_room(self) -> None:
        """Make room for all keys of the index."""
        known = len(self._index)
        if known > len(self._heads):
            more = known - len(self._heads)
            self._heads = np.concatenate([self._heads, np.full(more, _NONE, np.int32)])
            self._in_back = np.concatenate([self._in_back, np.zeros(more, np.bool_)])


def _longer(array: npt.NDArray[np.int32], length: int) -> npt.NDArray[np.int32]:
    """Return ``array`` with room for ``length`` entries, twice as much if it grows."""
    if length <= len(array):
        return array
    grown = np.empty(2 * length, np.int32)
    grown[: len(array)] = array
    return grown
