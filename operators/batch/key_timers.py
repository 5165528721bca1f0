"""The timers of event time of one key in a batch, whose rows come one after the other."""

from __future__ import annotations

import heapq
from typing import Any

from dataflow.state.timers import TimeDomain

__all__ = ["KeyTimers", "TimerCalls"]


class TimerCalls:
    """What a call of a function did to timers, in order: whether it set one, and its due time.

    Those of the clock are ignored, because they do not fire in a batch.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[bool, int]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, slot: Any, due: int, domain: TimeDomain, *, sets: bool) -> None:
        """Take a timer that was set or cancelled."""
        if domain is TimeDomain.EVENT:
            self.waiting.append((sets, due))

    def undo(self, mark: int) -> None:
        """Drop what was done since there were ``mark`` timers."""
        del self.waiting[mark:]

    def take(self) -> list[tuple[bool, int]]:
        """Return what waits, and forget it."""
        taken, self.waiting = self.waiting, []
        return taken


class KeyTimers:
    """The timers of a key, and its time.

    Attributes:
        watermark: the time of the last row or timer; None: there was none.

    >>> timers = KeyTimers()
    >>> timers.change([(True, 9), (True, 5), (True, 5), (False, 9)])
    >>> timers.next_due, timers.pop(), timers.next_due
    (5, 5, None)
    """

    __slots__ = ("_deferred", "_heap", "_set", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._heap: list[int] = []  # may have due times that were cancelled
        self._set: set[int] = set()
        self._deferred: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._set or self._deferred)

    @property
    def next_due(self) -> int | None:
        """The earliest due time, of timers that are not deferred; None: there is none."""
        while self._heap and self._heap[0] not in self._set:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> int:
        """Remove the earliest timer and return its due time."""
        due = self.next_due
        assert due is not None, "there is no timer"
        heapq.heappop(self._heap)
        self._set.discard(due)
        return due

    def change(self, calls: list[tuple[bool, int]], *, deferred_upto: int | None = None) -> None:
        """Set and cancel timers; those that are due at ``deferred_upto`` or before wait until ``release``."""
        for sets, due in calls:
            if not sets:
                self._set.discard(due)
                self._deferred = [other for other in self._deferred if other != due]
            elif deferred_upto is not None and due <= deferred_upto:
                self._deferred.append(due)
            elif due not in self._set:
                self._set.add(due)
                heapq.heappush(self._heap, due)

    def release(self) -> None:
        """Set the timers that are deferred."""
        if self._deferred:
            deferred, self._deferred = self._deferred, []
            self.change([(True, due) for due in deferred])
