"""A job that runs on Spark: its streaming query, watched and brought to an end, and what came of it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dataflow.clock import Duration, microseconds
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.sink import Guarantee
from dataflow.errors import (
    BarrierflowWarning,
    JobCancelled,
    JobTimeout,
    StillRunningWarning,
    UnsupportedOnRunner,
)
from dataflow.planning.specs import Read, Write
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import JobProgress, NoLine, ProgressLine
from dataflow.runners.run_result import OperatorMetrics, RunResult, TaskMetrics, changes_of, outputs_of, together
from dataflow.runners.run_warnings import late_rows, note_failure_left, raise_warnings
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.progress import SparkMeter
from dataflow.runners.spark.quiet_logs import is_sparks
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.user_errors import Carrier, original
from dataflow.runtime.task.progress import JobState, TaskTimes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkJob"]

log = logging.getLogger("dataflow.spark")

_LONG = 0.1
"""Seconds between two looks at a query."""
_GRACE = 5.0
"""Seconds that whoever stops a query waits for a call of a user's function in the driver to return."""


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
        """Where the job stands. Looked at when its query is over, the job comes to its end, as ``wait`` has it."""
        if self._meter.state is JobState.RUNNING and not self._is_active():
            try:
                self._wait(None)
            except BaseException as error:
                if error is not self._failure and not isinstance(error, JobCancelled):
                    raise
        return self._meter.state

    def on_checkpoint(self, predicate: Any) -> NoReturn:
        """Not here. Raises: UnsupportedOnRunner."""
        raise UnsupportedOnRunner(
            "job.on_checkpoint",
            "spark",
            "the state between two micro-batches is Spark's own, and is not read back",
            "use LocalRunner or SimulatedRunner",
        )

    def stop_when(self, predicate: Any) -> NoReturn:
        """Not here, see `on_checkpoint`. Raises: UnsupportedOnRunner."""
        self.on_checkpoint(predicate)

    def progress(self) -> JobProgress:
        """Where the job stands after the micro-batches that are done; ``query.lastProgress`` has Spark's own view."""
        return self._meter.read()

    def cancel(self) -> None:
        """Stop now; the micro-batch in progress is given up, and comes again after a restart."""
        self._end(JobState.CANCELLED)

    def stop(self) -> RunResult:
        """Stop; a later run with ``restore="auto"`` resumes after the last micro-batch that was done.

        Raises what made the job fail, if it has failed; JobCancelled, if it was cancelled.
        """
        return self._warned(self._stop)

    def _stop(self) -> RunResult:
        if self.state is JobState.RUNNING:
            self._end(JobState.STOPPED)
        return self._outcome()

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Until the job is over (or cancelled, after ``timeout``, with JobTimeout); raises what made it fail.

        Ctrl-C stops the query before KeyboardInterrupt goes on. Where a user's function in the driver does not return
        within seconds, neither waits for it: it ends, and the directory of the job is free, when the function returns.

        Warns, once, of what went wrong without ending the job, as `LocalJob.wait` does.
        """
        return self._warned(lambda: self._wait(timeout))

    def _warned(self, outcome: Callable[[], RunResult]) -> RunResult:
        """Return or raise what ``outcome`` does; the first call also gives out the warnings of the run."""
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
            found = self._warnings(together(self._metrics())) if result is None else result.warnings
            raise_warnings(found, result=result, error=error)

    def _warnings(self, operators: Sequence[OperatorMetrics]) -> list[BarrierflowWarning]:
        graph = self._driver.assignment.stages.plan.logical
        return [*self._driver.notices.warnings(), *late_rows(graph, operators)]

    def _wait(self, timeout: Duration | None) -> RunResult:
        if self._meter.state is not JobState.RUNNING:
            return self._outcome()
        began = self._driver.clock.now()
        limit = None if timeout is None else microseconds(timeout, "wait(timeout=)")
        with CtrlC(replaces=is_sparks) as pressed, closing(self._line):
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
                        raise JobTimeout(f"the job was not done in time and was cancelled: {reached}")
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and error is not self._failure:
                    self._interrupted(error)
                else:
                    self._end(JobState.FAILED)
                raise
        job, done = self._driver.assignment, self._driver.done
        self._end(JobState.FINISHED if job.home.ended(job.lanes, done) else JobState.STOPPED)
        return self._outcome()

    def _outcome(self) -> RunResult:
        """What came of a job that is over, whoever asks and however often. Raises as ``wait`` does."""
        if self._failure is not None:
            raise self._failure
        if self._meter.state is JobState.CANCELLED:
            raise JobCancelled("the job was cancelled")
        self._result = self._result or self._made(self._meter.state)
        return self._result

    def _is_active(self) -> bool:
        try:
            return bool(self.query.isActive)
        except _gone():
            return False

    def _interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """Stop, and note on ``interrupt`` how to go on."""
        self._line.close()
        # to the terminal, not to the log: who pressed Ctrl-C must know what is going on
        print("interrupted: stopping the query", file=sys.stderr, flush=True)
        self._end(JobState.STOPPED)
        if self._checkpoint is None:
            interrupt.add_note("the job had no checkpoints: run it again from the beginning")
        else:
            done = f"{self._driver.done} micro-batches were done" if self._driver.done else "no micro-batch was done"
            interrupt.add_note(f"{done}; run again with restore='auto' to resume after them")

    def _end(self, state: JobState) -> None:
        """Stop the query, if that is news, and let go of everything."""
        with self._ending:
            if self._meter.state is not JobState.RUNNING:
                return
            if state is not JobState.FINISHED:
                self._driver.give_up()
            if state is JobState.STOPPED:
                self._driver.until_counted()
            self._stopping.start()
            try:
                if not self._stopped.wait(_GRACE):
                    self._driver.notices.add(
                        StillRunningWarning,
                        f"job {self._pipeline!r} is {state.value}, but a function in the driver has not returned yet",
                    )
                if state is JobState.FINISHED:
                    self._driver.finish()
                self._tables = self._driver.tables()
            except Carrier as error:
                state, self._failure = JobState.FAILED, original(error)
                raise self._failure from None
            finally:
                try:
                    self._meter.end(state)
                finally:
                    self._let_go()

    def _stop_query(self) -> None:
        """Stop the query, and give locks back: when the last call of a user's function has returned."""
        try:
            self.query.stop()
        except Exception as error:  # whoever killed the JVM has stopped it, too
            log.debug("the query could not be stopped: %s", error)
        finally:
            self._stopped.set()
            self._released.wait()
            try:
                if self._meter.state in (JobState.STOPPED, JobState.FINISHED):
                    self._driver.sweep()
            finally:
                self._held.close()

    def _let_go(self) -> None:
        self._released.set()
        if self._stopped.is_set():
            self._stopping.join()

    def _over(self) -> bool:
        home = self._driver.assignment.home
        found: BaseException | None = None
        try:
            over = bool(self.query.awaitTermination(_LONG))
        except _gone() as error:
            found, over = original(self._driver.error or error, home), True
        else:
            if over and self._driver.error is not None:
                found = original(self._driver.error, home)
        if found is None:
            return over
        with self._ending:  # who stops a query interrupts it, and it may take that for a failure
            if self._meter.state is JobState.RUNNING:
                self._failure = self._failure or found
                raise self._failure from None
        return True

    def _made(self, state: JobState) -> RunResult:
        metrics = self._metrics()
        graph = self._driver.assignment.stages.plan.graph
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
            micro_batches=self._driver.timing.taken(self._driver.done),
            warnings=tuple(self._warnings(together(metrics))),
            outputs=outputs_of(graph),
            changes=changes_of(graph),
        )

    def _metrics(self) -> list[TaskMetrics]:
        counters = self._driver.metrics()
        metrics = []
        for vertex in self._driver.assignment.stages.plan.vertices.values():
            operators = [counters.of(node.name) for node in vertex.nodes]
            busy = max(counters.busy(vertex.name), sum(o.busy for o in operators))
            metrics.append(TaskMetrics(vertex.name, TaskTimes(busy=busy), operators, ()))
        return metrics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.state is JobState.RUNNING:  # not if its query is over
            self.cancel()
        if self._meter.state is JobState.FAILED and not self._asked and error is not self._failure:
            note_failure_left(self._driver.notices, self._pipeline, self._failure)
        self._warn(error=error)


def _gone() -> tuple[type[Exception], ...]:
    """What asking Spark about a query raises: the query failed, or there is no JVM any more."""
    return (pyspark("pyspark.errors").PySparkException, pyspark("py4j.protocol").Py4JError, OSError)
