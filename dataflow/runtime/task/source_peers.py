"""What the tasks of one source know of each other: how far each is in event time, so that none runs far ahead.

Behind a shuffle the least watermark counts. Where one task reads an hour ahead of another, everything of that hour is
state; which task is ahead is the operating system's choice, and without a limit so is the size of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Peers"]


@dataclass(frozen=True, slots=True)
class _Clock:
    drift: int
    times: list[int | None]


class Peers:
    """The clocks of the tasks 0 .. ``tasks`` - 1: one per ``with_watermark`` with a limit, known by its name.

    Shared by threads without a lock: a task writes its own place alone, and to read an old time of another makes one
    wait too long by a moment, no more. The slowest task never waits, so there is always one that goes on.

    >>> peers = Peers(2)
    >>> peers.reached("clock", 0, 50, 10), peers.ahead(0)
    (None, False)
    >>> peers.reached("clock", 1, 39, 10), peers.ahead(0), peers.ahead(1)
    (None, True, False)
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._clocks: dict[str, _Clock] = {}

    def reached(self, clock: str, task: int, time: int | None, drift: int) -> None:
        """``task`` is at ``time`` (microseconds); None: it is not known, idle or at its end, and nobody waits for it.

        The first call for a clock comes before the tasks run.
        """
        found = self._clocks.get(clock)
        if found is None:
            found = self._clocks[clock] = _Clock(drift, [None] * self._tasks)
        found.times[task] = time

    def told(self, task: int) -> Mapping[str, tuple[int | None, int]]:
        """What ``task`` said last by each clock: where it is, and how far ahead it may be."""
        return {name: (clock.times[task], clock.drift) for name, clock in self._clocks.items()}

    def ahead(self, task: int) -> bool:
        """Whether ``task`` is more than ``drift`` ahead of another one by any of the clocks."""
        for clock in self._clocks.values():
            own = clock.times[task]
            if own is not None and any([time is not None and own - time > clock.drift for time in clock.times]):
                return True
        return False
