"""The last row of each key among those that come out: what a new row has to come before. Not in checkpoints."""

from __future__ import annotations

import numpy as np

from dataflow.state.arrays import Numbers
from dataflow.state.free_numbers import MANY
from dataflow.state.index import Slots

__all__ = ["Distinct", "LastRows"]

_UNKNOWN = -1


class Distinct:
    """Finds distinct numbers, none of which is negative, without sorting. Memory for each number is kept.

    >>> distinct, places = Distinct().of(np.array([7, 5, 7, 2]))
    >>> distinct.tolist(), places.tolist()
    ([7, 5, 2], [0, 1, 0, 2])
    """

    def __init__(self) -> None:
        self._first: Slots = np.empty(0, np.int32)

    def of(self, numbers: Slots) -> tuple[Slots, Numbers]:
        """Return each of ``numbers`` once, in order of first occurrence, and the place of each number among these."""
        if not len(numbers):
            return numbers, np.empty(0, np.int64)
        most = int(numbers.max()) + 1
        if not most <= len(self._first) <= 4 * max(most, MANY):
            self._first = np.empty(2 * most, np.int32)
        every = np.arange(len(numbers), dtype=np.int32)
        self._first[numbers[::-1]] = every[::-1]  # of equal numbers the last assignment counts: the first occurrence
        first = self._first[numbers]
        begins = first == every
        return numbers[begins], (np.cumsum(begins) - 1)[first]


class LastRows:
    """By slot of a key: the number of its last row, and the rank of this row.

    Attributes:
        rows: the number of the row in the state; -1: it is not known, or the key has too few rows.
        ranks: its rank.

    >>> last = LastRows()
    >>> last.forget(np.array([0, 1], np.int32), 2)
    >>> last.set(np.array([0, 1]), np.array([0, 0, 1]), np.array([7, 5, 6]), np.array([1, 2, 1]), 2)
    >>> last.rows[:2].tolist(), last.ranks[:1].tolist()
    ([5, -1], [2])
    """

    def __init__(self) -> None:
        self.rows: Slots = np.empty(0, np.int32)
        self.ranks: Numbers = np.empty(0, np.int64)

    def forget(self, slots: Slots, used: int) -> None:
        """Take note that ``slots`` are of new keys, and that all slots are below ``used``."""
        short = used - len(self.rows)
        if short > 0:
            more = max(short, len(self.rows))
            self.rows = np.append(self.rows, np.full(more, _UNKNOWN, np.int32))
            self.ranks = np.append(self.ranks, np.zeros(more, np.int64))
        elif 4 * used < len(self.rows):
            self.rows, self.ranks = self.rows[: 2 * used].copy(), self.ranks[: 2 * used].copy()
        self.rows[slots] = _UNKNOWN

    def set(self, slots: Slots, groups: Numbers, rows: Slots, ranks: Numbers, n: int) -> None:
        """Set the last rows of ``slots``.

        Args:
            slots: the slot of each group.
            groups: the group of each row that comes out; equal ones are adjacent, in the order of ranks.
            rows: the numbers of these rows.
            ranks: their ranks.
            n: a key with fewer rows has no last row.
        """
        counts = np.bincount(groups, minlength=len(slots))
        full = counts >= n
        ends = np.cumsum(counts)[full] - 1
        self.rows[slots] = _UNKNOWN
        self.rows[slots[full]], self.ranks[slots[full]] = rows[ends], ranks[ends]
