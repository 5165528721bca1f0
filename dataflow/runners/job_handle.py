"""The handle of a started job, the same on every runner: waiting, warnings, predicates, and use as a context manager.

The job class of each runner implements waiting, leaving the block, and the registration of predicates. All methods run
in the caller's thread.

Invariant: the warnings of a run are given once: by the first call that returns the result or raises the error of the
job, else at the end of its block.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dataflow.clock import Clock, Duration, microseconds
from dataflow.errors import BarrierflowWarning, JobTimeout
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.run_warnings import give_now, note_failure_left, raise_warnings
from dataflow.runtime.job.predicates import Answers, Predicate

if TYPE_CHECKING:
    from dataflow.runners.job_progress import NoLine, ProgressLine
    from dataflow.runners.run_result import RunResult
    from dataflow.runtime.job.job import Job
    from dataflow.runtime.task.notices import Notices

__all__ = ["JobHandle", "WatchedJob"]

_LONG = 0.1
"""Seconds between two checks of signals, and of the progress line, by a thread that waits for a job."""


class JobHandle(ABC):
    """A job that was started. As a context manager it cancels the job if the block ends before the job."""

    def __init__(self, pipeline: str, notices: Notices) -> None:
        self._pipeline = pipeline
        self._notices = notices
        self._warned = threading.Lock()  # acquired by the call that gives the warnings, and never released
        self._delivered = False  # whether a call returned the result or raised the job's error

    # --- implemented by each runner

    @abstractmethod
    def _wait(self, limit: int | None) -> RunResult:
        """Wait for the result, at most ``limit`` microseconds. Raises: the error of the job; JobTimeout."""

    @abstractmethod
    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        """Return the warnings of a run with ``result``; None: it failed, was cancelled, or its block was left."""

    @abstractmethod
    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> Answers:
        """Evaluate ``predicate`` at each checkpoint; whenever it holds, call ``then`` with the job."""

    @abstractmethod
    def _leave(self) -> None:
        """Cancel the job if it is not over when its block ends."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the job: 32 hex digits, the same in all runs of a checkpoint directory; new without checkpoints.

        Its checkpoints store it, so a directory that is moved or copied keeps it (`Checkpoint.job_id`). A job that
        begins from a checkpoint elsewhere has a new id (`Checkpoint.parent`).
        """

    @property
    @abstractmethod
    def _is_over(self) -> bool:
        """Whether the job is over, or was abandoned: no later call waits for it."""

    @property
    @abstractmethod
    def _failed_with(self) -> BaseException | None:
        """The error of a job that failed; None: it has not failed."""

    # --- called by users

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait until the job is over, and return its result.

        Problems that did not end the job are given as warnings, once, after the last commit: see
        ``RunResult.warnings`` and ``dataflow.errors.BarrierflowWarning``. If a filter turns these warnings into errors,
        the first is raised, with the result as its ``result``; a second ``wait()`` returns the result.

        Args:
            timeout: cancel the job after this duration, for example "10s"; None: wait as long as it runs.

        Returns: the result of the run.

        Raises: the error that made the job fail; JobTimeout after ``timeout``; JobCancelled if it was cancelled.
        """
        limit = None if timeout is None else microseconds(timeout, "wait(timeout=)")
        return self._deliver(lambda: self._wait(limit))

    def on_checkpoint(self, predicate: Predicate) -> Answers:
        """Evaluate ``predicate`` on the newest checkpoint and on each later one.

        The calls run on a separate thread while the job continues; the job ends only after them. If more than 8
        checkpoints wait for a slow predicate, it is not called for the oldest of them. A predicate that raises, for
        example by ``assert``, or that returns neither True nor False, fails the job.

        Args:
            predicate: a function from `CheckpointState` to bool.

        Returns: a mapping from checkpoint to result, which grows while the job runs.

        Raises: ConfigurationError for a job without checkpoints, or a batch; UnsupportedOnRunner on Spark, whose state
            cannot be read between micro-batches.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
        ...     answers = job.on_checkpoint(lambda state: state.table("out").num_rows == 2)
        ...     result = job.wait()
        >>> dict(answers)  # the checkpoint at the end of the input
        {1: True}
        """
        return self._ask(predicate, "on_checkpoint", None)

    def stop_when(self, predicate: Predicate) -> Answers:
        """Evaluate ``predicate`` as `on_checkpoint` does. If it holds, take a last checkpoint and stop.

        Use it with stable predicates, which hold at every checkpoint after the first at which they hold.
        ``answers.lapsed`` is the first checkpoint at which the predicate no longer held.

        Args:
            predicate: a function from `CheckpointState` to bool.

        Returns: a mapping from checkpoint to result, as `on_checkpoint` does.

        Raises: the errors of `on_checkpoint`.
        """
        return self._ask(predicate, "stop_when", lambda job: job.stop())

    def _deliver(self, outcome: Callable[[], RunResult]) -> RunResult:
        """Call ``outcome`` and return its result; the first call also gives the warnings of the run."""
        try:
            result = outcome()
        except BaseException as error:
            self._delivered = self._delivered or error is self._failed_with
            if self._is_over:  # else the next wait() gives the warnings
                self._warn(error=error)
            raise
        self._delivered = True
        self._warn(result=result)
        return result

    def _warn(self, *, result: RunResult | None = None, error: BaseException | None = None) -> None:
        if self._warned.acquire(blocking=False):
            raise_warnings(self._warnings(result), result=result, error=error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._leave()
        failure = self._failed_with
        if failure is not None and not self._delivered and error is not failure:
            note_failure_left(self._notices, self._pipeline, failure)
        self._warn(error=error)


class WatchedJob(JobHandle):
    """A job that runs in the background; waiting for it shows a progress line and handles Ctrl-C."""

    def __init__(self, pipeline: str, notices: Notices, clock: Clock, line: ProgressLine | NoLine) -> None:
        super().__init__(pipeline, notices)
        self._clock = clock
        self._line = line

    @abstractmethod
    def _over_within(self, seconds: float) -> bool:
        """Wait for the end, about ``seconds`` at most; return whether the job is over. Raises: the job's error."""

    @abstractmethod
    def _timed_out(self, limit: int) -> JobTimeout | None:
        """Cancel the job after ``limit`` microseconds, and return the error to raise; None: the job ended first."""

    @abstractmethod
    def _interrupted(self, pressed: CtrlC) -> KeyboardInterrupt:
        """Stop the job because of Ctrl-C, and return the exception to raise."""

    def _wait_failed(self, error: BaseException) -> None:
        """End the job if ``error``, which interrupts the wait, requires it."""

    def _replaces(self, handler: Any) -> bool:
        """Return whether a signal handler other than Python's own may be replaced while the job is waited for."""
        return False

    def _watch(self, limit: int | None) -> None:
        """Wait until the job is over. Raises: JobTimeout after ``limit`` microseconds; KeyboardInterrupt; its error."""
        started = self._clock.now()
        pause = _LONG if limit is None else min(_LONG, limit / 1e6)
        with CtrlC(self._replaces) as pressed, closing(self._line):
            try:
                while not self._over_within(pause):
                    self._line.tick()
                    give_now(self._notices)
                    if pressed.count:
                        break
                    if limit is not None and self._clock.now() - started > limit and (late := self._timed_out(limit)):
                        raise late
                if pressed.count:
                    raise self._interrupted(pressed)
            except BaseException as error:
                self._wait_failed(error)
                raise
