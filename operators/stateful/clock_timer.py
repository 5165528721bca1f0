"""Timers of a subtask that go by the clock: their times keep their meaning after a restore."""

from __future__ import annotations

from dataflow.contracts.operator import OperatorContext

__all__ = ["ClockTimer"]


class ClockTimer:
    """At most one timer that matters."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._next: int | None = None

    def now(self) -> int:
        """Return time by the clock."""
        return self._context.clock.time()

    def request(self, due: int | None) -> None:
        """Ask for a timer at ``due``, unless one comes earlier. None: there is nothing to wait for."""
        if due is not None and (self._next is None or due < self._next):
            self._next = due
            self._context.schedule_at(due)

    def fired(self) -> None:
        """Take note that a timer came, so that the next one is asked for again."""
        self._next = None
