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

    >>> pace = LearnedPace(budget=10_000)
    >>> pace.took(1_000, 100_000)
    >>> pace.max_rows
    100
    """

    def __init__(self, budget: int) -> None:
        assert budget > 0, f"a step takes some time, got a budget of {budget} us"
        self._budget = budget
        self._max_rows = FIRST_ROWS
        self._fitting: deque[int] = deque(maxlen=3)

    @property
    def max_rows(self) -> int:
        return self._max_rows

    def took(self, rows: int, elapsed: int) -> None:
        self._fitting.append(max(1, rows * self._budget // max(1, elapsed)))
        self._max_rows = min(max(self._fitting), GROWTH * max(rows, self._max_rows))


class Unpaced:
    """Whole batches."""

    max_rows: int | None = None

    def took(self, rows: int, elapsed: int) -> None:
        """Nothing is learned."""
