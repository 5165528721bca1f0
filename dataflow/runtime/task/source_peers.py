"""The event times of the tasks of one source, shared so that no task reads too far ahead of the others.

After a shuffle the lowest watermark counts. If one task reads an hour ahead of another, all rows of that hour become
state. Scheduling by the operating system decides which task is ahead, and without a limit also the size of the state.
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

    Threads share it without a lock: each task writes only its own entry, and an old time of another task only makes a
    task wait a moment too long. The slowest task never waits, so at least one always continues.

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
        """Record the event ``time`` of ``task`` (microseconds); None: unknown, idle or ended, and no task waits for it.

        The first call for a clock comes before the tasks run.
        """
        entry = self._clocks.get(clock)
        if entry is None:
            entry = self._clocks[clock] = _Clock(drift, [None] * self._tasks)
        entry.times[task] = time

    def clocks_of(self, task: int) -> Mapping[str, tuple[int | None, int]]:
        """Return the last time of ``task`` on each clock, with the clock's drift limit."""
        return {name: (clock.times[task], clock.drift) for name, clock in self._clocks.items()}

    def ahead(self, task: int) -> bool:
        """Return whether ``task`` is more than ``drift`` ahead of another task on any clock."""
        for clock in self._clocks.values():
            own = clock.times[task]
            if own is not None and any([time is not None and own - time > clock.drift for time in clock.times]):
                return True
        return False
