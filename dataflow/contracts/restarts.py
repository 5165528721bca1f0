"""Policies by which a job restarts inside one ``run()``, and the rule that says which errors may be restarted.

A policy is a pure function of the failures of a run: it reads no clock and keeps nothing.

>>> first = AttemptFailure(number=1, began=0, at=5_000_000)
>>> Restarts.fixed(3, "10s").decide([first], now=5_000_000)
RestartAfter(delay=10000000)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dataflow.clock import Duration, duration_text, exact_duration_text, microseconds
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointMismatch,
    ConfigurationError,
    ContractViolation,
    DirectoryInUse,
    GraphError,
    InputChanged,
    JobTimeout,
    OutputExists,
    check_count,
)

__all__ = ["AttemptFailure", "GiveUp", "RestartAfter", "Restarts", "may_restart"]

_NEVER_RESTARTED: Final = (
    CheckpointDamaged,
    CheckpointMismatch,
    ConfigurationError,
    ContractViolation,
    DirectoryInUse,
    GraphError,
    InputChanged,
    JobTimeout,
    MemoryError,
    OutputExists,
)
"""Errors that would come again, or that a restart would make worse. Ctrl-C and exits are no ``Exception``."""


def may_restart(error: BaseException) -> bool:
    """Return whether a job that failed with ``error`` may be restarted, if its policy restarts it.

    >>> may_restart(OSError("no route to host")), may_restart(ConfigurationError("...")), may_restart(SystemExit())
    (True, False, False)
    """
    return isinstance(error, Exception) and not isinstance(error, _NEVER_RESTARTED)


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """The failure of attempt ``number`` (from 1) of a run: when the attempt began and failed, in microseconds."""

    number: int
    began: int
    at: int


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """The job restarts after ``delay`` microseconds."""

    delay: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job fails because of ``reason``, a sentence without a full stop."""

    reason: str


class Restarts(ABC):
    """A policy: how often, and after which delays, a job that failed restarts from its newest checkpoint.

    ``run(restarts=)`` takes one. It counts the failures of one ``run()``; the next ``run()`` begins to count at zero.
    Errors that would come again, such as ConfigurationError or CheckpointMismatch, are never restarted.

    >>> import warnings, pyarrow as pa, dataflow as flow, operators as op
    >>> from dataflow.errors import JobRestartedWarning
    >>> failures = [OSError("no route to host")]
    >>> def lookup(row):
    ...     if failures:
    ...         raise failures.pop()
    ...     return row
    >>> with flow.Pipeline("prices") as p:
    ...     rows = p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in")
    ...     rows.map(lookup, name="lookup").sink(op.collect(), name="out")
    >>> with warnings.catch_warnings(category=JobRestartedWarning, action="ignore"):
    ...     settings = flow.Checkpointing(flow.MemoryStore())
    ...     result = p.run(checkpoint=settings, restarts=flow.Restarts.fixed(3, "10ms"))
    >>> result.restarts, result.table().num_rows
    (1, 2)
    """

    @staticmethod
    def none() -> Restarts:
        """Return the policy that never restarts: the first error fails the job. It is the default.

        >>> Restarts.none()
        Restarts.none()
        """
        return _None()

    @staticmethod
    def fixed(attempts: int, delay: Duration) -> Restarts:
        """Return the policy that restarts at most ``attempts`` times, each time after ``delay``.

        Args:
            attempts: the number of restarts in one run.
            delay: the time between a failure and the restart.

        Raises: ConfigurationError for a value out of range.

        >>> Restarts.fixed(3, "10s")
        Restarts.fixed(3, '10s')
        """
        check_count("Restarts.fixed(attempts=)", attempts, advice="; Restarts.none() never restarts")
        return _Fixed(int(attempts), microseconds(delay, "Restarts.fixed(delay=)"))

    @staticmethod
    def exponential(first: Duration, most: Duration, reset_after: Duration) -> Restarts:
        """Return the policy that restarts any number of times, after delays that double from ``first`` to ``most``.

        Args:
            first: the delay after the first failure.
            most: the longest delay.
            reset_after: if an attempt runs for so long before it fails, the delay begins at ``first`` again.

        Raises: ConfigurationError for a value out of range, or ``first`` above ``most``.

        >>> Restarts.exponential("1s", "1min", reset_after="10min")
        Restarts.exponential('1s', '1min', '10min')
        """
        shortest = microseconds(first, "Restarts.exponential(first=)")
        longest = microseconds(most, "Restarts.exponential(most=)")
        quiet = microseconds(reset_after, "Restarts.exponential(reset_after=)")
        if shortest == 0:
            raise ConfigurationError("Restarts.exponential(first=) must be above zero, because it is doubled; got 0")
        if shortest > longest:
            raise ConfigurationError(
                f"Restarts.exponential(first=) must be at most most=, got first={exact_duration_text(shortest)!r} and "
                f"most={exact_duration_text(longest)!r}"
            )
        if quiet == 0:
            raise ConfigurationError("Restarts.exponential(reset_after=) must be above zero, got 0")
        return _Exponential(shortest, longest, quiet)

    @staticmethod
    def failure_rate(failures: int, per: Duration, delay: Duration) -> Restarts:
        """Return the policy that restarts unless more than ``failures`` failures come within ``per``.

        Args:
            failures: how many failures within ``per`` are restarted; one more fails the job.
            per: the time in which they are counted, up to the last failure.
            delay: the time between a failure and the restart.

        Raises: ConfigurationError for a value out of range.

        >>> Restarts.failure_rate(5, per="1h", delay="10s")
        Restarts.failure_rate(5, '1h', '10s')
        """
        check_count("Restarts.failure_rate(failures=)", failures, advice="; Restarts.none() never restarts")
        window = microseconds(per, "Restarts.failure_rate(per=)")
        if window == 0:
            raise ConfigurationError("Restarts.failure_rate(per=) must be above zero, got 0")
        return _FailureRate(int(failures), window, microseconds(delay, "Restarts.failure_rate(delay=)"))

    @property
    def restarts(self) -> bool:
        """Whether it ever restarts a job."""
        return True

    @property
    @abstractmethod
    def remembered(self) -> int:
        """The number of the last failures that `decide` looks at."""

    @abstractmethod
    def decide(self, failures: Sequence[AttemptFailure], now: int) -> RestartAfter | GiveUp:
        """Return what follows after the last of ``failures``, which are at least the last ``remembered`` ones.

        Args:
            failures: the failures of the run, oldest first; at least one.
            now: the time by the clock that the failures are timed with, in microseconds.

        >>> failed = [AttemptFailure(1, 0, 10), AttemptFailure(2, 20, 30)]
        >>> print(Restarts.fixed(1, "1s").decide(failed, now=30).reason)
        it failed for the 2nd time, and restarts=Restarts.fixed(1, '1s') allows 1 restart
        """


