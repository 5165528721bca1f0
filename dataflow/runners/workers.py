"""A worker thread: steps the tasks it was given until they are done, and sleeps while none of them can do anything."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dataflow.clock import Clock
from dataflow.runtime.inlet import GateInlet
from dataflow.runtime.progress import Progress
from dataflow.runtime.task import Task

__all__ = ["Worker"]

_NAP = 0.001
"""Seconds between two polls of a source that has nothing to give and cannot ring."""
_LONG = 0.1
"""Seconds a worker sleeps at most when everybody it waits for can ring."""


class Worker(threading.Thread):
    """Steps its tasks until they are done or the job is over."""

    def __init__(self, name: str, tasks: Sequence[Task], stop: threading.Event, clock: Clock) -> None:
        super().__init__(name=name, daemon=True)
        self._clock = clock
        self._tasks = tasks
        self._stop_all = stop
        self.bell = threading.Event()

    def run(self) -> None:
        tasks = list(self._tasks)
        while tasks and not self._stop_all.is_set():
            self.bell.clear()
            worked = False
            for task in tasks:
                try:
                    worked = task.step() is Progress.WORKED or worked
                except BaseException as error:  # SystemExit of a user's function: unheard, the job would wait for ever
                    task.crash(error)
            if not worked:
                tasks = [task for task in tasks if task.state is not Progress.DONE]
                self.bell.wait(min([_sleep(task, self._clock.now()) for task in tasks], default=0.0))


def _sleep(task: Task, now: int) -> float:
    """How long (seconds) its worker may sleep. A source cannot ring when it has something again: it is looked after."""
    if not isinstance(task.inlet, GateInlet) and task.state is Progress.WAITING:
        return _NAP
    times = [at for at in (task.chain.next_timer, task.inlet.deadline) if at is not None]
    return min([_LONG, *(max(_NAP, (at - now) / 1e6) for at in times)])
