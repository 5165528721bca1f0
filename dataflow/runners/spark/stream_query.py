"""A stream that runs on Spark: its query, and another one after each transient failure.

Spark ends a query when a task of it has failed more often than Spark runs it again. The query after it does what a new
process would do: sinks and tasks are taken back to the last micro-batch that Spark counts as done, and the stream
continues there. So no row is lost or there twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dataflow.errors import SparkFailed, StreamRestartedWarning
from dataflow.runners.job_thread import JobThread
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.transient_failures import TRIES, reason_to_repeat
from dataflow.runners.spark.user_errors import original_error, spark_errors

__all__ = ["StreamQuery"]


class StreamQuery:
    """The queries of a stream, one after the other, with the methods that a job uses of a ``StreamingQuery``.

    ``start`` starts a query; ``go_back`` takes sinks and tasks of ``driver`` back to the last micro-batch that is done.
    """

    def __init__(self, start: Callable[[], Any], driver: Driver, go_back: Callable[[], None]) -> None:
        self._start = start
        self._driver = driver
        self._go_back = go_back
        self._failure: Exception | None = None  # of the last query
        self._stopped = False
        self._changing = threading.Lock()  # held while a query is replaced, or stopped
        self._tried, self._tries = driver.done, 1  # a micro-batch, and how often it was tried
        self.current = driver.times.query = start()
        self._over = JobThread(self._run, "spark-stream")
        self._over.start()

    def _run(self) -> None:
        while True:
            failure: Exception | None = None
            try:
                self.current.awaitTermination()
            except spark_errors() as error:
                failure = error
            try:
                if not self._replaced(self._driver.error or failure):
                    self._failure = failure
                    return
            except BaseException as error:
                self._driver.error = error
                return

    def _replaced(self, failure: BaseException | None) -> bool:
        """Start another query if ``failure`` is transient; return whether it did. None: the query has ended."""
        reason = None if failure is None else reason_to_repeat(failure, in_stream=True)
        with self._changing:
            if failure is not None and self._driver.error is None:  # it was not raised within a micro-batch's function
                self._driver.record_failure(failure, reason)
            if failure is None or reason is None or self._stopped:
                return False
            directory = self._driver.assignment.directory
            done = directory.done
            self._tries = self._tries + 1 if done == self._tried else 2
            self._tried = done
            if self._tries > TRIES:
                last = str(original_error(failure, directory)).removeprefix("Spark failed: ")
                what = f"the stream failed {TRIES} times in a row after {done} micro-batches: {last}"
                raise SparkFailed(what, failure)
            self._driver.error = None
            self._go_back()
            self._driver.restarts += 1
            self._driver.notices.add(
                StreamRestartedWarning,
                f"{reason}: the stream was restarted after {done} micro-batches, which were done "
                f"(attempt {self._tries} of {TRIES} at the next one)",
            )
            self.current = self._driver.times.query = self._start()
        return True

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the stream is running."""
        return not self._over.is_set()

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        """Wait ``timeout`` seconds; return whether the stream is over. Raises: the error of its last query."""
        over = self._over.wait(timeout)
        if over and self._failure is not None:
            raise self._failure
        return over

    def stop(self) -> None:
        """Stop the query, start no other one, and wait for the end."""
        self._stopped = True
        with self._changing:
            self.current.stop()
        self._over.wait()
