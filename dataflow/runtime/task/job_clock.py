"""The clock of a job: the machine's clock, and time by the clock, which all operators of the job share.

The rules of time by the clock are in ``dataflow.protocol.clock_time``. There is one instance for a job, or on Spark for
the driver of it. So what one operator reads after another one is never earlier.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dataflow.clock import Clock, duration_text
from dataflow.errors import BarrierflowWarning, ClockStepWarning
from dataflow.protocol.clock_time import LASTS, ClockTime

__all__ = ["JobClock"]

_TOGETHER = 50_000
"""Microseconds within which both clocks must be read: a thread that is held up in between would see a step."""
_ATTEMPTS = 5


class JobClock:
    """Reads ``clock``, and derives time by the clock. Any thread may read it.

    Args:
        clock: the machine's clock, which is ``machine``.
        notify: records a warning. It is called at most once, when the wall clock is first more than a second off.

    >>> from dataflow.clock import ManualClock
    >>> machine = ManualClock(wall=5_000_000)
    >>> clock = JobClock(machine, lambda category, text: print(text[:51]))
    >>> machine.step_wall(-3_600_000_000)
    >>> machine.advance(2_000_000)
    >>> clock.time()
    the wall clock is 60.0 min behind the time by which
    6000000
    """

    def __init__(self, clock: Clock, notify: Callable[[type[BarrierflowWarning], str], None]) -> None:
        self.machine = clock
        self._notify = notify
        self._lock = threading.Lock()  # guards _time and _warned: readings must reach _time in order
        self._time = ClockTime(*self._readings())
        self._warned = False
        self.now = clock.now
        self.cpu = clock.cpu

    def wall(self) -> float:
        """Return the machine's wall-clock time in seconds since 1970, which may step."""
        return self.machine.wall()

    def time(self) -> int:
        """Return time by the clock in microseconds since 1970."""
        with self._lock:
            time = self._time.read(*self._readings())
            warns = self._time.first_step != 0 and not self._warned
            self._warned = self._warned or warns
        if warns:
            self._warn(self._time.first_step)
        return time

    def raise_to(self, stored: int) -> None:
        """Begin at ``stored`` if that is later: the time of the checkpoint that the job starts from."""
        with self._lock:
            self._time.raise_to(stored)

    def _readings(self) -> tuple[int, int]:
        """Return the monotonic and the wall time, read together."""
        clock = self.machine
        for _ in range(_ATTEMPTS):
            before, wall, now = clock.now(), clock.wall(), clock.now()
            if now - before <= _TOGETHER:
                break
        return now, int(wall * 1_000_000)

    def _warn(self, lead: int) -> None:
        off = duration_text(abs(lead))
        if lead > 0:
            what = f"ahead of the time by which the job goes, which takes it over once it has lasted {LASTS // 10**6} s"
        else:
            what = "behind the time by which the job goes, which runs at half speed until they meet"
        self._notify(
            ClockStepWarning,
            f"the wall clock is {off} {what}; ttl by the clock, its timers and with_processing_time go by this time: "
            "check how the clock of the machine is set",
        )
