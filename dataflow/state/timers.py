"""Timers of keys: one for each key, due time and domain, fired in the order of their due times.

The due times of a domain are cut into ranges, and a ``SortedDict`` holds one object a range, by its lower end. A range
holds arrays of due times, sequence numbers and timers, and is split when it has some thousand entries: the number of
Python objects follows the number of ranges, not of keys. Cancelling leaves the entry of a timer in its range, without
effect, until half of the range is such entries.

A timer is also a row of a table like that of the keys (``dataflow.state.copy_on_write``): that makes it part of
snapshots. The timers of a slot are a linked list.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from dataflow.state.changes import Changes
from dataflow.state.copy_on_write import Readers, RecordRows
from dataflow.state.index import Slots, WideSlotIndex

__all__ = ["TimeDomain", "Timers"]

Numbers = npt.NDArray[np.int64]

_MOST = 4096
"""Entries of a range before it is split."""
_BLOCK = 1024
"""Entries that are looked at together."""
_LEAST = -(2**63)

SEQUENCE, SLOT, DUE, DOMAIN = 1, 2, 3, 4
"""The words of a timer's record, after its flags: the sign bit means that it is registered."""


class TimeDomain(Enum):
    """What a timer waits for: the watermark of event time, or the clock.

    >>> TimeDomain.EVENT.value
    'event'
    """

    EVENT = "event"
    CLOCK = "clock"


_NUMBERS = {TimeDomain.EVENT: 0, TimeDomain.CLOCK: 1}


class _Range:
    """The timers of a range of due times, in the order of registration until they are sorted."""

    __slots__ = ("_count", "_rows", "dead", "is_sorted", "most")

    def __init__(self, rows: Numbers) -> None:
        self._rows = rows  # due, sequence, timer
        self._count = len(rows)
        self.dead = 0
        self.is_sorted = False
        self.most = _MOST  # entries before it is split; more if all are due at one time

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Numbers:
        return self._rows[: self._count]

    def add(self, rows: Numbers) -> None:
        if self._count + len(rows) > len(self._rows):
            longer = np.empty((2 * (self._count + len(rows)), 3), np.int64)
            longer[: self._count] = self.rows
            self._rows = longer
        self._rows[self._count : self._count + len(rows)] = rows
        self._count += len(rows)
        self.is_sorted = False

    def sort(self) -> Numbers:
        """Sort by due time, then sequence, and return the rows."""
        if not self.is_sorted:
            rows = self.rows
            self._rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            self.is_sorted = True
        return self.rows

    def keep(self, rows: Numbers, dead: int = 0) -> None:
        """Hold ``rows`` alone, sorted already, of which ``dead`` have no effect."""
        self._rows, self._count, self.dead = rows, len(rows), dead


