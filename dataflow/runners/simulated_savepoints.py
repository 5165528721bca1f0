"""Savepoints of a simulated job: asked for at turns that the seed draws, and again after each crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future

from dataflow.errors import CheckpointsExist, DataflowError, JobCancelled
from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.savepoints import Savepoint

__all__ = ["AskedSavepoint"]

_EAGERNESS = 0.05
"""Probability per turn that a savepoint is asked for, once enough checkpoints are complete."""


class AskedSavepoint:
    """A savepoint that is asked for in each attempt of a simulated job, until it is complete or fails.

    A crash ends the process that asked, so the next attempt asks again for the same ``path``. If the savepoint had
    become complete unnoticed, it is there already.

    Args:
        request: asks a job for it.
        path: its directory.
        after: the number of checkpoints that an attempt completes before it is asked for the first time.
        draws: decides the turn.
    """

    def __init__(self, request: Callable[[Job], Savepoint], path: str, after: int, draws: random.Random) -> None:
        self.future: Future[Checkpoint] = Future()
        self._request = request
        self._path = path
        self._after = after
        self._draws = draws
        self._current: Savepoint | None = None
        self._crashed = False

    def turn(self, job: Job) -> None:
        """Ask ``job``, if it is the turn to do so."""
        if self.future.done() or self._current is not None:
            return
        if not self._crashed and (job.history.completed < self._after or self._draws.random() >= _EAGERNESS):
            return
        try:
            self._current = self._request(job)
        except CheckpointsExist as error:
            if self._crashed:
                self.future.set_result(Checkpoint(self._path))
            else:
                self.future.set_exception(error)
        except DataflowError as error:
            self.future.set_exception(error)

    def process_ended(self) -> None:
        """Record the outcome, or that the process ended before there was one."""
        current, self._current = self._current, None
        if current is None:
            return
        if not current.future.done():
            self._crashed = True
            return
        error = current.future.exception()
        if error is None:
            self.future.set_result(Checkpoint(self._path))
        else:
            self.future.set_exception(error)

    def job_ended(self, error: BaseException | None) -> None:
        """Fail with the error of the job, or because it ended first, unless there is an outcome."""
        if not self.future.done():
            self.future.set_exception(error or JobCancelled("no savepoint was taken: the job ended first"))
