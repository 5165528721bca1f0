"""The times at which cells of sessions are to be looked at: one for each cell, at most.

A cell may be looked at too early, and is then given a later time; so nothing changes when rows move its end.

>>> dues = SessionDues()
>>> dues.set(np.array([0, 1], np.int32), np.array([30, 20]))
>>> dues.set(np.array([0, 1], np.int32), np.array([10, 40]))  # only earlier times count
>>> dues.take(25, limit=10).tolist()
[0, 1]
>>> dues.take(50, limit=10).tolist()
[]
"""

from __future__ import annotations

import numpy as np

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots

__all__ = ["SessionDues"]


class SessionDues:
    """The due times of slots, in order. They are not stored: they can be made again from the cells."""

    kernels = ("operators.kernels.session_dues",)

    def __init__(self) -> None:
        #: A binary heap of due times, and their slots. Entries without effect stay until they are due.
        self._heap, self._owners = np.empty(0, np.int64), np.empty(0, np.int32)
        self._size = 0
        #: The due time of each slot.
        self._pending = np.empty(0, np.int64)

    def set(self, slots: Slots, dues: Numbers) -> None:
        """Give each slot a due time, unless it has an earlier one."""
        from operators.kernels.session_dues import push_dues

        if len(slots):
            self._make_room(int(slots.max()) + 1, self._size + len(slots))
            self._size = push_dues(self._heap, self._owners, self._size, self._pending, slots, dues)

    @property
    def first(self) -> int | None:
        """The first due time, or an earlier one that was dropped; None: there are none."""
        return int(self._heap[0]) if self._size else None

    def take(self, upto: int, limit: int) -> Slots:
        """Remove the first ``limit`` due times of at most ``upto``, and return their slots, in order."""
        from operators.kernels.session_dues import take_dues

        slots = np.empty(min(limit, self._size), np.int32)
        self._size, count = take_dues(self._heap, self._owners, self._size, self._pending, upto, slots)
        return slots[:count]

    def drop(self, slots: Slots) -> None:
        """Remove the due times of those of ``slots`` that have one."""
        from operators.kernels.session_dues import NEVER

        self._pending[slots[slots < len(self._pending)]] = NEVER

    def _make_room(self, slots: int, entries: int) -> None:
        from operators.kernels.session_dues import NEVER

        if slots > len(self._pending):
            pending = np.full(2 * slots, NEVER, np.int64)
            pending[: len(self._pending)] = self._pending
            self._pending = pending
        if entries > len(self._heap):
            heap, owners = np.empty(2 * entries, np.int64), np.empty(2 * entries, np.int32)
            heap[: self._size], owners[: self._size] = self._heap[: self._size], self._owners[: self._size]
            self._heap, self._owners = heap, owners