class Timers:
    """The timers of one operator's keys. Slots are those of the keys."""

    def __init__(self, readers: Readers) -> None:
        self._index = WideSlotIndex(3)
        self.records = RecordRows(np.zeros(5, np.int64))
        index = self._index
        self.changes = Changes(lambda timers: readers.defer(lambda: index.release(timers)))
        self._ranges: dict[TimeDomain, SortedDict[int, _Range]] = {domain: SortedDict() for domain in TimeDomain}
        self._sequence = 0
        self._heads: Slots = np.full(512, -1, np.int32)  # of each slot its last timer, -1: none
        self._links: Slots = np.empty((512, 2), np.int32)  # of each timer the one before and after it in its slot
        self.live = 0

    @property
    def count(self) -> int:
        """The number of timers' numbers ever used."""
        return len(self._index)

    def pending(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether each slot has timers."""
        known = slots < len(self._heads)
        return known & (self._heads[np.where(known, slots, 0)] >= 0)

    def set(self, slots: Slots, dues: Numbers, domain: TimeDomain) -> None:
        """Register a timer for each slot and due time, unless it is registered."""
        from dataflow.state.kernels.timers import link_timers

        timers = self._index.lookup(_keys(slots, dues, domain))
        rows = self._index.fresh
        if not len(rows):
            return
        new = timers[rows].copy()
        self._make_room(int(np.max(slots)))
        self.changes.note_new(new, len(self.records.rows))
        self._change(new)
        sequences = np.arange(self._sequence, self._sequence + len(new))
        self._sequence += len(new)
        records = self.records.rows
        records[new, SEQUENCE], records[new, SLOT] = sequences, slots[rows]
        records[new, DUE], records[new, DOMAIN] = dues[rows], _NUMBERS[domain]
        records[new, 0] = _LEAST
        link_timers(new, slots[rows], self._heads, self._links)
        self.live += len(new)
        self._enter(domain, np.stack([dues[rows], sequences, new.astype(np.int64)], axis=1))

    def cancel(self, slots: Slots, dues: Numbers, domain: TimeDomain) -> None:
        """Remove the timers with these slots and due times; those that are not registered are skipped."""
        found = self._index.find(_keys(slots, dues, domain))
        self._cancel(np.unique(found[found >= 0]))

    def cancel_all(self, slots: Slots) -> None:
        """Remove all timers of ``slots``, each once."""
        from dataflow.state.kernels.timers import count_linked, list_linked

        slots = slots[self.pending(slots)]
        if len(slots):
            timers = np.empty(count_linked(slots, self._heads, self._links), np.int32)
            list_linked(slots, self._heads, self._links, timers)
            self._cancel(timers)

    def due(self, upto: int, domain: TimeDomain, limit: int) -> tuple[Numbers, Slots]:
        """Remove and return the due times and slots of at most ``limit`` timers due at or before ``upto``, in order."""
        fired: list[Numbers] = []
        room, ranges = limit, self._ranges[domain]
        while ranges and room > 0 and ranges.peekitem(0)[0] <= upto:
            first, entries = ranges.peekitem(0)
            rows = entries.sort()
            stop = min(int(np.searchsorted(rows[:, 0], upto, side="right")), room + _BLOCK)
            alive = np.flatnonzero(self._is_alive(rows[:stop]))[:room]
            stop = stop if len(alive) < room else int(alive[-1]) + 1
            fired.append(rows[alive])
            room -= len(alive)
            del ranges[first]
            if stop < len(rows):
                entries.keep(rows[stop:], entries.dead - (stop - len(alive)))
                ranges[int(rows[stop, 0])] = entries
        chosen = np.concatenate([*fired, np.empty((0, 3), np.int64)])
        timers = chosen[:, 2].astype(np.int32)
        slots = self.records.rows[timers, SLOT].astype(np.int32)
        self._remove(timers)
        return chosen[:, 0].copy(), slots

    def next_due(self, domain: TimeDomain) -> int | None:
        """Return the earliest due time of a domain, or None if it has no timer."""
        ranges = self._ranges[domain]
        while ranges:
            first, entries = ranges.peekitem(0)
            rows = entries.sort()
            for start in range(0, len(rows), _BLOCK):
                alive = np.flatnonzero(self._is_alive(rows[start : start + _BLOCK]))
                if len(alive):
                    return int(rows[start + alive[0], 0])
            del ranges[first]
        return None

    def _is_alive(self, rows: Numbers) -> npt.NDArray[np.bool_]:
        records = self.records.rows
        alive: npt.NDArray[np.bool_] = (records[rows[:, 2], 0] < 0) & (records[rows[:, 2], SEQUENCE] == rows[:, 1])
        return alive

    def _cancel(self, timers: Slots) -> None:
        """Remove timers whose entries are still in their ranges."""
        records = self.records.rows[timers]
        self._remove(timers)
        for domain, number in _NUMBERS.items():
            dues = np.sort(records[records[:, DOMAIN] == number, DUE])
            if len(dues):
                self._bury(domain, dues)

    def _remove(self, timers: Slots) -> None:
        from dataflow.state.kernels.timers import unlink_timers

        if not len(timers):
            return
        self._change(timers)
        records = self.records.rows
        unlink_timers(timers, records[timers, SLOT].astype(np.int32), self._heads, self._links)
        records[timers, 0] = 0
        self.live -= len(timers)
        self._index.remove(timers)
        self.changes.remove(timers)

    def _bury(self, domain: TimeDomain, dues: Numbers) -> None:
        """Count the entries with these due times, in ascending order, as dead; drop those of half dead ranges."""
        ranges = self._ranges[domain]
        for first, start, stop in self._parts(ranges, dues):
            entries = ranges[first]
            entries.dead += stop - start
            if 2 * entries.dead > len(entries):
                rows = entries.sort()
                rows = rows[self._is_alive(rows)]
                del ranges[first]
                if len(rows):
                    entries.keep(rows)
                    ranges[min(first, int(rows[0, 0]))] = entries

    def _enter(self, domain: TimeDomain, rows: Numbers) -> None:
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        ranges = self._ranges[domain]
        if not ranges or int(rows[0, 0]) < ranges.peekitem(0)[0]:
            if not ranges:
                ranges[int(rows[0, 0])] = _Range(np.empty((0, 3), np.int64))
            else:
                first, entries = ranges.popitem(0)
                ranges[int(rows[0, 0])] = entries
        for first, start, stop in self._parts(ranges, rows[:, 0]):
            ranges[first].add(rows[start:stop])
            if len(ranges[first]) > ranges[first].most:
                self._split(ranges, first)

    def _split(self, ranges: SortedDict[int, _Range], first: int) -> None:
        """Split a range into pieces of about half the greatest size, not between equal due times."""
        rows = ranges[first].sort()
        rows = rows[self._is_alive(rows)]
        cuts = np.searchsorted(rows[:, 0], rows[_MOST // 2 : len(rows) : _MOST // 2, 0], side="left")
        del ranges[first]
        for i, piece in enumerate(np.split(rows, np.unique(cuts[cuts > 0]))):
            if len(piece):
                entries = _Range(piece.copy())
                entries.is_sorted = True
                entries.most = max(_MOST, 2 * len(piece))
                ranges[first if i == 0 else int(piece[0, 0])] = entries

    @staticmethod
    def _parts(ranges: SortedDict[int, _Range], dues: Numbers) -> Iterator[tuple[int, int, int]]:
        """Yield the lower end of each range that holds some of the ascending ``dues``, and where they begin and end."""
        start = 0
        while start < len(dues):
            place = ranges.bisect_right(int(dues[start])) - 1
            first = ranges.peekitem(place)[0]
            stop = len(dues)
            if place + 1 < len(ranges):
                stop = int(np.searchsorted(dues, ranges.peekitem(place + 1)[0], side="left"))
            yield first, start, stop
            start = stop

    def _change(self, timers: Slots) -> None:
        self.records.save(timers)
        self.changes.note(timers, len(self.records.rows))

    def _make_room(self, slot: int) -> None:
        self.records.grow(len(self._index))
        if slot >= len(self._heads):
            heads = np.full(2 * (slot + 1), -1, np.int32)
            heads[: len(self._heads)] = self._heads
            self._heads = heads
        if len(self._index) > len(self._links):
            links = np.empty((2 * len(self._index), 2), np.int32)
            links[: len(self._links)] = self._links
            self._links = links

    def validate(self) -> None:
        """Check that ranges, table and lists agree."""
        alive = np.flatnonzero(self.records.rows[: self.count, 0] < 0)
        assert len(alive) == self.live, f"{len(alive)} timers are registered, counted {self.live}"
        listed: list[int] = []
        for domain, ranges in self._ranges.items():
            firsts = list(ranges.keys())
            for i, (first, entries) in enumerate(ranges.items()):
                dues = entries.rows[:, 0]
                assert len(dues), f"the range from {first} is empty"
                assert dues.min() >= first, f"the range from {first} has a timer due at {dues.min()}"
                assert i + 1 == len(firsts) or dues.max() < firsts[i + 1], f"the range from {first} overlaps the next"
                held = self._is_alive(entries.rows)
                assert int(np.sum(~held)) == entries.dead, f"{np.sum(~held)} dead entries, counted {entries.dead}"
                timers = entries.rows[held, 2]
                assert (self.records.rows[timers, DOMAIN] == _NUMBERS[domain]).all(), f"the range from {first} is mixed"
                listed += timers.tolist()
        assert sorted(listed) == alive.tolist(), "the ranges do not list every timer once"
        linked = 0
        for head in self._heads[self._heads >= 0].tolist():
            while head >= 0:
                linked += 1
                head = int(self._links[head, 0])
        assert linked == self.live, f"the slots have {linked} timers, counted {self.live}"


def _keys(slots: Slots, dues: Numbers, domain: TimeDomain) -> Numbers:
    return np.stack([slots.astype(np.int64), dues, np.full(len(slots), _NUMBERS[domain], np.int64)])
