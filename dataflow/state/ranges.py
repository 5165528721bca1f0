"""Numbered things in the order of their times: what is due first, and what has passed, without a sweep over all.

Times are cut into ranges, and a ``SortedDict`` holds one object a range, by its lower end. A range holds an array of
times, sequence numbers and numbers, and is split when it has some thousand entries: the number of Python objects
follows the number of ranges, not of entries. A time with more entries has a range of its own. What is removed leaves
its entry in its range, without effect, until half of the range is such entries.

>>> records = np.array([[-1, 0], [-1, 1]])  # two things that exist, with their sequence numbers
>>> ranges = TimeRanges()
>>> ranges.enter(np.array([[30, 0, 0], [20, 1, 1]]), records)
>>> ranges.first(records), ranges.take(25, 10, records).tolist(), ranges.first(records)
(20, [[20, 1, 1]], 30)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from dataflow.state.arrays import Numbers

__all__ = ["SEQUENCE", "SLOT", "TimeRanges"]


_MOST = 4096
"""Entries of a range before it is split."""
_BLOCK = 1024
"""Entries that are looked at together."""

SEQUENCE, SLOT = 1, 2
"""The words of a record with its sequence number and its key's slot. The sign bit of word 0 means that it exists."""


class _Range:
    """The entries of a range of times, in the order in which they came until they are sorted.

    A range of a single time is always sorted, so it may have any number of entries: none is ever moved.
    """

    __slots__ = ("_rows", "_start", "_stop", "dead", "is_sorted", "most", "single")

    def __init__(self, rows: Numbers) -> None:
        self._rows = rows  # time, sequence, number
        self._start, self._stop = 0, len(rows)
        self.dead = 0
        self.is_sorted = True
        self.most = _MOST  # entries before it is split
        self.single: int | None = None  # the only time, if all its entries and those to come have one

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def rows(self) -> Numbers:
        return self._rows[self._start : self._stop]

    def add(self, rows: Numbers) -> None:
        """Add ``rows``, at least one, which are sorted by time."""
        if self.is_sorted and len(self) and rows[0, 0] < self._rows[self._stop - 1, 0]:
            self.is_sorted = False
        if self._stop + len(rows) > len(self._rows):
            held = self.rows
            self._rows = np.empty((2 * (len(held) + len(rows)), 3), np.int64)
            self._rows[: len(held)] = held
            self._start, self._stop = 0, len(held)
        self._rows[self._stop : self._stop + len(rows)] = rows
        self._stop += len(rows)

    def sort(self) -> Numbers:
        """Sort by time, and return the rows; those of equal times stay in the order of their sequence numbers."""
        if not self.is_sorted:
            rows = self.rows
            self._rows = rows[np.argsort(rows[:, 0], kind="stable")]
            self._start, self._stop = 0, len(rows)
            self.is_sorted = True
        return self.rows

    def keep(self, rows: Numbers) -> None:
        """Hold ``rows`` alone, sorted already, which all have an effect."""
        self._rows, self._start, self._stop, self.dead = rows, 0, len(rows), 0

    def skip(self, count: int, dead: int) -> None:
        """Remove the first ``count`` rows, of which ``dead`` have no effect."""
        self._start += count
        self.dead -= dead


