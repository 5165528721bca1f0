"""A job that runs on Spark: waits for its streaming query, ends it, and returns the result."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from dataflow.clock import Duration, duration_text
from dataflow.contracts.checkpointing import Checkpointing
from dataflow.errors import (
    BarrierflowWarning,
    JobCancelled,
    JobTimeout,
    StillRunningWarning,
    UnsupportedOnRunner,
)
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_handle import WatchedJob
from dataflow.runners.job_progress import JobProgress, NoLine, ProgressLine
from dataflow.runners.run_result import RunResult
from dataflow.runners.spark.driver_sinks import DriverSinks
from dataflow.runners.spark.progress_and_result import SparkMeter
from dataflow.runners.spark.quiet_logs import is_spark_handler
from dataflow.runners.spark.stream_query import StreamQuery
from dataflow.runners.spark.user_errors import SerializedError, original_error, spark_errors
from dataflow.runtime.task.progress import JobState
from dataflow.views.events import Events, events_since

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runners.spark.batch.driver import BatchQuery
    from dataflow.runtime.job.job import Job
    from dataflow.runtime.job.predicates import Predicate

__all__ = ["SparkJob"]

log = logging.getLogger("dataflow.spark")

_GRACE = 5.0
"""Seconds to wait, when a query is stopped, for a call of a user's function in the driver to return."""


