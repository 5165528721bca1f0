"""The wall time of a subtask, and timers that go by it: times keep their meaning after a restore."""

from __future__ import annotations

from dataflow.contracts.operator import OperatorContext

__all__ = ["WallTimer"]


class WallTimer:
    """The wall time in microseconds, which never goes back in one run, and at most one timer that matters."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._now = 0  # the latest time of the clock
        self._next: int | None = None

    def now(self) -> int:
        """Return the wall time."""
        self._now = max(self._now, round(self._context.clock.wall() * 1_000_000))
        return self._now

    def request(self, due: int | None) -> None:
        """Ask for a timer at ``due``, unless one comes earlier. None: there is nothing to wait for."""
        if due is not None and (self._next is None or due < self._next):
            self._next = due
            self._context.schedule(self._context.clock.now() + max(0, due - self.now()))

    def fired(self) -> None:
        """Take note that a timer came, so that the next one is asked for again."""
        self._next = None
