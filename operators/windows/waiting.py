"""Windows that wait for the clock: which of them have waited long enough since their first row that was not shown."""

from __future__ import annotations

from collections import deque

import numpy as np

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots

__all__ = ["Waiting"]

_NOT = -1


class Waiting:
    """Slots that wait ``length`` microseconds each, in the order in which they began.

    >>> waiting = Waiting(10)
    >>> waiting.begin(np.array([0, 1], np.int32), np.array([5, 5]))
    >>> waiting.end(np.array([1], np.int32))
    >>> waiting.due, waiting.over(15).tolist(), waiting.due
    (15, [0], None)
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._queue: deque[tuple[int, Slots]] = deque()
        self._since = np.empty(0, np.int64)  # by slot: when it began; -1: it does not wait

    @property
    def due(self) -> int | None:
        """The time at which the first slots have waited long enough; None: there are none."""
        return self._queue[0][0] + self.length if self._queue else None

    def begin(self, slots: Slots, since: Numbers) -> None:
        """Let ``slots``, each once, wait from ``since`` on, which never decreases, nor from call to call."""
        if not len(slots):
            return
        short = int(slots.max()) + 1 - len(self._since)
        if short > 0:
            self._since = np.append(self._since, np.full(max(short, len(self._since)), _NOT, np.int64))
        self._since[slots] = since
        times, starts = np.unique(since, return_index=True)
        self._queue.extend(zip(times.tolist(), np.split(slots, starts[1:]), strict=True))

    def end(self, slots: Slots) -> None:
        """Let ``slots`` wait no more."""
        self._since[slots[slots < len(self._since)]] = _NOT

    def over(self, now: int) -> Slots:
        """Return the slots that have waited long enough at ``now``, each once; they wait no more."""
        over = [np.empty(0, np.int32)]
        while self._queue and self._queue[0][0] + self.length <= now:
            since, slots = self._queue.popleft()
            over.append(slots[self._since[slots] == since])
        slots = np.unique(np.concatenate(over))
        self.end(slots)
        return slots
