"""A job that runs on Spark: its streaming query, watched and brought to an end, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dataflow.checkpointing import Checkpointing, Mode
from dataflow.clock import Duration, microseconds
from dataflow.errors import JobCancelled, JobTimeout
from dataflow.operator import Guarantee
from dataflow.plan import Plan
from dataflow.runners.base import RunResult, TaskMetrics
from dataflow.runners.spark.driving import Driver
from dataflow.runners.spark.failing import Carrier, original
from dataflow.runners.spark.metering import SparkMeter
from dataflow.runners.spark.session import pyspark
from dataflow.runners.watching import JobProgress, NoLine, ProgressLine
from dataflow.runtime.job import JobState
from dataflow.runtime.progress import Meter
from dataflow.specs import Read, Write

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkJob"]

_LONG = 0.1
"""Seconds between two looks at a query."""


class SparkJob:
    """A job running on Spark; a context manager that cancels it if it is left early. ``query`` is Spark's own."""

    def __init__(
        self,
        pipeline: str,
        query: Any,
        driver: Driver,
        checkpoint: Checkpointing | None,
        held: ExitStack,
        line: ProgressLine | NoLine,
        meter: SparkMeter,
    ) -> None:
        self.query = query
        self._pipeline = pipeline
        self._driver = driver
        self._checkpoint = checkpoint
        self._held = held
        self._line = line
        self._meter = meter
        self._started = driver.clock.now()
        self._ending = threading.Lock()
        self._tables: Mapping[str, pa.Table] = {}
        self._result: RunResult | None = None

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        return self._meter.state

    def progress(self) -> JobProgress:
        """Where the job stands after the micro-batches that are done; ``query.lastProgress`` has Spark's own view."""
        return self._meter.read()

    def cancel(self) -> None:
        """Stop now; the micro-batch in progress is given up, and comes again after a restart."""
        self._end(JobState.CANCELLED)

    def stop(self) -> RunResult:
        """Stop; a later run with ``restore="auto"`` goes on behind the last micro-batch that was done."""
        if self._result is None:
            self._end(JobState.STOPPED)
            self._result = self._made(JobState.STOPPED)
        return self._result

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Until the job is over (or cancelled, after ``timeout``, with JobTimeout); raises what made it fail.

        Ctrl-C stops the query before KeyboardInterrupt goes on.
        """
        if self._result is not None:
            return self._result
        limit = None if timeout is None else microseconds(timeout, "wait(timeout=)")
        with closing(self._line):
            try:
                while not self._over():
                    self._line.tick()
                    if self._driver.full:
                        return self.stop()
                    if limit is not None and self._driver.clock.now() - self._started > limit:
                        reached = self.progress()
                        self.cancel()
                        raise JobTimeout(f"the job was not done in time and was cancelled: {reached}")
            except KeyboardInterrupt as interrupt:  # Spark's own handler raises it in this thread
                self._end(JobState.STOPPED)
                if self._checkpoint is not None:
                    interrupt.add_note("run again with restore='auto' to go on behind the last micro-batch")
                raise
            except BaseException:
                if self.state is JobState.RUNNING:
                    self._end(JobState.FAILED)
                raise
        job, done = self._driver.assignment, self._driver.done
        self._end(JobState.FINISHED if job.home.ended(job.lanes, done) else JobState.STOPPED)
        if self.state is JobState.CANCELLED:
            raise JobCancelled("the job was cancelled")
        self._result = self._result or self._made(self.state)
        return self._result

    def _end(self, state: JobState) -> None:
        """Stop the query, if that is news, and let go of everything."""
        with self._ending:
            if self.state is not JobState.RUNNING:
                return
            try:
                self.query.stop()
                if state is JobState.FINISHED:
                    self._driver.finish()
                self._tables = self._driver.tables()
            except Carrier as error:
                state = JobState.FAILED
                raise original(error) from None
            finally:
                self._meter.state = state
                self._held.close()

    def _over(self) -> bool:
        found: BaseException | None = None
        try:
            over = bool(self.query.awaitTermination(_LONG))
        except pyspark("pyspark.errors").StreamingQueryException as error:
            found, over = original(self._driver.error or error), True
        else:
            if over and self._driver.error is not None:
                found = original(self._driver.error)
        if found is None:
            return over
        with self._ending:  # who stops a query interrupts it, and it may take that for a failure
            if self.state is JobState.RUNNING:
                raise found from None
        return True

    def _made(self, state: JobState) -> RunResult:
        plan: Plan = self._driver.assignment.stages.plan
        counters = self._driver.metrics()
        metrics = []
        for vertex in plan.vertices.values():
            operators = [counters.of(node.name) for node in vertex.nodes]
            metrics.append(TaskMetrics(vertex.name, Meter(busy=sum(o.busy for o in operators)), operators, ()))
        graph = plan.graph
        durable = Guarantee.EXACTLY_ONCE if self._checkpoint is not None else Guarantee.AT_MOST_ONCE
        rows = {o.operator: o.rows_in for task in metrics for o in task.operators}
        return RunResult(
            pipeline=self._pipeline,
            state=state,
            mode=None if self._checkpoint is None else Mode.ALIGNED,
            guarantee=graph.guarantee(durable),
            rows_in={node.name: rows[node.name] for node in graph if isinstance(node.spec, Read)},
            rows_out={node.name: rows[node.name] for node in graph if isinstance(node.spec, Write)},
            tables=self._tables,
            checkpoints=tuple(self._driver.records) if self._checkpoint is not None else (),
            failures=(),
            restore_report=self._driver.restored,
            metrics=metrics,
            duration=self._driver.clock.now() - self._started,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.cancel()
