"""Free numbers of keys, rows or timers: which are used next, and when the tables behind them become smaller.

A number never changes while it is in use, because callers and other tables refer to it. So a table can only give back
the memory above its highest number in use. After many numbers were released, the free ones are sorted: the lowest are
used first, and free numbers in the upper half are *withheld*, that is, not used at all. Once no number in the upper
half is in use, the numbers above the highest one in use cease to exist, and the tables become smaller.

Sorting costs a pass over all numbers. It happens when at most a quarter of many numbers are in use, and a quarter of
them was released since the last time, or when nothing is left in the upper half.

>>> state = np.array([8, -1, 0, 0], np.int64)
>>> free = FreeNumbers(state)
>>> free.release(np.array([7, 0, 3], np.int32)), free.take(2).tolist(), free.take(2).tolist()
(None, [3, 0], [7, 8])
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["MANY", "FreeNumbers"]

Numbers = npt.NDArray[np.int32]

MANY = 1 << 16
"""Numbers that are always kept: their memory is not worth giving back."""
_NONE = 2**63 - 1


class FreeNumbers:
    """The free ones of the numbers below ``used``: a stack, of which the last is used next, and those withheld.

    Invariant: no number is withheld unless it is at least ``_limit``, and none of the stack is.

    Args:
        state: an array that kernels change as well: entry 0 is the number of numbers ever used, those that do not exist
            any more left out, and entry 2 the number of entries of the stack.
        stack: the stack, perhaps with room for more; None: it is empty.
    """

    def __init__(self, state: npt.NDArray[np.int64], stack: Numbers | None = None) -> None:
        self._state = state
        self.stack: Numbers = np.empty(0, np.int32) if stack is None else stack
        self._withheld: list[Numbers] = []
        self._held_back = 0  # the number of withheld numbers
        self._limit = _NONE
        self._released = 0  # since the numbers were last sorted

    def __len__(self) -> int:
        """Return how many numbers are free."""
        return int(self._state[2]) + self._held_back

    @property
    def used(self) -> int:
        """One more than the highest number that was ever used and still exists."""
        return int(self._state[0])

    @property
    def withholds(self) -> bool:
        """Whether the numbers of the upper half are withheld."""
        return self._limit < self.used

    def parts(self) -> list[Numbers]:
        """Return all free numbers, in several arrays; valid until the next call."""
        return [*self._withheld, self.stack[: self._state[2]]]

    def release(self, numbers: Numbers) -> None:
        """Make ``numbers``, each once, free to be used again."""
        self._released += len(numbers)
        if self.withholds:
            upper = numbers >= self._limit
            self._withhold(numbers[upper])
            numbers = numbers[~upper]
        used = int(self._state[2])
        if used + len(numbers) > len(self.stack):
            stack = np.empty(2 * (used + len(numbers)), np.int32)
            stack[:used] = self.stack[:used]
            self.stack = stack
        self.stack[used : used + len(numbers)] = numbers
        self._state[2] += len(numbers)

    def prepare(self, count: int) -> None:
        """Take note that ``count`` numbers may be needed now: if there are not so many, none is withheld any more."""
        if self._limit < _NONE and self._state[2] < count:
            self.stack = np.concatenate(self.parts())
            self._state[2] = len(self.stack)
            self._withheld, self._held_back, self._limit = [], 0, _NONE

    def take(self, count: int) -> Numbers:
        """Return ``count`` numbers, free ones first."""
        self.prepare(count)
        rest = max(int(self._state[2]) - count, 0)
        free = self.stack[rest : self._state[2]][::-1]
        new = np.arange(self.used, self.used + count - len(free), dtype=np.int32)
        self._state[2] = rest
        self._state[0] += len(new)
        return np.concatenate([free, new])

    def is_worth_sorting(self, live: int) -> bool:
        """Return whether to call ``sort``, if ``live`` numbers are in use."""
        used = self.used
        if used <= MANY:
            return False
        if self.withholds:
            return self._held_back == used - self._limit
        return 4 * live <= used and (4 * self._released >= used or len(self) == used)

    def sort(self, live: int) -> bool:
        """Sort the free numbers, and return whether the highest ones do not exist any more: see ``used``.

        At most half of the numbers exist afterwards, or all. Call it while no caller keeps a free number.
        """
        used = self.used
        in_use = np.ones(used, np.bool_)
        for numbers in self.parts():
            in_use[numbers] = False
        end = used - int(np.argmax(in_use[::-1])) if in_use.any() else 0
        is_lower = 2 * end <= used
        if is_lower:
            self._state[0] = used = end
        self._limit = used // 2 if used > MANY and 4 * live <= used else _NONE
        free = np.flatnonzero(~in_use[:used]).astype(np.int32)
        lower = int(np.searchsorted(free, min(self._limit, used)))
        self._withheld, self._held_back, self._released = [], 0, 0
        self._withhold(free[lower:].copy())
        self.stack = free[:lower][::-1].copy()
        self._state[2] = lower
        return is_lower

    def _withhold(self, numbers: Numbers) -> None:
        if len(numbers):
            self._withheld.append(numbers)
            self._held_back += len(numbers)
