"""The times at which cells of sessions are to be looked at: one for each cell, at most.

A cell may be looked at too early, and is then given a later time; so nothing changes when rows move its end.

>>> dues = SessionDues()
>>> dues.set(np.array([0, 1], np.int32), np.array([30, 20]))
>>> dues.set(np.array([0, 1], np.int32), np.array([10, 40]))  # only earlier times count
>>> dues.take(25, limit=10).tolist()
[0, 1]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataflow.state.index import Slots
from dataflow.state.ranges import SEQUENCE, TimeRanges

__all__ = ["SessionDues"]

Numbers = npt.NDArray[np.int64]

_DUE = 2


class SessionDues:
    """The due times of slots, in order. They are not stored: they can be made again from the cells."""

    def __init__(self) -> None:
        self._ranges = TimeRanges()
        #: For each slot -1 if it has a due time (else 0), the sequence number of its entry, and the due time.
        self._entries = np.zeros((0, 3), np.int64)
        self._sequence = 0

    def set(self, slots: Slots, dues: Numbers) -> None:
        """Give each slot, each once, a due time, unless it has an earlier one."""
        if not len(slots):
            return
        self._make_room(int(slots.max()) + 1)
        entries = self._entries
        held = entries[slots, 0] < 0
        if held.any():
            sooner = ~held | (dues < entries[slots, _DUE])
            slots, dues, held = slots[sooner], dues[sooner], held[sooner]
            self.drop(slots[held])
        sequences = np.arange(self._sequence, self._sequence + len(slots))
        self._sequence += len(slots)
        entries[slots, 0], entries[slots, SEQUENCE], entries[slots, _DUE] = -1, sequences, dues
        self._ranges.enter(np.stack([dues, sequences, slots.astype(np.int64)], axis=1), entries)

    def take(self, upto: int, limit: int) -> Slots:
        """Remove the first ``limit`` due times of at most ``upto``, and return their slots, in order."""
        slots = self._ranges.take(upto, limit, self._entries)[:, 2].astype(np.int32)
        self._entries[slots, 0] = 0
        return slots

    def drop(self, slots: Slots) -> None:
        """Remove the due times of ``slots``, each once, that have one."""
        slots = slots[slots < len(self._entries)]
        slots = slots[self._entries[slots, 0] < 0]
        if len(slots):
            self._entries[slots, 0] = 0
            self._ranges.bury(self._entries[slots, _DUE], self._entries)

    def _make_room(self, count: int) -> None:
        if count > len(self._entries):
            entries = np.zeros((2 * count, 3), np.int64)
            entries[: len(self._entries)] = self._entries
            self._entries = entries