class TimeRanges:
    """The entries (time, sequence number, number) of one table of records, which is passed to each call.

    An entry has no effect any more when the record of its number does not exist, or has another sequence number. Of
    several calls, a later one may pass fewer records, of which the last one never exists.
    """

    def __init__(self) -> None:
        self._ranges: SortedDict[int, _Range] = SortedDict()

    def enter(self, rows: Numbers, records: Numbers) -> None:
        """Add entries; of equal times, in ascending order of the sequence numbers."""
        if not len(rows):
            return
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        ranges = self._ranges
        if not ranges:
            ranges[int(rows[0, 0])] = _Range(np.empty((0, 3), np.int64))
        elif int(rows[0, 0]) < ranges.peekitem(0)[0]:
            _, entries = ranges.popitem(0)
            ranges[int(rows[0, 0])] = entries
        for first, start, stop in self._parts(rows[:, 0]):
            self._add(first, rows[start:stop], records)

    def take(self, upto: int, limit: int, records: Numbers) -> Numbers:
        """Remove and return the first ``limit`` entries with a time of at most ``upto``, in order."""
        taken: list[Numbers] = []
        room, ranges = limit, self._ranges
        while ranges and room > 0 and ranges.peekitem(0)[0] <= upto:
            first, entries = ranges.peekitem(0)
            rows = entries.sort()
            stop = min(int(np.searchsorted(rows[:, 0], upto, side="right")), room + _BLOCK)
            alive = np.flatnonzero(_is_alive(rows[:stop], records))[:room]
            stop = stop if len(alive) < room else int(alive[-1]) + 1
            taken.append(rows[alive])
            room -= len(alive)
            del ranges[first]
            if stop < len(rows):
                entries.skip(stop, dead=stop - len(alive))
                ranges[int(rows[stop, 0])] = entries
        return np.concatenate([*taken, np.empty((0, 3), np.int64)])

    def between(self, low: int, high: int, records: Numbers) -> Numbers:
        """Return the entries with ``low <= time < high``, in order; they stay."""
        found, ranges = [np.empty((0, 3), np.int64)], self._ranges
        for place in range(max(ranges.bisect_right(low) - 1, 0), len(ranges)):
            first, entries = ranges.peekitem(place)
            if first >= high:
                break
            rows = entries.sort()
            start, stop = np.searchsorted(rows[:, 0], [low, high], side="left")
            rows = rows[start:stop]
            found.append(rows[_is_alive(rows, records)])
        return np.concatenate(found)

    def first(self, records: Numbers) -> int | None:
        """Return the earliest time, or None if there is no entry."""
        ranges = self._ranges
        while ranges:
            first, entries = ranges.peekitem(0)
            rows = entries.sort()
            for start in range(0, len(rows), _BLOCK):
                alive = np.flatnonzero(_is_alive(rows[start : start + _BLOCK], records))
                if len(alive):
                    place = start + int(alive[0])
                    entries.skip(place, dead=place)  # not to be looked at again
                    return int(rows[place, 0])
            del ranges[first]
        return None

    def bury(self, times: Numbers, records: Numbers) -> None:
        """Take note that entries with these times have no effect any more; drop them from ranges with most of them."""
        ranges = self._ranges
        for first, start, stop in self._parts(np.sort(times)):
            entries = ranges[first]
            entries.dead += stop - start
            if 2 * entries.dead > len(entries):
                rows = entries.sort()
                rows = rows[_is_alive(rows, records)]
                del ranges[first]
                if len(rows):
                    entries.keep(rows)
                    ranges[first] = entries

    def validate(self, records: Numbers) -> list[int]:
        """Check the ranges, and return the numbers of all entries with an effect."""
        listed: list[int] = []
        firsts = list(self._ranges.keys())
        for i, (first, entries) in enumerate(self._ranges.items()):
            times = entries.rows[:, 0]
            assert len(times), f"the range from {first} is empty"
            assert times.min() >= first, f"the range from {first} has the time {times.min()}"
            single = entries.single is None or (times == entries.single).all()
            assert single, f"a range of the time {entries.single} has times up to {times.max()}"
            assert not entries.is_sorted or (np.diff(times) >= 0).all(), f"the range from {first} is not sorted"
            assert i + 1 == len(firsts) or times.max() < firsts[i + 1], f"the range from {first} overlaps the next"
            held = _is_alive(entries.rows, records)
            assert int(np.sum(~held)) == entries.dead, f"{np.sum(~held)} dead entries, counted {entries.dead}"
            listed += entries.rows[held, 2].tolist()
        return listed

    def _add(self, first: int, rows: Numbers, records: Numbers) -> None:
        """Add ``rows``, at least one, sorted by time, to a range; beside it if it has many entries of another time."""
        ranges = self._ranges
        entries = ranges[first]
        if entries.single is not None and len(entries) <= _MOST // 2:
            entries.single, entries.most = None, _MOST
        if entries.single is not None:
            start, stop = [int(np.searchsorted(rows[:, 0], entries.single, side=side)) for side in ("left", "right")]
            if start:
                ranges[entries.single] = ranges.pop(first)
                ranges[first] = _Range(np.empty((0, 3), np.int64))
                self._add(first, rows[:start], records)
            if stop > start:
                entries.add(rows[start:stop])
            if stop < len(rows):
                after = int(rows[stop, 0])
                ranges[after] = _Range(np.empty((0, 3), np.int64))
                self._add(after, rows[stop:], records)
            return
        entries.add(rows)
        if len(entries) > entries.most:
            self._split(first, records)

    def _split(self, first: int, records: Numbers) -> None:
        """Split a range into pieces of about half the greatest size, and one for each time with more entries."""
        ranges = self._ranges
        rows = ranges[first].sort()
        rows = rows[_is_alive(rows, records)]
        times = rows[_MOST // 2 : len(rows) : _MOST // 2, 0]
        starts, stops = [np.searchsorted(rows[:, 0], times, side=side) for side in ("left", "right")]
        cuts = np.unique(np.concatenate([starts, stops[stops - starts > _MOST]]))
        del ranges[first]
        for i, piece in enumerate(np.split(rows, cuts[cuts > 0])):
            if len(piece):
                entries = _Range(piece.copy())
                entries.most = max(_MOST, 2 * len(piece))
                if len(piece) > _MOST and piece[0, 0] == piece[-1, 0]:
                    entries.single = int(piece[0, 0])
                ranges[first if i == 0 else int(piece[0, 0])] = entries

    def _parts(self, times: Numbers) -> Iterator[tuple[int, int, int]]:
        """Yield the lower end of each range that holds some of the ascending ``times``, and where they begin, end."""
        ranges = self._ranges
        start = 0
        while start < len(times):
            place = ranges.bisect_right(int(times[start])) - 1
            first = ranges.peekitem(place)[0]
            stop = len(times)
            if place + 1 < len(ranges):
                stop = int(np.searchsorted(times, ranges.peekitem(place + 1)[0], side="left"))
            yield first, start, stop
            start = stop


def _is_alive(rows: Numbers, records: Numbers) -> npt.NDArray[np.bool_]:
    numbers = np.minimum(rows[:, 2], len(records) - 1)  # there may be fewer records by now
    found = records[numbers]
    alive: npt.NDArray[np.bool_] = (found[:, 0] < 0) & (found[:, SEQUENCE] == rows[:, 1])
    return alive
