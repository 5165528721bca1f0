"""Clocks, which are passed in wherever time is needed, and durations. Only ``SystemClock`` reads the machine's time.

A clock has three times: the monotonic one, which the engine goes by; the wall time, which may step, for people and
records; and, for operators, time by the clock, which follows the wall time and never goes back.

>>> clock = ManualClock()
>>> clock.advance(250)
>>> clock.now()
250
"""

from __future__ import annotations

import re
import time
from datetime import timedelta
from fractions import Fraction
from typing import Protocol

from dataflow.errors import ConfigurationError

__all__ = ["LONGEST", "Clock", "Duration", "ManualClock", "OperatorClock", "SystemClock"]
__all__ += ["duration_text", "exact_duration_text", "microseconds", "signed_microseconds"]

Duration = timedelta | str
"""A length of time: a ``timedelta``, or text such as ``"250ms"`` or ``"10s"``; never a bare number."""

LONGEST = 100_000 * 86_400_000_000
"""Microseconds of the longest duration, 100,000 days, which fits into 64 bits of nanoseconds."""

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_TEXT = re.compile(r"\s*(-?)\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d)\s*")


def microseconds(duration: Duration, what: str = "a duration") -> int:
    """Return ``duration`` in whole microseconds.

    Args:
        duration: a ``timedelta``, or a number and a unit: us, ms, s, m or min, h, d. At most 100,000 days.
        what: the setting, for the message.

    Raises: ConfigurationError for a bare number, an unknown unit, a part of a microsecond, or a length that is negative
        or above 100,000 days.

    >>> microseconds("1.5s"), microseconds(timedelta(milliseconds=2))
    (1500000, 2000)
    """
    length = signed_microseconds(duration, what)
    if length < 0:
        raise ConfigurationError(f"{what} cannot be negative, got {_shown(duration)}")
    return length


def _shown(duration: Duration) -> str:
    return repr(duration) if isinstance(duration, str) else str(duration)


def signed_microseconds(duration: Duration, what: str) -> int:
    """Return ``duration`` in whole microseconds, as `microseconds` does; it may be negative, also as text.

    >>> signed_microseconds("-4s", "within"), signed_microseconds(timedelta(days=-1), "within")
    (-4000000, -86400000000)
    """
    if isinstance(duration, timedelta):
        length = Fraction(duration // timedelta(microseconds=1))
    elif isinstance(duration, str) and (match := _TEXT.fullmatch(duration)):
        length = Fraction(match[1] + match[2]) * _UNITS[match[3]]
    else:
        raise ConfigurationError(
            f"{what} must be a timedelta or text such as '250ms', '10s', '5min', '1h', '7d'; "
            f"got {duration!r} ({type(duration).__name__})"
        )
    if abs(length) > LONGEST:
        raise ConfigurationError(f"{what} must be at most 100,000 days, got {_shown(duration)}")
    if length.denominator != 1:
        raise ConfigurationError(f"{what} must be a whole number of microseconds, got {_shown(duration)}")
    return int(length)


def duration_text(length: int) -> str:
    """Return a length in microseconds as rounded text for people.

    >>> duration_text(850), duration_text(12_345), duration_text(2_500_000), duration_text(90_000_000)
    ('850 us', '12.3 ms', '2.50 s', '1.5 min')
    >>> duration_text(9_000_000_000), duration_text(216_000_000_000)
    ('2.5 h', '2.5 d')
    """
    if length < 1_000:
        return f"{length} us"
    if length < 1_000_000:
        return f"{length / 1_000:.1f} ms"
    if length < 60_000_000:
        return f"{length / 1_000_000:.2f} s"
    if length < 2 * _UNITS["h"]:
        return f"{length / 60_000_000:.1f} min"
    if length < 2 * _UNITS["d"]:
        return f"{length / _UNITS['h']:.1f} h"
    return f"{length / _UNITS['d']:.1f} d"


def exact_duration_text(length: int) -> str:
    """Return a length in microseconds as exact text that ``microseconds`` reads back, in the largest possible unit.

    >>> exact_duration_text(90_000_000), exact_duration_text(3_600_000_000), exact_duration_text(0)
    ('90s', '1h', '0us')
    """
    fitting = (unit for unit in ("d", "h", "min", "s", "ms") if length and length % _UNITS[unit] == 0)
    unit = next(fitting, "us")
    return f"{length // _UNITS[unit]}{unit}"


class Clock(Protocol):
    """A source of time. The unit in the engine is the microsecond, as an int."""

    def now(self) -> int:
        """Return the microseconds since an arbitrary start; never decreases."""
        ...

    def wall(self) -> float:
        """Return the seconds since 1970, for people and manifests; never for decisions, because it may step."""
        ...

    def cpu(self) -> int:
        """Return the microseconds of CPU time that the calling thread has used; for statistics."""
        ...


class OperatorClock(Clock, Protocol):
    """The clock of the operators of a job."""

    def time(self) -> int:
        """Return time by the clock: microseconds since 1970, the same for all operators of the job; never decreases."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> int:
        """Return the machine's monotonic time in microseconds."""
        return time.monotonic_ns() // 1_000

    def wall(self) -> float:
        """Return the machine's wall-clock time in seconds since 1970."""
        return time.time()

    def cpu(self) -> int:
        """Return the CPU time of the calling thread in microseconds, user and system together."""
        return time.thread_time_ns() // 1_000


class ManualClock:
    """A clock that moves only by ``advance``, for tests and simulations.

    Args:
        start: the initial time in microseconds.
        wall: the initial wall time in microseconds since 1970; None: ``start``.
    """

    def __init__(self, start: int = 0, wall: int | None = None) -> None:
        self._now = start
        self._ahead = 0 if wall is None else wall - start
        self._stepped = 0

    def now(self) -> int:
        """Return the time in microseconds."""
        return self._now

    def wall(self) -> float:
        """Return the wall time in seconds."""
        return (self.time() + self._stepped) / 1_000_000

    def time(self) -> int:
        """Return the wall time in microseconds, as if it had never stepped."""
        return self._now + self._ahead

    def cpu(self) -> int:
        """Return the time in microseconds, as if every thread were always running."""
        return self._now

    def advance(self, microseconds: int) -> None:
        """Move the clock forward. Raises: ValueError for a negative number."""
        if microseconds < 0:
            raise ValueError(f"a clock cannot go back, got {microseconds} us")
        self._now += microseconds

    def step_wall(self, microseconds: int) -> None:
        """Step the wall time, forward or back."""
        self._stepped += microseconds
