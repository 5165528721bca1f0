"""The number of rows that a step takes: as many as fit into its time budget, at the speed of the last steps.

A barrier waits for the current step, so the budget of a step bounds that wait. A slow function gets its batches in
slices; the rest of a batch stays at the head of its channel, as ordinary queued data. A task that no one waits for may
take longer steps, because every slice has a fixed cost.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dataflow.clock import duration_text
from dataflow.contracts.tuning import Choice

__all__ = ["FIRST_ROWS", "LearnedPace", "Pace", "Unpaced", "budgets", "step_choice"]

FIRST_ROWS = 100
"""Rows of the first step, before any speed was measured: a budget of 10 ms at 100 us a row."""

GROWTH = 10
"""Limit for the growth from one step to the next, because cheap rows predict little about the next ones."""


SHORT, LONG = 10_000, 50_000
"""Microseconds of a step: while a barrier waits or rows are rare, and at most."""

HURRY = 100_000
"""Microseconds for which steps stay short after an input was empty, or a barrier waited."""


def budgets(given: int | None, interval: int | None) -> tuple[int, int]:
    """Return the budgets of a step that is waited for, and of one that is not, in microseconds.

    Args:
        given: the user's budget, for both; None: 10 ms, and up to 5 % of the checkpoint interval.
        interval: the time between two checkpoints; None: there are none by time.

    >>> budgets(None, 500_000), budgets(None, None), budgets(3_000, None)
    ((10000, 25000), (10000, 50000), (3000, 3000))
    """
    if given is not None:
        return given, given
    return SHORT, LONG if interval is None else max(SHORT, min(LONG, interval // 20))


def step_choice(given: int | None, interval: int | None) -> Choice:
    """Return the report on the budgets of steps, for the arguments of ``budgets``."""
    short, long = budgets(given, interval)
    chosen = duration_text(short) if short == long else f"{duration_text(short)} to {duration_text(long)}"
    reason = "step_budget= is given" if given is not None else "longer while no barrier waits and rows are not rare; "
    if given is None:
        every = "no checkpoints by time" if interval is None else f"checkpoints each {duration_text(interval)}"
        reason += every
    return Choice("step", chosen, reason, settings={"short_us": short, "long_us": long})


FIRST_TRIAL, LAST_TRIAL = 8, 1_024
"""Steps between two trials of another size, at first and at most."""


class Pace(Protocol):
    """Limits the rows of a step, and learns from how long they took."""

    @property
    def max_rows(self) -> int | None:
        """The most rows a step may take; None: whole batches of any size."""
        ...

    def notice(self, now: int, *, hurried: bool) -> None:
        """Record whether, before a step, an input of the task is empty or a barrier waits in one."""
        ...

    def took(self, rows: int, elapsed: int) -> None:
        """Record that ``rows`` (at least one) passed the task's operators in ``elapsed`` microseconds."""
        ...


class LearnedPace:
    """Keeps steps within ``budget`` microseconds, or ``relaxed`` ones (by default the same) while nothing hurries.

    It uses the fastest of the last three steps, because a single step may be slow for another reason (a kernel was
    compiled, the machine was busy). The size grows at most tenfold from one step to the next.

    Part of a step's time does not depend on its rows. If it were attributed to the rows, slices would shrink to nothing
    while steps stayed as long as before. So from time to time a trial step of half the rows separates the two; trials
    become rarer when they find little fixed time. If steps are too long in spite of all shrinking, the trial takes
    twice the rows. Two consecutive trials must agree, the second soon after the first, because the machine may have
    been busy in one. At least half of a step's time is for rows, whatever the budget.

    >>> pace = LearnedPace(budget=10_000)
    >>> pace.took(1_000, 100_000)
    >>> pace.max_rows
    100
    """

    def __init__(self, budget: int, relaxed: int | None = None) -> None:
        assert budget > 0, f"the budget of a step must be positive, got {budget} us"
        self._short, self._long = budget, relaxed or budget
        self._hurried_until = 0
        self._budget = budget
        self._max_rows = FIRST_ROWS
        self._last: deque[tuple[int, int]] = deque(maxlen=3)
        self._fixed = 0
        self._last_guess = 0
        self._pause = self._until_trial = FIRST_TRIAL
        self._before_trial: tuple[int, int] | None = None  # during a trial: the step before it

    @property
    def max_rows(self) -> int:
        return self._max_rows

    def notice(self, now: int, *, hurried: bool) -> None:
        if hurried:
            self._hurried_until = now + HURRY
        budget = self._short if now < self._hurried_until else self._long
        if budget != self._budget:
            self._budget, self._before_trial = budget, None
            if self._last:
                self._max_rows = min(self._fitting(), GROWTH * self._max_rows)

    def took(self, rows: int, elapsed: int) -> None:
        elapsed = max(1, elapsed)
        if self._before_trial is not None:
            self._learn(self._before_trial, (rows, elapsed))
            self._before_trial = None
        elif rows >= self._max_rows:  # otherwise another limit bounds the steps
            self._until_trial -= 1
        self._last.append((rows, elapsed))
        if self._until_trial == 0:
            self._before_trial, self._until_trial = (rows, elapsed), self._pause
            self._max_rows = 2 * rows if rows == 1 or self._is_in_vain else rows // 2
        else:
            self._max_rows = min(self._fitting(), GROWTH * max(rows, self._max_rows))

    @property
    def _is_in_vain(self) -> bool:
        """Whether even the shortest of the last steps was too long, as if its time did not depend on its rows."""
        return 100 * min(elapsed for _, elapsed in self._last) > 115 * self._budget

    def _learn(self, before: tuple[int, int], trial: tuple[int, int]) -> None:
        """Estimate the fixed time of a step from a trial and the step before it."""
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
        per_row = min([max(1, elapsed - self._fixed) / rows for rows, elapsed in self._last])
        return max(1, int(max(self._budget - self._fixed, self._fixed) / per_row))


class Unpaced:
    """A pace without a limit: steps take whole batches."""

    max_rows: int | None = None

    def notice(self, now: int, *, hurried: bool) -> None:
        """Ignore it."""

    def took(self, rows: int, elapsed: int) -> None:
        """Ignore the measurement."""
