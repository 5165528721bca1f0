"""The state of a job, what a task is doing, and how it spent its time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

__all__ = ["JobState", "TaskTimes", "Progress"]


class Progress(Enum):
    """What a task is doing after a step."""

    WORKED = "worked"
    WAITING = "waiting for input"
    BLOCKED = "blocked by a barrier"
    BACK_PRESSURED = "back-pressured"
    ENDED = "ended, waiting for the last checkpoint"
    DONE = "done"


class JobState(Enum):
    """The state of a job. The last four are final.

    ``RESTARTING``: it failed, and will restart (see `Restarts`); its tasks do not run.
    """

    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True)
class TaskTimes:
    """How a task spent its time, in microseconds; the sum is the time since it was built."""

    busy: int = 0
    waiting: int = 0
    blocked: int = 0
    back_pressured: int = 0
    ready: int = 0

    def add(self, state: Progress, elapsed: int) -> None:
        """Add the time between two steps to the state that the earlier one ended in."""
        match state:
            case Progress.WORKED:
                self.ready += elapsed
            case Progress.WAITING | Progress.ENDED | Progress.DONE:
                self.waiting += elapsed
            case Progress.BLOCKED:
                self.blocked += elapsed
            case Progress.BACK_PRESSURED:
                self.back_pressured += elapsed
            case _:
                assert_never(state)
