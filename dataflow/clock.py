"""Time is always passed in. ``SystemClock`` is the only place that reads it.

>>> clock = ManualClock()
>>> clock.advance(250)
>>> clock.now()
250
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """A source of time. The unit everywhere in the engine is the microsecond, as an int."""

    def now(self) -> int:
        """Microseconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for people and manifests; never for decisions."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> int:
        return time.monotonic_ns() // 1_000

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def wall(self) -> float:
        return self._now / 1_000_000

    def advance(self, microseconds: int) -> None:
        """Move forward by ``microseconds``."""
        if microseconds < 0:
            raise ValueError(f"a clock cannot go back, got {microseconds} us")
        self._now += microseconds
