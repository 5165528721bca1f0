"""A compact set of numbers from 0 upwards with few gaps, such as the snapshots that a process has recorded.

>>> some = NumberSet().with_number(0).with_number(2)
>>> some, 2 in some, some.with_number(1), some.without(NumberSet(1))
(NumberSet(below=1, others=frozenset({2})), True, NumberSet(below=3, others=frozenset()), [2])
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_NUMBERS", "NumberSet"]


@dataclass(frozen=True, slots=True)
class NumberSet:
    """All numbers less than ``below``, and ``others``, which are greater than it."""

    below: int = 0
    others: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number < self.below or number in self.others

    def with_number(self, number: int) -> NumberSet:
        """Return the set with ``number`` added."""
        below, others = self.below, self.others | {number} if number >= self.below else self.others
        while below in others:
            others -= {below}
            below += 1
        return NumberSet(below, others)

    def without(self, other: NumberSet) -> list[int]:
        """Return the numbers that are not in ``other``, in ascending order."""
        return [n for n in [*range(other.below, self.below), *sorted(self.others)] if n not in other]


NO_NUMBERS = NumberSet()