@dataclass(frozen=True, slots=True, repr=False)
class _None(Restarts):
    remembered = 1

    @property
    def restarts(self) -> bool:
        return False

    def decide(self, failures: Sequence[AttemptFailure], now: int) -> RestartAfter | GiveUp:
        return GiveUp("it was started without restarts=")

    def __repr__(self) -> str:
        return "Restarts.none()"


@dataclass(frozen=True, slots=True, repr=False)
class _Fixed(Restarts):
    attempts: int
    delay: int

    remembered = 1

    def decide(self, failures: Sequence[AttemptFailure], now: int) -> RestartAfter | GiveUp:
        count = failures[-1].number
        if count <= self.attempts:
            return RestartAfter(self.delay)
        allowed = "1 restart" if self.attempts == 1 else f"{self.attempts:,} restarts"
        return GiveUp(f"it failed for the {_ordinal(count)} time, and restarts={self!r} allows {allowed}")

    def __repr__(self) -> str:
        return f"Restarts.fixed({self.attempts}, {exact_duration_text(self.delay)!r})"


@dataclass(frozen=True, slots=True, repr=False)
class _Exponential(Restarts):
    first: int
    most: int
    reset_after: int

    remembered = 64

    def decide(self, failures: Sequence[AttemptFailure], now: int) -> RestartAfter | GiveUp:
        doublings = -1
        for failure in reversed(failures):
            doublings += 1
            if failure.at - failure.began >= self.reset_after:
                break
        return RestartAfter(min(self.most, self.first << doublings))

    def __repr__(self) -> str:
        times = (exact_duration_text(time) for time in (self.first, self.most, self.reset_after))
        return f"Restarts.exponential({', '.join(map(repr, times))})"


@dataclass(frozen=True, slots=True, repr=False)
class _FailureRate(Restarts):
    failures: int
    per: int
    delay: int

    @property
    def remembered(self) -> int:
        return self.failures + 1

    def decide(self, failures: Sequence[AttemptFailure], now: int) -> RestartAfter | GiveUp:
        recent = [failure for failure in failures if failure.at > now - self.per]
        if len(recent) <= self.failures:
            return RestartAfter(self.delay)
        span = duration_text(recent[-1].at - recent[0].at)
        return GiveUp(f"it failed {len(recent):,} times within {span}, and restarts={self!r} allows {self.failures:,}")

    def __repr__(self) -> str:
        return (
            f"Restarts.failure_rate({self.failures}, {exact_duration_text(self.per)!r}, "
            f"{exact_duration_text(self.delay)!r})"
        )


def _ordinal(number: int) -> str:
    """Return "1st", "2nd", "3rd", "4th", ..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
