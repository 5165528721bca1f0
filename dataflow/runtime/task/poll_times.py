"""When a source is polled: at once, or a little later, if more rows gather meanwhile.

A poll costs a batch, and a batch costs each operator some 100 microseconds, whatever it holds. A source whose rows
arrive one by one has a row or two at every poll, so a task that polls it without pause sends many tiny batches, which
queue up and make each other wait. Polled every three milliseconds, and only when its outputs are taken, it sends fewer
batches, and its rows wait less. A source that has its rows already, such as a file of small batches, gains nothing from
waiting. The two differ in how many rows a poll gives after a longer time than usual.
"""

from __future__ import annotations

from typing import Final, Protocol

from dataflow.contracts.tuning import Choice

__all__ = ["AtOnce", "LearnedPolls", "PollTimes", "polling"]

PAUSE: Final = 3_000
"""Microseconds between two polls of a source whose rows gather meanwhile, or that has no rows now."""
SOON, LONG_PAUSE = 100_000, 5_000
"""Microseconds without rows, and from then on between two polls of a source that does not say when it has rows."""
LONGEST: Final = 250_000
"""The most microseconds between two polls of any source, whatever it says."""
SMALL: Final = 4_096
"""Rows of a batch from which on its fixed cost does not matter."""
FIRST_TRIAL, LAST_TRIAL = 4, 1_024
"""Polls between two trials, at first and at most."""
RECHECK: Final = 64
"""The most polls between two trials while rows gather."""
LONGER, LEAST = 4, 1_000
"""How much longer than usual the pause of a trial is, and its least microseconds."""


class PollTimes(Protocol):
    """Decides when a source task polls next, from what its polls gave. Whatever it decides, the rows are the same."""

    @property
    def next(self) -> int:
        """The time of the next poll, in microseconds; in the past: at once."""
        ...

    @property
    def gathers(self) -> bool:
        """Whether rows gather while the source is not polled."""
        ...

    def gave(self, now: int, rows: int, until: int | None, *, more: bool) -> None:
        """Record that the poll that began at ``now`` gave ``rows``; ``more``: there were more, which it left out.

        The source says that there are none before ``until`` (None: not known).
        """
        ...

    def gave_nothing(self, now: int, until: int | None) -> None:
        """Record a poll without rows; the source says that there are none before ``until`` (None: not known)."""
        ...


class AtOnce:
    """Polls without any pause."""

    next: int = 0
    gathers: bool = False

    def gave(self, now: int, rows: int, until: int | None, *, more: bool) -> None:
        """Ignore it."""

    def gave_nothing(self, now: int, until: int | None) -> None:
        """Ignore it."""


class LearnedPolls:
    """Pauses between polls while rows gather.

    A poll that gave nothing shows that they do. Otherwise a trial tells: a poll after a longer pause than usual, or
    without the usual pause. Rows gather if the poll after the longer time, at least twice as long, gave half as many
    again. Trials become rarer while nothing changes, and while they turn out to be wrong.

    >>> polls = LearnedPolls()
    >>> for time in range(0, 1_600, 400):
    ...     polls.gave(time, 40, None, more=False)  # a row each 10 microseconds
    >>> polls.next  # a trial: four times the usual 400 microseconds
    2800
    >>> polls.gave(2_800, 160, None, more=False)
    >>> polls.gathers, polls.next
    (True, 5800)
    """

    def __init__(self) -> None:
        self.next = 0
        self._gathers = False
        self._tries = False  # whether the next poll is a trial
        self._empty_since: int | None = None
        self._last: int | None = None  # the time of the last poll
        self._usual = (0, 0)  # the time between the last two polls that were no trials, and the rows of the latter
        self._until = FIRST_TRIAL  # polls until the next trial
        self._often = self._rarely = FIRST_TRIAL  # polls from one trial to the next, while rows gather and while not

    @property
    def gathers(self) -> bool:
        return self._gathers and not self._tries

    def gave(self, now: int, rows: int, until: int | None, *, more: bool) -> None:
        elapsed = 0 if self._last is None else now - self._last
        self._last, self._empty_since = now, None
        if until is not None and until > now:
            self._tries, self._gathers = False, True
            self.next = min(until, now + LONGEST)
            return
        if more or rows >= SMALL:
            self._gathers = self._tries = False
        elif self._tries:
            (longer, more_rows), (shorter, fewer_rows) = sorted([(elapsed, rows), self._usual], reverse=True)
            self._tries = False
            self._settle(gathers=self._gathers if longer < 2 * shorter else 2 * more_rows >= 3 * fewer_rows)
        else:
            self._usual = elapsed, rows
            self._until -= 1
            self._tries = self._until <= 0
        self.next = self._next(now)

    def _next(self, now: int) -> int:
        if self._tries:
            return 0 if self._gathers else now + max(LEAST, LONGER * self._usual[0])
        return now + PAUSE if self._gathers else 0

    def _settle(self, *, gathers: bool) -> None:
        """Go on with pauses or without, after a trial."""
        if not gathers:  # also if a trial before said they do: batches of many sizes must not be tried ever again
            self._rarely = min(2 * self._rarely, LAST_TRIAL)
        self._often = min(2 * self._often, RECHECK) if gathers and self._gathers else FIRST_TRIAL
        self._gathers = gathers
        self._until = self._often if gathers else self._rarely

    def gave_nothing(self, now: int, until: int | None) -> None:
        if self._empty_since is None:
            self._empty_since = now
        self._last, self._tries = now, False
        self._rarely = FIRST_TRIAL
        if not self._gathers:
            self._settle(gathers=True)
        if until is None:
            until = now + (PAUSE if now - self._empty_since < SOON else LONG_PAUSE)
        self.next = min(until, now + LONGEST)


def polling(times: PollTimes, polls: int, empty: int) -> Choice:
    """Return the report on a source task that polled ``polls`` times, of which ``empty`` times there were no rows."""
    chosen = "with pauses" if times.gathers else "at once"
    reason = "{empty:,} of {polls:,} polls found no rows; pauses pay if rows gather meanwhile"
    return Choice("polling", chosen, reason, {"polls": polls, "empty": empty})
