"""How much a step takes: as many rows as fit into the step's budget, at the speed of the last steps.

A barrier waits for the step in progress, so a step bounds what a barrier waits for. A slow function gets its batches in
slices; what is left of a batch stays at the head of its channel and is ordinary queued data there.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

__all__ = ["FIRST_ROWS", "LearnedPace", "Pace", "Unpaced"]

FIRST_ROWS = 100
"""Rows of the first step, when nothing is known of the speed yet: a budget of 10 ms at 100 us a row."""

GROWTH = 10
"""A step takes at most so many times the rows of the last one, for cheap rows say little about the next ones."""


FIRST_TRIAL, LAST_TRIAL = 8, 1_024
"""Steps between two trials of other sizes, at first and at most."""


class Pace(Protocol):
    """Says how many rows a step may take at most, and hears how long they took."""

    @property
    def max_rows(self) -> int | None:
        """None: whole batches, whatever their size."""
        ...

    def took(self, rows: int, elapsed: int) -> None:
        """``rows`` (at least one) went through the task's operators in ``elapsed`` microseconds."""
        ...


class LearnedPace:
    """Keeps steps within ``budget`` microseconds.

    It goes by the fastest of the last three steps, for one may be slow for another reason (a kernel was compiled, the
    machine was busy), and grows at most tenfold from one to the next.

    Part of a step's time does not depend on its rows. Were it taken for the rows' own, slices would shrink to nothing
    and steps stay as long as they are. So now and then a step of half the rows tells the two apart, the less often the
    less there is to tell; one of twice the rows, where steps are too long in spite of all shrinking. Two trials must
    say so, the second soon behind the first, for the machine may have been busy in one. And half of a step's time is
    for rows, whatever the budget.

    >>> pace = LearnedPace(budget=10_000)
    >>> pace.took(1_000, 100_000)
    >>> pace.max_rows
    100
    """

    def __init__(self, budget: int) -> None:
        assert budget > 0, f"a step takes some time, got a budget of {budget} us"
        self._budget = budget
        self._max_rows = FIRST_ROWS
        self._last: deque[tuple[int, int]] = deque(maxlen=3)
        self._fixed = 0
        self._last_guess = 0
        self._pause = self._until_trial = FIRST_TRIAL
        self._before_trial: tuple[int, int] | None = None  # while one is under way: the step before it

    @property
    def max_rows(self) -> int:
        return self._max_rows

    def took(self, rows: int, elapsed: int) -> None:
        elapsed = max(1, elapsed)
        if self._before_trial is not None:
            self._learn(self._before_trial, (rows, elapsed))
            self._before_trial = None
        elif rows >= self._max_rows:  # else it is not this limit that bounds the steps
            self._until_trial -= 1
        self._last.append((rows, elapsed))
        if self._until_trial == 0:
            self._before_trial, self._until_trial = (rows, elapsed), self._pause
            self._max_rows = 2 * rows if rows == 1 or self._is_in_vain else rows // 2
        else:
            self._max_rows = min(self._fitting(), GROWTH * max(rows, self._max_rows))

    @property
    def _is_in_vain(self) -> bool:
        """Whether even the shortest of the last steps was too long: as if its length were not the rows' fault."""
        return 100 * min(elapsed for _, elapsed in self._last) > 115 * self._budget

    def _learn(self, before: tuple[int, int], trial: tuple[int, int]) -> None:
        """What of the step before the trial was not for its rows."""
        (rows, elapsed), (tried, took) = before, trial
        per_row = max(0.0, (elapsed - took) / (rows - tried)) if tried != rows else elapsed / rows
        guess = max(0, round(elapsed - per_row * rows))
        self._fixed, self._last_guess = min(guess, self._last_guess), guess
        if guess <= elapsed // 4:
            self._pause = self._until_trial = min(2 * self._pause, LAST_TRIAL)
        elif self._fixed > elapsed // 4:
            self._pause = self._until_trial = FIRST_TRIAL
        else:
            self._until_trial = 1

    def _fitting(self) -> int:
        per_row = min(max(1, elapsed - self._fixed) / rows for rows, elapsed in self._last)
        return max(1, int(max(self._budget - self._fixed, self._fixed) / per_row))


class Unpaced:
    """Whole batches."""

    max_rows: int | None = None

    def took(self, rows: int, elapsed: int) -> None:
        """Nothing is learned."""
