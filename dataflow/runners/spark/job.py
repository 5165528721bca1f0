"""A job that runs on Spark: waits for its streaming query, ends it, and returns the result."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dataflow.clock import Duration, microseconds
from dataflow.contracts.checkpointing import Checkpointing
from dataflow.errors import (
    JobCancelled,
    JobTimeout,
    StillRunningWarning,
    UnsupportedOnRunner,
)
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import JobProgress, NoLine, ProgressLine
from dataflow.runners.run_result import RunResult
from dataflow.runners.run_warnings import note_failure_left, raise_warnings
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.progress_and_result import SparkMeter
from dataflow.runners.spark.quiet_logs import is_spark_handler
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.user_errors import SerializedError, original_error
from dataflow.runtime.task.progress import JobState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkJob"]

log = logging.getLogger("dataflow.spark")

_LONG = 0.1
"""Seconds between two checks of a query."""
_GRACE = 5.0
"""Seconds to wait, when a query is stopped, for a call of a user's function in the driver to return."""


class SparkJob:
    """A job running on Spark; a context manager that cancels the job if it is left early.

    ``query`` is Spark's ``StreamingQuery``. `Pipeline.start` returns a job:

    >>> import dataflow as flow
    >>> SparkJob is flow.SparkJob
    True
    """

    def __init__(
        self,
        pipeline: str,
        query: Any,
        driver: Driver,
        checkpoint: Checkpointing | None,
        resources: ExitStack,
        line: ProgressLine | NoLine,
        meter: SparkMeter,
    ) -> None:
        self.query = query
        self._pipeline = pipeline
        self._driver = driver
        self._checkpoint = checkpoint
        self._resources = resources
        self._line = line
        self._meter = meter
        self._ending = threading.Lock()
        self._once = threading.Lock()  # acquired for good by the call that gives out the warnings
        self._asked = False  # whether a caller asked for the outcome, and so got the error if there is one
        self._stopped = threading.Event()
        self._released = threading.Event()
        self._stopping = threading.Thread(target=self._stop_query, name="spark-query", daemon=True)
        self._tables: Mapping[str, pa.Table] = {}
        self._result: RunResult | None = None
        self._failure: BaseException | None = None

    @property
    def state(self) -> JobState:
        """The state of the job. If its query is over, reading the state ends the job as ``wait`` does."""
        if self._meter.state is JobState.RUNNING and not self._is_active():
            try:
                self._wait(None)
            except BaseException as error:
                if error is not self._failure and not isinstance(error, JobCancelled):
                    raise
        return self._meter.state

    def on_checkpoint(self, predicate: Any) -> NoReturn:
        """Raise UnsupportedOnRunner, because Spark's state cannot be read between micro-batches."""
        raise UnsupportedOnRunner(
            "job.on_checkpoint",
            "spark",
            "Spark stores the state between micro-batches, and it cannot be read while the job runs",
            "use LocalRunner or SimulatedRunner",
        )

    def stop_when(self, predicate: Any) -> NoReturn:
        """Raise UnsupportedOnRunner, as `on_checkpoint` does."""
        self.on_checkpoint(predicate)

    def progress(self) -> JobProgress:
        """Return the progress after the micro-batches that are done; ``query.lastProgress`` has Spark's own."""
        return self._meter.read()

    def cancel(self) -> None:
        """Stop now. The micro-batch in progress is aborted, and repeated after a restart."""
        self._end(JobState.CANCELLED)

    def stop(self) -> RunResult:
        """Stop the job and return its result. A later run with ``restore="auto"`` resumes after the last micro-batch.

        Raises: the error that made the job fail; JobCancelled if it was cancelled.
        """
        return self._warned(self._stop)

    def _stop(self) -> RunResult:
        if self.state is JobState.RUNNING:
            self._end(JobState.STOPPED)
        return self._outcome()

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait until the job is over, and return its result.

        Ctrl-C stops the query and then raises KeyboardInterrupt. If a user's function in the driver does not return
        within seconds, this method does not wait for it. The query ends, and the job's directory is unlocked, when the
        function returns. Problems that did not end the job are given as warnings, once, as in `LocalJob.wait`.

        Args:
            timeout: cancel the job after this duration, for example "10s"; None: wait as long as it runs.

        Raises: the error that made the job fail; JobTimeout after ``timeout``; JobCancelled if it was cancelled.
        """
        return self._warned(lambda: self._wait(timeout))

    def _warned(self, outcome: Callable[[], RunResult]) -> RunResult:
        """Return or raise what ``outcome`` does; the first call also issues the warnings of the run."""
        self._asked = True
        try:
            result = outcome()
        except BaseException as error:
            self._warn(error=error)
            raise
        self._warn(result=result)
        return result

    def _warn(self, *, result: RunResult | None = None, error: BaseException | None = None) -> None:
        if self._once.acquire(blocking=False):
            collected = self._meter.warnings() if result is None else result.warnings
            raise_warnings(collected, result=result, error=error)

    def _wait(self, timeout: Duration | None) -> RunResult:
        if self._meter.state is not JobState.RUNNING:
            return self._outcome()
        began = self._driver.clock.now()
        limit = None if timeout is None else microseconds(timeout, "wait(timeout=)")
        with CtrlC(replaces=is_spark_handler) as pressed, closing(self._line):
            try:
                while not self._over():
                    self._line.tick()
                    if pressed.count:
                        raise KeyboardInterrupt
                    if self._driver.full:
                        return self._stop()
                    if limit is not None and self._driver.clock.now() - began > limit:
                        reached = self.progress()
                        self.cancel()
                        raise JobTimeout(
                            f"the job did not end within wait(timeout={timeout!r}) and was cancelled; run it again "
                            f"with a longer timeout, or none: {reached}"
                        )
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and error is not self._failure:
                    self._interrupted(error)
                else:
                    self._end(JobState.FAILED)
                raise
        job, done = self._driver.assignment, self._driver.done
        self._end(JobState.FINISHED if job.directory.ended(job.source_task_ids, done) else JobState.STOPPED)
        return self._outcome()

    def _outcome(self) -> RunResult:
        """Return the result of a job that is over, the same in each call. Raises as ``wait`` does."""
        if self._failure is not None:
            raise self._failure
        if self._meter.state is JobState.CANCELLED:
            raise JobCancelled("the job was cancelled")
        self._result = self._result or self._meter.result(self._pipeline, self._checkpoint, self._tables)
        return self._result

    def _is_active(self) -> bool:
        try:
            return bool(self.query.isActive)
        except _query_errors():
            return False

    def _interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """Stop, and add a note to ``interrupt`` that says how to resume."""
        self._line.close()
        # to the terminal, not to the log: the user who pressed Ctrl-C needs to see it
        print("interrupted: stopping the query", file=sys.stderr, flush=True)
        self._end(JobState.STOPPED)
        if self._checkpoint is None:
            interrupt.add_note("the job had no checkpoints: run it again from the beginning")
        else:
            done = f"{self._driver.done} micro-batches were done" if self._driver.done else "no micro-batch was done"
            interrupt.add_note(f"{done}; run again with restore='auto' to resume after them")

    def _end(self, state: JobState) -> None:
        """Stop the query once, and release all resources."""
        with self._ending:
            if self._meter.state is not JobState.RUNNING:
                return
            if state is not JobState.FINISHED:
                self._driver.give_up()
            if state is JobState.STOPPED:
                self._driver.wait_until_counted()
            self._stopping.start()
            try:
                if not self._stopped.wait(_GRACE):
                    self._driver.notices.add(
                        StillRunningWarning,
                        f"job {self._pipeline!r} is {state.value}, but a function in the driver has not returned yet; "
                        "the job's directory stays locked until it returns",
                    )
                if state is JobState.FINISHED:
                    self._driver.finish()
                self._tables = self._driver.tables()
            except SerializedError as error:
                state, self._failure = JobState.FAILED, original_error(error)
                raise self._failure from None
            finally:
                try:
                    self._meter.end(state)
                finally:
                    self._release()

    def _stop_query(self) -> None:
        """Stop the query and release locks, when the last call of a user's function has returned."""
        try:
            self.query.stop()
        except Exception as error:  # if the JVM is gone, so is the query
            log.debug("the query could not be stopped: %s", error)
        finally:
            self._stopped.set()
            self._released.wait()
            try:
                if self._meter.state in (JobState.STOPPED, JobState.FINISHED):
                    self._driver.sweep()
            finally:
                self._resources.close()

    def _release(self) -> None:
        self._released.set()
        if self._stopped.is_set():
            self._stopping.join()

    def _over(self) -> bool:
        directory = self._driver.assignment.directory
        failure: BaseException | None = None
        try:
            over = bool(self.query.awaitTermination(_LONG))
        except _query_errors() as error:
            failure, over = original_error(self._driver.error or error, directory), True
        else:
            if over and self._driver.error is not None:
                failure = original_error(self._driver.error, directory)
        if failure is None:
            return over
        with self._ending:  # stopping a query interrupts it, which it may report as a failure
            if self._meter.state is JobState.RUNNING:
                self._failure = self._failure or failure
                raise self._failure from None
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.state is JobState.RUNNING:  # not if its query is over
            self.cancel()
        if self._meter.state is JobState.FAILED and not self._asked and error is not self._failure:
            note_failure_left(self._driver.notices, self._pipeline, self._failure)
        self._warn(error=error)


def _query_errors() -> tuple[type[Exception], ...]:
    """Return the errors of Spark's methods of a query: the query failed, or its JVM is gone."""
    return (pyspark("pyspark.errors").PySparkException, pyspark("py4j.protocol").Py4JError, OSError)
