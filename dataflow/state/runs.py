"""The rows of each slot in the order of their times: for each slot a run of entries in one arena.

A row that is no earlier than the last one of its slot is appended. The others of a batch are merged together, so what a
batch costs follows the rows after the earliest of them, also if one slot has all rows.

>>> runs = Runs()
>>> runs.add(np.array([0, 1, 0], np.int32), np.array([5, 5, 3]), np.array([10, 11, 12], np.int32))
>>> offsets, numbers = runs.between(np.array([0, 1], np.int32), np.array([3]), np.array([6]))
>>> offsets.tolist(), numbers.tolist()
([0, 2, 3], [12, 10, 11])
"""

from __future__ import annotations

import numpy as np

from dataflow.state.arrays import Numbers
from dataflow.state.copy_on_write import Rows
from dataflow.state.index import Slots

__all__ = ["Runs"]


_FEW = 512
_SIZES = 40
"""Exponents of the sizes of blocks."""


class Runs:
    """The entries (time, number) of all slots."""

    def __init__(self) -> None:
        self._runs: Rows = np.zeros((_FEW, 4), np.int64)
        self._arena: Rows = np.empty((_FEW, 2), np.int64)
        self._free: Numbers = np.full(_SIZES, -1, np.int64)
        self._state: Numbers = np.zeros(2, np.int64)

    def counts(self, slots: Slots) -> Numbers:
        """Return the number of entries of each slot; -1 has none."""
        known = (slots >= 0) & (slots < len(self._runs))
        return np.where(known, self._runs[np.where(known, slots, 0), 2], 0)

    def add(self, slots: Slots, times: Numbers, numbers: Slots) -> None:
        """Add an entry for each row; it comes after the entries of its slot with the same time."""
        from dataflow.state.kernels.runs import add_entries, merge_entries

        if not len(slots):
            return
        self._make_slots(int(slots.max()) + 1)
        self._state[1] = 0
        late = np.empty(len(slots), np.int32)
        done, more = 0, 2 * len(slots)
        while done < len(slots):
            done = add_entries(slots, times, numbers, done, self._runs, self._arena, self._state, self._free, late)
            more = self._make_room(more, needed=done < len(slots))
        late = late[: self._state[1]]
        late = late[np.lexsort((times[late], slots[late]))]
        slots, times, numbers, done = slots[late], times[late], numbers[late], 0
        while done < len(slots):
            done = merge_entries(slots, times, numbers, done, self._runs, self._arena, self._state, self._free)
            more = self._make_room(more, needed=done < len(slots))

    def between(self, slots: Slots, low: Numbers, high: Numbers) -> tuple[Numbers, Slots]:
        """Return the numbers of each slot's entries with ``low <= time < high``, in order, and their offsets."""
        from dataflow.state.kernels.runs import list_entries

        firsts, offsets = self._found(slots, low, high)
        numbers = np.empty(int(offsets[-1]), np.int32)
        list_entries(firsts, offsets, self._arena, numbers)
        return offsets, numbers

    def count_between(self, slots: Slots, low: Numbers, high: Numbers) -> Numbers:
        """Return the number of each slot's entries with ``low <= time < high``."""
        return np.diff(self._found(slots, low, high)[1])

    def _found(self, slots: Slots, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
        """Return the place of each slot's first entry with such a time, and the offsets of their numbers."""
        from dataflow.state.kernels.runs import find_between

        firsts, offsets = np.empty(len(slots), np.int64), np.empty(len(slots) + 1, np.int64)
        find_between(slots, low, high, self._runs, self._arena, firsts, offsets)
        return firsts, offsets

    def first(self, slots: Slots, times: Numbers) -> Slots:
        """Return the number of each slot's first entry with a time of at least ``times``, or -1.

        It is fastest if rows of one slot are adjacent and their times ascend.
        """
        from dataflow.state.kernels.runs import find_first

        numbers = np.empty(len(slots), np.int32)
        find_first(slots, times, self._runs, self._arena, numbers)
        return numbers

    def last(self, slots: Slots, times: Numbers) -> Slots:
        """Return the number of each slot's last entry with a time before ``times``, or -1."""
        from dataflow.state.kernels.runs import find_last

        numbers = np.empty(len(slots), np.int32)
        find_last(slots, times, self._runs, self._arena, numbers)
        return numbers

    def take_first(self, slots: Slots, counts: Numbers) -> Slots:
        """Remove the first entries of ``slots``, each once, which have so many; return their numbers."""
        return self._take(slots, counts, int(counts.sum()))

    def take_before(self, slots: Slots, time: int) -> Slots:
        """Remove the entries of ``slots``, each once, with a time before ``time``; return their numbers."""
        from dataflow.state.kernels.runs import count_before

        slots = slots[slots < len(self._runs)]
        counts = np.empty(len(slots), np.int64)
        total = count_before(slots, time, self._runs, self._arena, counts)
        return self._take(slots, counts, total)

    def take_all(self, slots: Slots) -> Slots:
        """Remove all entries of ``slots``, each once; return their numbers."""
        slots = slots[slots < len(self._runs)]
        counts = self._runs[slots, 2]
        return self._take(slots, counts, int(counts.sum()))

    def find(self, slots: Slots, times: Numbers, sequences: Numbers, records: Rows, word: int) -> Slots:
        """Return the number of each entry with this time whose record has this sequence number in ``word``; or -1."""
        from dataflow.state.kernels.runs import find_entries

        numbers = np.empty(len(slots), np.int32)
        find_entries(slots, times, sequences, self._runs, self._arena, records, word, numbers)
        return numbers

    def sweep(self, slots: Slots, records: Rows) -> None:
        """Remove the entries of ``slots``, each once, whose record does not exist any more."""
        from dataflow.state.kernels.runs import sweep_runs

        sweep_runs(slots, self._runs, self._arena, records, self._free)

    def shrink(self, slots: int | None) -> None:
        """Give memory back; slots from ``slots`` on have no entries any more (None: all slots may have some)."""
        if slots is not None:
            self._runs = self._runs[: max(_FEW, slots)].copy()
        self._make_room(0, needed=True)

    def validate(self) -> Slots:
        """Check that blocks do not overlap and times ascend; return the numbers of all entries."""
        held = np.zeros(len(self._arena), np.int64)
        numbers: list[int] = []
        for block, first, count, size in self._runs[self._runs[:, 3] > 0].tolist():
            assert block <= first, f"a run begins at {first}, before its block at {block}"
            assert first + count <= block + size, f"a run ends at {first + count}, its block at {block + size}"
            assert count, f"the block at {block} belongs to a run without entries"
            held[block : block + size] += 1
            assert (np.diff(self._arena[first : first + count, 0]) >= 0).all(), "times are out of order"
            numbers += self._arena[first : first + count, 1].tolist()
        for exponent, place in enumerate(self._free.tolist()):
            while place >= 0:
                held[place : place + (1 << exponent)] += 1
                place = int(self._arena[place, 0])
        used = int(self._state[0])
        assert (held[:used] == 1).all(), "a block is lost or has two owners"
        assert not held[used:].any(), "a block is outside of the used part"
        assert not self._runs[self._runs[:, 3] == 0, 2].any(), "a run has entries without a block"
        return np.array(numbers, np.int32)

    def _take(self, slots: Slots, counts: Numbers, total: int) -> Slots:
        from dataflow.state.kernels.runs import take_first

        numbers = np.empty(total, np.int32)
        take_first(slots, counts, self._runs, self._arena, self._free, numbers)
        return numbers

    def _make_slots(self, slots: int) -> None:
        if slots > len(self._runs):
            runs = np.zeros((2 * slots, 4), np.int64)
            runs[: len(self._runs)] = self._runs
            self._runs = runs

    def _make_room(self, more: int, *, needed: bool) -> int:
        """Copy the runs to an arena with room for ``more`` entries, if ``needed``; return how many to ask for next."""
        from dataflow.state.kernels.runs import least_room, rebuild_runs

        if not needed:
            return more
        least = least_room(self._runs)
        arena = np.empty((least + max(least, more, _FEW), 2), np.int64)
        rebuild_runs(self._runs, self._arena, arena, self._state, self._free)
        self._arena = arena
        return 2 * more
