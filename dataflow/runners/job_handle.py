"""A started job as its user holds it, the same on every runner: waiting, warnings, predicates, the end of a block.

The job class of a runner implements how the job is waited for, left, and called with predicates. All methods run in the
caller's thread.

Invariant: the warnings of a run are given once, by the first call that returns or raises the outcome of the job, or
else at the end of its block.
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
from dataflow.runners.run_warnings import note_failure_left, raise_warnings
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
        self._warned = threading.Lock()  # acquired for good by the call that gives the warnings
        self._delivered = False  # whether a call returned the result, or raised the error that the job failed with

    # --- implemented by each runner

    @abstractmethod
    def _wait(self, limit: int | None) -> RunResult:
        """Wait for the result, at most ``limit`` microseconds. Raises: the error of the job; JobTimeout."""

    @abstractmethod
    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        """Return the warnings of a run that had ``result``; None: it failed, was cancelled, or was left."""

    @abstractmethod
    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> Answers:
        """Call ``predicate`` with the state at each checkpoint, and ``then`` with the job whenever it holds."""

    @abstractmethod
    def _leave(self) -> None:
        """Cancel the job, if it is not over, because its block ends."""

    @property
    @abstractmethod
    def _is_over(self) -> bool:
        """Whether the job is over, or no call will wait for it any more."""

    @property
    @abstractmethod
    def _failed_with(self) -> BaseException | None:
        """The error that the job failed with; None: it has not failed."""

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
        """Call ``predicate`` with the state at every checkpoint from now on, the newest existing one included.

        The calls are made on a thread of their own while the job continues, and the end of the job waits for them. If
        more than 8 checkpoints wait for a slow predicate, it is not called for the oldest of them. A predicate that
        raises, as an ``assert`` does, or that returns neither True nor False, fails the job.

        Args:
            predicate: a function from `CheckpointState` to bool.

        Returns: a mapping from checkpoints to the values that ``predicate`` returned; it grows with the job.

        Raises: ConfigurationError for a job without checkpoints; UnsupportedOnRunner on Spark, whose state cannot be
            read between micro-batches.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("x") as p:
        ...     p.source(op.from_arrow(pa.table({"a": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
        ...     answers = job.on_checkpoint(lambda state: state.table("out").num_rows == 2)
        ...     result = job.wait()
        >>> dict(answers)  # of the last checkpoint, at the end of the input
        {1: True}
        """
        return self._ask(predicate, "on_checkpoint", None)

    def stop_when(self, predicate: Predicate) -> Answers:
        """Call ``predicate`` as `on_checkpoint` does; when it holds, take a last checkpoint and stop the job.

        Meant for stable predicates: one that held at a checkpoint holds at all later ones. ``answers.lapsed`` is the
        first checkpoint at which it no longer did.

        Args:
            predicate: a function from `CheckpointState` to bool.

        Returns: the mapping of `on_checkpoint`.

        Raises: the errors of `on_checkpoint`.
        """
        return self._ask(predicate, "stop_when", lambda job: job.stop())

    def _deliver(self, outcome: Callable[[], RunResult]) -> RunResult:
        """Return or raise what ``outcome`` does; the first call also gives the warnings of the run."""
        try:
            result = outcome()
        except BaseException as error:
            self._delivered = self._delivered or error is self._failed_with
            if self._is_over:  # else the next wait() warns
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
    """A job that runs while its user waits, with a progress line, and with Ctrl-C."""

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
        """End the job if ``error``, which ends the wait, requires that."""

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
                    if pressed.count:
                        break
                    if limit is not None and self._clock.now() - started > limit and (late := self._timed_out(limit)):
                        raise late
                if pressed.count:
                    raise self._interrupted(pressed)
            except BaseException as error:
                self._wait_failed(error)
                raise