class SparkJob(WatchedJob):
    """A job running on Spark; a context manager that cancels the job if it is left early.

    During ``wait``, Ctrl-C stops the query and then raises KeyboardInterrupt. If a user's function in the driver does
    not return within seconds, neither Ctrl-C nor a timeout waits for it. The query ends, and the job's directory is
    unlocked, when the function returns.

    `Pipeline.start` returns a job:

    >>> import dataflow as flow
    >>> SparkJob is flow.SparkJob
    True
    """

    def __init__(
        self,
        pipeline: str,
        query: StreamQuery | BatchQuery,
        driver: DriverSinks,
        checkpoint: Checkpointing | None,
        resources: ExitStack,
        line: ProgressLine | NoLine,
        meter: SparkMeter,
    ) -> None:
        super().__init__(pipeline, driver.notices, driver.clock, line)
        self._query = query
        self._driver = driver
        self._checkpoint = checkpoint
        self._resources = resources
        self._meter = meter
        self._ending = threading.Lock()
        self._stopped = threading.Event()
        self._released = threading.Event()
        self._stopping = threading.Thread(target=self._stop_query, name="spark-query", daemon=True)
        self._tables: Mapping[str, pa.Table] = {}
        self._result: RunResult | None = None
        self._failure: BaseException | None = None

    @property
    def id(self) -> str:
        """The id of the job: 32 hex digits, the same in all runs of a directory; new without checkpoints.

        >>> def ids(pipeline):
        ...     with pipeline.start("spark") as job:
        ...         return job.id == job.wait().job_id  # True
        """
        return self._driver.events.job_id

    @property
    def query(self) -> Any:
        """The ``StreamingQuery`` of a stream: after a restart another one. For a batch, its own object."""
        return self._query.current

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

    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> NoReturn:
        raise UnsupportedOnRunner(
            f"job.{where}",
            "spark",
            "Spark stores the state between micro-batches, and it cannot be read while the job runs",
            "use LocalRunner or SimulatedRunner",
        )

    def progress(self) -> JobProgress:
        """Return the progress after the micro-batches that are done; ``query.lastProgress`` has Spark's own.

        >>> def share_read(pipeline):
        ...     with pipeline.start("spark") as job:
        ...         result = job.wait()
        ...     return job.progress().done  # 1.0: all rows
        """
        return self._meter.read()

    def events(self, since: Events | None = None) -> Events:
        """Return what the driver recorded so far: micro-batches as checkpoints, and the work of the tasks in them.

        Args:
            since: return only what was recorded after these events, which this method returned earlier; None: all.

        Raises: ConfigurationError if ``since`` are events of another job.

        >>> def kinds(pipeline):
        ...     with pipeline.start("spark") as job:
        ...         job.wait()
        ...     return set(job.events().table["kind"].to_pylist())  # {'started', 'triggered', 'durable', 'work', ...}
        """
        self._driver.events.drain()
        return events_since(self._driver.events.log, since)

    def cancel(self) -> None:
        """Stop now. The micro-batch in progress is aborted, and repeated after a restart. A batch begins anew then.

        >>> def state_after_cancel(pipeline):
        ...     with pipeline.start("spark") as job:
        ...         job.cancel()
        ...     return job.state.value  # 'cancelled'
        """
        self._end(JobState.CANCELLED)

    def savepoint(self, path: str | os.PathLike[str], *, timeout: Duration | None = None) -> NoReturn:
        """Raise UnsupportedOnRunner: a job on Spark has no savepoints."""
        self._refuse_savepoint("job.savepoint")

    def _refuse_savepoint(self, what: str) -> NoReturn:
        raise UnsupportedOnRunner(
            what,
            "spark",
            "Spark keeps the state of a stream in a form of its own, which no copy of one checkpoint has, and a batch "
            "keeps none",
            "use LocalRunner or SimulatedRunner, or stop the job and copy its whole checkpoint directory",
        )

    def stop(
        self,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        drain: bool = False,
        timeout: Duration | None = None,
    ) -> RunResult:
        """Stop the job and return its result. A later run with ``restore="auto"`` resumes after the last micro-batch.

        A batch has no result before its end, so it is cancelled.

        Args:
            savepoint: refused, because a job on Spark has no savepoints.
            drain: refused.
            timeout: refused.

        Returns: the result of the run so far.

        Raises: the error that made the job fail; JobCancelled if it was cancelled; UnsupportedOnRunner for a savepoint.

        >>> def state_after_stop(pipeline):
        ...     with pipeline.start("spark") as job:
        ...         return job.stop().state.value  # 'stopped', or 'finished' if all rows were read
        """
        if savepoint is not None or drain or timeout is not None:
            self._refuse_savepoint("job.stop(savepoint=)")
        return self._deliver(self._stop)

    def _stop(self) -> RunResult:
        if self.state is JobState.RUNNING:
            self._end(self._stopped_state)
        return self._outcome()

    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        return self._meter.warnings() if result is None else result.warnings

    def _wait(self, limit: int | None) -> RunResult:
        if self._is_over:
            return self._outcome()
        self._watch(limit)
        self._end_if_running()
        return self._outcome()

    def _end_if_running(self) -> None:
        """End the job, if it is not over: finished if its query reached the end of the input, else stopped."""
        if not self._is_over:
            finished = not self._is_active() and self._driver.finished
            self._end(JobState.FINISHED if finished else self._stopped_state)

    @property
    def _stopped_state(self) -> JobState:
        """The state of a job that ended before its input did."""
        return JobState.STOPPED if self._driver.stops_in_between else JobState.CANCELLED

    def _outcome(self) -> RunResult:
        """Return the result of a job that is over, the same in each call. Raises as ``wait`` does."""
        if self._failure is not None:
            raise self._failure
        if self._meter.state is JobState.CANCELLED:
            why = "" if self._driver.stops_in_between else "; before the end of a batch there is nothing to resume from"
            raise JobCancelled(f"the job was cancelled{why}")
        self._result = self._result or self._meter.result(self._pipeline, self._checkpoint, self._tables)
        return self._result

    def _is_active(self) -> bool:
        try:
            return bool(self._query.isActive)
        except spark_errors():
            return False

    def _timed_out(self, limit: int) -> JobTimeout:
        reached = self.progress()
        self.cancel()
        return JobTimeout(
            f"the job did not end within the timeout of {duration_text(limit)} and was cancelled; run it again with a "
            f"longer timeout, or none: {reached}"
        )

    def _interrupted(self, pressed: CtrlC) -> KeyboardInterrupt:
        return KeyboardInterrupt()  # as a user's handler would raise; _wait_failed stops the query for both

    def _wait_failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) and error is not self._failure:
            self._stop_at_interrupt(error)
        else:
            self._end(JobState.FAILED)

    def _stop_at_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        """Stop, and add a note to ``interrupt`` that says how to resume."""
        self._line.close()
        # to the terminal, not to the log: the user who pressed Ctrl-C needs to see it
        what = "the query" if self._driver.stops_in_between else "the batch"
        print(f"interrupted: stopping {what}", file=sys.stderr, flush=True)
        self._end_if_running()
        if self._meter.state is JobState.FINISHED:
            interrupt.add_note("the job had finished: its output is complete")
        elif not self._driver.stops_in_between:
            interrupt.add_note("the batch was cancelled, and nothing of it is in its output: run it again")
        elif self._checkpoint is None:
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
                self._driver.record_failure(error, None)
                state, self._failure = JobState.FAILED, original_error(error)
                raise self._failure from None
            finally:
                try:
                    self._driver.events.end(state)
                    self._meter.end(state)
                finally:
                    self._release()

    def _stop_query(self) -> None:
        """Stop the query and release locks, when the last call of a user's function has returned."""
        try:
            self._query.stop()
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

    @property
    def _is_over(self) -> bool:
        return self._meter.state is not JobState.RUNNING

    @property
    def _failed_with(self) -> BaseException | None:
        return self._failure

    def _replaces(self, handler: Any) -> bool:
        return is_spark_handler(handler)

    def _leave(self) -> None:
        if self.state is JobState.RUNNING:  # not if its query is over
            self.cancel()

    def _over_within(self, seconds: float) -> bool:
        over = self._query_over(max(seconds, 0.001))  # Spark takes whole milliseconds
        if not over and self._driver.full:
            self._stop()
        return over or self._is_over

    def _query_over(self, seconds: float) -> bool:
        directory = self._driver.assignment.directory
        failure: BaseException | None = None
        try:
            over = bool(self._query.awaitTermination(seconds))
        except spark_errors() as error:
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
