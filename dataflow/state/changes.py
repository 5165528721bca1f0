"""Which slots of keyed state changed since a checkpoint, so that the next one need not write the others.

Between two checkpoints is an *interval*: the slots that were written in it, those whose keys were removed, and those
that were emptied: their key stays, because it has timers, and its value is gone. A delta since checkpoint c has the
intervals after c. The intervals of a checkpoint that failed, or is still being written, stay and belong to the next
delta as well. The oldest of many intervals are merged: a delta since a checkpoint within a merged interval has all of
it, which says more than it must, and nothing that is wrong.

A removed slot keeps its key while a checkpoint may have to say that the key is gone. A key that came and went within
one interval is in no checkpoint, so nothing needs to be said of it.

>>> changes = Changes(free=lambda slots: print("free", slots.tolist()))
>>> changes.close(1, None, 4) is None  # nothing was recorded yet: the first checkpoint has everything
True
>>> changes.note(np.array([2, 2, 0], np.int32), 4)
>>> changes.durable(1)
>>> delta = changes.close(2, 1, 4)
>>> [slots.tolist() for slots in delta.slots()], delta.gone().tolist()
([[0, 2]], [])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataflow.state.copy_on_write import CHUNK, Bitmap, empty_bitmap
from dataflow.state.index import Slots

__all__ = ["Changes", "Delta"]

_NONE: Slots = np.empty(0, np.int32)
_SEVERAL = 8
"""Intervals that are kept apart; more checkpoints than that are hardly ever written at the same time."""
_FEW = 1 << 16
"""Removed slots that may always wait for a checkpoint."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The slots that changed in some intervals.

    Attributes:
        chosen: a bit for each slot that was written; not changed any more.
        removed: the slots whose keys were removed.
        emptied: bits of slots that lost their value while their key stayed; some may have a value again.
    """

    chosen: Bitmap
    removed: Sequence[Slots]
    emptied: Sequence[Bitmap] = ()

    def slots(self) -> Iterator[Slots]:
        """Yield the slots that were written, in ascending order, about ``CHUNK`` at a time; some may have no value."""
        found, count = [_NONE], 0
        for start in range(0, len(self.chosen), CHUNK // 8):
            block = self.chosen[start : start + CHUNK // 8]
            if block.any():
                bits = np.flatnonzero(np.unpackbits(block, bitorder="little"))
                found.append((bits + 8 * start).astype(np.int32))
                count += len(bits)
            if count > CHUNK // 2:
                yield np.concatenate(found)
                found, count = [_NONE], 0
        if count:
            yield np.concatenate(found)

    def gone(self) -> Slots:
        """Return the slots whose keys were removed, or lost their value, each once."""
        removed = np.concatenate([*self.removed, _NONE])
        emptied = [np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int32) for bits in self.emptied]
        return np.unique(np.concatenate([removed, *emptied])) if emptied else removed


class _Interval:
    """The changes from one checkpoint to the next."""

    def __init__(self, capacity: int) -> None:
        self.marks = empty_bitmap(capacity)
        self.new = empty_bitmap(capacity)
        self.emptied = empty_bitmap(0)  # few states have such slots
        self.removed: list[Slots] = []

    def note(self, slots: Slots, capacity: int) -> None:
        from dataflow.state.kernels.copy_on_write import mark_rows

        self._make_room(capacity)
        mark_rows(slots, self.marks)

    def note_new(self, slots: Slots, capacity: int) -> None:
        """Record that the keys of ``slots`` are in no earlier checkpoint."""
        from dataflow.state.kernels.copy_on_write import mark_rows

        self._make_room(capacity)
        mark_rows(slots, self.new)

    def note_emptied(self, slots: Slots, capacity: int) -> None:
        """Record that the keys of ``slots`` lost their values; nothing needs to be said of those that are new."""
        from dataflow.state.kernels.copy_on_write import mark_rows

        if capacity > 8 * len(self.emptied):
            self.emptied = _padded(self.emptied, capacity // 4)
        mark_rows(slots[~self.are_new(slots)], self.emptied)

    def shrink(self, capacity: int) -> None:
        """Forget the slots from ``capacity`` on, none of which has a key. Deltas that are read keep their bits."""
        self.marks, self.new = _first(self.marks, capacity), _first(self.new, capacity)
        self.emptied = _first(self.emptied, capacity)

    def merged(self, later: _Interval) -> _Interval:
        """Return this interval and the next as one; both may still be read. A key is new if it was so in this one."""
        one = _Interval(0)
        one.marks, one.emptied = _union(self.marks, later.marks), _union(self.emptied, later.emptied)
        one.removed = [np.concatenate([*self.removed, *later.removed, _NONE])]
        return one

    def are_new(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return which of the keys of ``slots`` are in no earlier checkpoint."""
        return (self.new[slots >> 3] >> (slots & 7)) & 1 == 1

    def _make_room(self, capacity: int) -> None:
        if capacity > 8 * len(self.marks):
            self.marks, self.new = _padded(self.marks, capacity // 4), _padded(self.new, capacity // 4)


class Changes:
    """The intervals since the last checkpoint that is known to be durable.

    ``free(slots)`` is called with removed slots that no later checkpoint mentions. Nothing is recorded before the first
    checkpoint or ``begin``, so state without checkpoints costs nothing.
    """

    def __init__(self, free: Callable[[Slots], None]) -> None:
        self._free = free
        self._current: _Interval | None = None
        self._closed: list[tuple[int, _Interval]] = []  # with the checkpoint that ended each
        self._horizon = 0  # the intervals are complete since this checkpoint
        self._last: int | None = None  # the last checkpoint of this state
        self.waiting = 0
        """Removed slots in all intervals: they cannot be used again before a checkpoint is durable."""

    @property
    def recording(self) -> bool:
        """Whether changes are recorded."""
        return self._current is not None

    def begin(self, capacity: int) -> None:
        """Record changes from now on: the state is that of a checkpoint."""
        self._current = _Interval(capacity)

    def note(self, slots: Slots, capacity: int) -> None:
        """Record that ``slots``, all below ``capacity``, are written."""
        if self._current is not None:
            self._current.note(slots, capacity)

    def note_new(self, slots: Slots, capacity: int) -> None:
        """Record that ``slots`` got new keys."""
        if self._current is not None:
            self._current.note_new(slots, capacity)

    def note_emptied(self, slots: Slots, capacity: int) -> None:
        """Record that ``slots``, which are written, lost their values, and that their keys stay."""
        if self._current is not None and len(slots):
            self._current.note_emptied(slots, capacity)

    def remove(self, slots: Slots) -> None:
        """Record that the keys of ``slots`` were removed."""
        if self._current is None:
            self._free(slots)
            return
        new = self._current.are_new(slots)
        known = slots[~new]
        if new.any():
            bits = np.left_shift(1, slots[new] & 7).astype(np.uint8)
            np.bitwise_and.at(self._current.new, slots[new] >> 3, ~bits)
            self._free(slots[new])
        if len(known):
            self._current.removed.append(known)
            self.waiting += len(known)

    def close(self, checkpoint: int, since: int | None, capacity: int) -> Delta | None:
        """End the interval with ``checkpoint``; return the changes since checkpoint ``since``, or None for all.

        Raises: ValueError unless ``checkpoint`` is above those before, and ``since`` one of them or restored.
        """
        if self._last is not None and checkpoint <= self._last:
            raise ValueError(f"checkpoint {checkpoint} comes after checkpoint {self._last}: expected a higher number")
        last = checkpoint - 1 if self._last is None else self._last
        if since is not None and since > last:
            raise ValueError(f"checkpoint {checkpoint} cannot begin at checkpoint {since}, the last one was {last}")
        self._last = checkpoint
        complete = self._current is not None and since is not None and since >= self._horizon
        if self._current is not None:
            self._closed.append((checkpoint, self._current))
            self._merge_oldest()
        else:
            self._horizon = checkpoint
        self._current = _Interval(capacity)
        if not complete or since is None:
            return None
        intervals = [interval for ended, interval in self._closed if ended > since]
        largest = max(intervals, key=lambda interval: len(interval.marks)).marks
        if len(intervals) == 1 and len(largest) >= -(-capacity // 8):
            chosen = largest  # the interval is closed
        else:
            chosen = _padded(largest, max(len(largest), -(-capacity // 8)))
            for interval in intervals:
                chosen[: len(interval.marks)] |= interval.marks
        removed = [slots for interval in intervals for slots in interval.removed]
        return Delta(chosen, removed, [interval.emptied for interval in intervals if len(interval.emptied)])

    def _merge_oldest(self) -> None:
        """Merge the two oldest intervals if there are too many: those of checkpoints that failed pile up."""
        if len(self._closed) > _SEVERAL:
            (_, older), (ended, newer) = self._closed[:2]
            self._closed[:2] = [(ended, older.merged(newer))]

    def durable(self, checkpoint: int) -> None:
        """Forget what ``checkpoint`` and those before it hold."""
        self._horizon = max(self._horizon, checkpoint)
        done = [interval for ended, interval in self._closed if ended <= checkpoint]
        self._closed = [(ended, interval) for ended, interval in self._closed if ended > checkpoint]
        for interval in done:
            self._release(interval)

    def shrink(self, capacity: int) -> None:
        """Forget the slots from ``capacity`` on: they are free, so no later checkpoint mentions them."""
        for interval in self._intervals():
            interval.shrink(capacity)

    def bound(self, live: int) -> None:
        """Give up if more removed slots wait for a checkpoint than there are ``live`` ones."""
        if self.waiting > max(live, _FEW):
            self.give_up()

    def give_up(self) -> None:
        """Forget all intervals, to free the removed slots: the next checkpoint has everything."""
        intervals = self._intervals()
        self._closed, self._current = [], None
        for interval in intervals:
            self._release(interval)

    def validate(self, count: int) -> None:
        """Check that only slots below ``count`` are recorded: a delta reads the records of all of them."""
        for interval in self._intervals():
            for bits in (interval.marks, interval.new, interval.emptied):
                slots = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
                assert not len(slots) or slots[-1] < count, f"slot {slots[-1]} is recorded, there are {count}"
            removed = np.concatenate([*interval.removed, _NONE])
            assert not len(removed) or removed.max() < count, f"slot {removed.max()} is removed, there are {count}"

    def _intervals(self) -> list[_Interval]:
        current = [] if self._current is None else [self._current]
        return [*[interval for _, interval in self._closed], *current]

    def _release(self, interval: _Interval) -> None:
        for slots in interval.removed:
            self.waiting -= len(slots)
            self._free(slots)


def _union(bits: Bitmap, more: Bitmap) -> Bitmap:
    union = _padded(bits, max(len(bits), len(more)))
    union[: len(more)] |= more
    return union


def _first(bits: Bitmap, slots: int) -> Bitmap:
    """Return a copy of the bits of the first ``slots`` slots."""
    first = bits[: -(-slots // 8)].copy()
    if slots % 8 and len(first) == -(-slots // 8):
        first[-1] &= (1 << slots % 8) - 1
    return first


def _padded(bits: Bitmap, size: int) -> Bitmap:
    longer = empty_bitmap(8 * size)
    longer[: len(bits)] = bits
    return longer
