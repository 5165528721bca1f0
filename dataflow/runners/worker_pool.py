"""The threads that run a job: workers step its tasks, and the job thread steps the job itself.

A worker steps all its tasks, a task with several channels several times in a row, so that rows leave its channels as
fast as they come, while they are still in the processor's cache. If none of them has more to do, it sleeps until it is
woken: a channel that it reads received rows, a channel for whose room it waits was read, or a message arrived.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from dataflow.background import Background
from dataflow.clock import Clock, duration_text
from dataflow.runners.old_objects import left_out
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.who_waits import who_waits_for_whom
from dataflow.runtime.task.messages import Crashed
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.task import Task

__all__ = ["WorkerPool", "Worker"]

log = logging.getLogger("dataflow.local")

_NAP = 0.001
"""The least seconds that a worker sleeps: no message, no room and no timer is waited for more closely."""
_TURN = 10_000
"""Microseconds after which a worker goes on to its next task, once the step in progress is done."""
_LONG = 0.25
"""The most seconds that a worker, or the job thread, sleeps without being woken."""


class Worker(threading.Thread):
    """Steps its tasks from ``begin`` until they are done or the job ends."""

    def __init__(
        self, name: str, tasks: Sequence[Task], begin: threading.Event, stop: threading.Event, clock: Clock
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._begin = begin
        self._clock = clock
        self._tasks = tasks
        self._stop_all = stop
        self.bell = threading.Event()

    def run(self) -> None:
        tasks = list(self._tasks)
        self._begin.wait()
        while tasks and not self._stop_all.is_set():
            self.bell.clear()  # before any task is asked: what comes from now on rings again
            more = False
            for task in tasks:
                try:
                    more |= _advance(task, self._clock)
                except BaseException as error:  # also SystemExit of a user's function: else the job would wait for ever
                    task.crash(error)
            if not more:
                tasks = [task for task in tasks if task.state is not Progress.DONE]
                self.bell.wait(min([_sleep(task, self._clock.now()) for task in tasks], default=0.0))


def _advance(task: Task, clock: Clock) -> bool:
    """Step ``task`` as often as it has input channels, at least once; return whether it may have more to do.

    After ``_TURN`` microseconds it is the turn of the next task: a barrier may wait there.
    """
    until = clock.now() + _TURN
    for _ in range(len(task.task_input.input_channels) or 1):
        if task.step() is not Progress.WORKED or task.rest():
            return False
        if clock.now() > until:
            break
    return True


def _sleep(task: Task, now: int) -> float:
    """Return how long (seconds) the worker of ``task`` may sleep."""
    polled = task.task_input.deadline if task.state is Progress.WAITING or not task.task_input.is_source else None
    longest = _LONG
    for at in (task.chain.next_timer(now), polled):
        if at is not None:
            longest = min(longest, max(_NAP, (at - now) / 1e6))
    return longest


def _rest(job: Job, now: int) -> float:
    """Return how long (seconds) the job thread may sleep. Tasks do not wake it when they are done at last."""
    if job.ending:
        return _NAP
    return _LONG if job.deadline is None else min(_LONG, max(_NAP, (job.deadline - now) / 1e6))


class WorkerPool:
    """The threads of one attempt. ``run`` steps the job on the caller's thread until it ends; then call ``shut_down``.

    ``threads`` workers share the tasks that never block; each other task has a worker of its own. If no row moved for
    ``stall_after`` microseconds, a warning with who waits for whom is logged. ``stop`` is set when the job has ended.
    """

    def __init__(
        self, job: Job, background: Background, clock: Clock, threads: int, stall_after: int, stop: threading.Event
    ) -> None:
        self.job = job
        self._background = background
        self._clock = clock
        self._stall_after = stall_after
        self._stop_all = stop
        self._bell = threading.Event()
        self._begin = threading.Event()  # set when tasks may be stepped, or never will be
        self._workers = self._assign_tasks(threads)
        job.mailbox.bell = self._bell.set
        background.on_error = lambda error: job.mailbox.put(Crashed("background", error))
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:  # the system has no more threads
            self.shut_down()
            raise

    def _assign_tasks(self, threads: int) -> list[Worker]:
        """Return the workers, and connect the wake-up calls of their tasks' mailboxes and channels."""
        alone: list[list[Task]] = []
        shared: list[list[Task]] = [[] for _ in range(threads)]
        placed = 0  # in turn: subtasks of one number come together, but a pipeline of few tasks uses all workers
        for vertex, _, name in self.job.plan.tasks():
            task = self.job.tasks[name]
            if vertex.blocking or any(node.delay is not None for node in task.chain.nodes):
                alone.append([task])
            else:
                shared[placed % threads].append(task)
                placed += 1
        workers = []
        for i, tasks in enumerate([*filter(None, shared), *alone]):
            worker = Worker(f"dataflow-worker-{i}", tasks, self._begin, self._stop_all, self._clock)
            workers.append(worker)
            for task in tasks:
                task.mailbox.bell = worker.bell.set
                for channel in task.task_input.input_channels:
                    channel.on_put = worker.bell.set
                for output in task.chain.outputs:
                    for channel in output.channels:
                        channel.on_take = worker.bell.set
        return workers

    def run(self) -> None:
        """Step the job until it ends."""
        job, last, moved_at, warned = self.job, -1, self._clock.now(), False
        while_running = ExitStack()
        try:
            if not job.loading.done:
                job.loading.start(self._bell.set)
            while not job.over:
                self._bell.clear()
                worked = job.step()
                if job.begun and not self._begin.is_set():
                    while_running.enter_context(left_out())
                    self._begin.set()  # before the wait, else each job would begin a tick late
                if not worked and not job.over:
                    self._bell.wait(_rest(job, self._clock.now()))
                moved = _rows_moved(job)
                if moved != last or not job.begun:
                    last, moved_at, warned = moved, self._clock.now(), False
                elif not warned and self._clock.now() - moved_at > self._stall_after:
                    warned = True
                    log.warning(
                        "no row has moved for %s:\n%s",
                        duration_text(self._stall_after),
                        who_waits_for_whom(job, self._clock.now()),
                    )
        except BaseException as error:
            job.fail(error)
        finally:
            while_running.close()

    def shut_down(self) -> None:
        """Stop the workers, wait for them and for the background, and close the job."""
        try:
            self._shut_down()
        except BaseException as error:
            log.exception("error while job %r was shutting down", self.job.identity.pipeline)
            self.job.fail(error)

    def _shut_down(self) -> None:
        self.job.loading.stop()
        self._stop_all.set()
        self._begin.set()
        for worker in self._workers:
            worker.bell.set()
        for worker in self._workers:
            if worker.ident is not None:
                worker.join()
        self._background.close()
        self.job.close()


def _rows_moved(job: Job) -> int:
    """Return a number that grows while rows move. Checkpoints do not count: they continue when nothing else does."""
    tallies = [node.tally for task in job.tasks.values() for node in task.chain.nodes]
    return sum([tally.rows_in + tally.rows_out for tally in tallies])
