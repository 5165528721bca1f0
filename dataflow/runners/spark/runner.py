"""Pipelines on Spark Structured Streaming: the runner and the running job.

Spark distributes, schedules, shuffles, keeps state and recovers; what runs in its workers are the operators of the
local engine, in chains like those of local tasks. A micro-batch takes the place of the barrier.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dataflow.checkpointing import Checkpointing, Mode
from dataflow.clock import Duration, microseconds
from dataflow.errors import (
    CheckpointsExist,
    ConfigurationError,
    IgnoredSettingWarning,
    JobCancelled,
    JobTimeout,
    NoCheckpoint,
    UnsupportedOnRunner,
    user_frame,
)
from dataflow.operator import Guarantee
from dataflow.plan import Plan
from dataflow.protocol.recovery import Policy, parse
from dataflow.runners.base import RunResult, TaskMetrics
from dataflow.runners.spark.driving import Driver
from dataflow.runners.spark.envelopes import DDL
from dataflow.runners.spark.explaining import Explanation, explained
from dataflow.runners.spark.failing import Carrier, original
from dataflow.runners.spark.home import Home
from dataflow.runners.spark.lanes import Assignment, beginnings, check_input, ended, source_of
from dataflow.runners.spark.metering import SparkMeter
from dataflow.runners.spark.restoring import restored
from dataflow.runners.spark.routing import router_of
from dataflow.runners.spark.session import pyspark, session_for
from dataflow.runners.spark.shipping import check_shippable
from dataflow.runners.spark.slots import processor_of
from dataflow.runners.spark.staging import Stages, staged
from dataflow.runners.watching import JobProgress, NoLine, ProgressLine
from dataflow.runtime.job import JobState
from dataflow.runtime.progress import Meter
from dataflow.runtime.restore import refuse_another
from dataflow.specs import Read, Write
from dataflow.store.base import CheckpointStore

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.pipeline import Pipeline

__all__ = ["SparkJob", "SparkRunner"]

log = logging.getLogger("dataflow.spark")

_LONG = 0.1
"""Seconds between two looks at a query."""


class SparkRunner:
    """Runs a pipeline on Spark.

    Args:
        session: the SparkSession to use, as it is; None: the active one, else one on this machine is started.
        rows_per_trigger: rows that a micro-batch should take from all sources together; it takes whole batches.
        conf: settings of Spark's for the session that is started, over those that we choose.
    """

    def __init__(
        self, session: Any = None, *, rows_per_trigger: int = 1_000_000, conf: Mapping[str, str] | None = None
    ) -> None:
        if rows_per_trigger < 1:
            raise ConfigurationError(f"SparkRunner(rows_per_trigger=) is at least 1, got {rows_per_trigger}")
        self._session = session
        self._rows = rows_per_trigger
        self._conf = dict(conf or {})

    def __repr__(self) -> str:
        return f"SparkRunner(rows_per_trigger={self._rows:_})"

    def explain(self, pipeline: Pipeline, *, parallelism: int | None = None, max_key_groups: int = 128) -> Explanation:
        """What becomes of each operator; needs no Spark unless ``parallelism`` is left open.

        Raises: UnsupportedOnRunner for what cannot be done on Spark.
        """
        lanes = parallelism or session_for(self._session, self._conf).sparkContext.defaultParallelism
        return explained(pipeline.name, _staged(pipeline, lanes, max_key_groups))

    def start(
        self,
        pipeline: Pipeline,
        *,
        parallelism: int | None = None,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        max_key_groups: int = 128,
        progress: bool = False,
    ) -> SparkJob:
        """Begin to run ``pipeline``; the returned job is a context manager.

        Args:
            parallelism: lanes of each source that does not say otherwise; None: as many as the session has cores.
            checkpoint: where the job lives, on a disk that all workers see; None: a temporary directory, and a failure
                means to begin again. Spark's micro-batch is the barrier: of the rest only mode ``"aligned"`` counts.
            restore: ``"auto"`` (go on where the last micro-batch ended, else a fresh start), ``"never"``, ``"latest"``.
            max_key_groups: slots that keys are dealt out in.
            progress: while somebody waits for the job, keep a line about it on standard error.

        Raises: UnsupportedOnRunner for what cannot be done here exactly, before anything starts.
        """
        location = _location(checkpoint)
        policy = parse(restore)
        if not isinstance(policy, Policy):
            raise UnsupportedOnRunner(
                f"restore={restore!r}", "spark", "Spark goes back to its last micro-batch and no further",
                'use restore="auto" or "latest", or begin again in another directory',
            )  # fmt: skip
        session = session_for(self._session, self._conf)
        home = Home(Path(location or tempfile.mkdtemp(prefix="barrierflow-spark-")).absolute())
        lanes = parallelism or home.lanes or min(session.sparkContext.defaultParallelism, max_key_groups)
        stages = _staged(pipeline, lanes, max_key_groups)
        check_shippable(stages)
        assignment = Assignment(stages, home, uuid.uuid4().hex[:12], self._rows)
        with ExitStack() as held:
            if location is None:
                held.callback(home.remove)
            held.enter_context(home.hold(assignment.run_id))
            driver = _begin(assignment, pipeline.name, lanes, policy, held)
            query = _query(session, assignment, driver, bounded=pipeline.graph.bounded)
            meter = SparkMeter(driver)
            line = ProgressLine(pipeline.name, meter, sys.stderr, driver.clock) if progress else NoLine()
            return SparkJob(pipeline.name, query, driver, checkpoint, held.pop_all(), line, meter)


def _staged(pipeline: Pipeline, lanes: int, key_groups: int) -> Stages:
    for node in pipeline.graph:
        if isinstance(node.spec, Read) and not node.spec.source.replayable:
            raise UnsupportedOnRunner(
                f"source {node.name!r}",
                "spark",
                "its rows cannot be read again, and Spark repeats micro-batches",
                "use the local runner, or write the rows to files first",
            )
    return staged(pipeline.graph, parallelism=lanes, key_groups=key_groups)


def _location(checkpoint: Checkpointing | None) -> Path | None:
    if checkpoint is None:
        return None
    if checkpoint.mode is not Mode.ALIGNED:
        raise UnsupportedOnRunner(
            f"checkpoint mode {checkpoint.mode.value!r}", "spark", "a micro-batch is a barrier that nothing overtakes",
            'use mode="aligned", or the local runner',
        )  # fmt: skip
    if isinstance(checkpoint.location, CheckpointStore):
        raise UnsupportedOnRunner(
            f"checkpoints in {checkpoint.location!r}", "spark", "Spark keeps its own, in a directory",
            "give Checkpointing(...) the path of a directory",
        )  # fmt: skip
    if checkpoint.every is not None:
        warnings.warn(
            "on Spark every micro-batch is a checkpoint: Checkpointing(every=) does not count, SparkRunner("
            "rows_per_trigger=) says how long one is; exactly once",
            IgnoredSettingWarning,
            stacklevel=user_frame(),
        )
    return Path(checkpoint.location)


def _begin(assignment: Assignment, pipeline: str, lanes: int, policy: Policy, held: ExitStack) -> Driver:
    """Lock what the sinks write to, bring sinks and tasks to the point the job starts from; all checks come first."""
    home, plan = assignment.home, assignment.stages.plan
    if home.used and policy is Policy.NEVER:
        raise CheckpointsExist(f'a job lives in {home.path} and restore="never" was asked for: use another directory')
    if not home.used and policy is Policy.LATEST:
        raise NoCheckpoint(f'restore="latest": no job lives in {home.path}; restore="auto" begins one')
    done = home.done if home.used else 0
    if home.used:
        saved = home.job()
        refuse_another(saved["nodes"], saved["tasks"], f"the job in {home.path}", saved["pipeline"], plan)
        check_input(assignment, done)
    report = restored(assignment, done)
    if home.used:
        home.forget_beyond(done)
    driver = Driver(assignment, done, report)
    for sink in driver.sinks.values():
        held.enter_context(sink.hold(assignment.run_id))
    for sink in driver.sinks.values():
        if home.used:
            sink.recover(done, [])
        else:
            sink.begin()
    if not home.used:
        tasks = [task for _, _, task in plan.tasks()]
        job = {"pipeline": pipeline, "lanes": lanes, "nodes": plan.describe(), "tasks": tasks}
        home.begin(job, [*beginnings(assignment.stages), *driver.beginnings()])
    try:
        return held.enter_context(driver)
    except Carrier as error:
        raise original(error) from None


def _query(session: Any, assignment: Assignment, driver: Driver, *, bounded: bool) -> Any:
    """The streaming query: lanes, then for each level a shuffle to its slots and what follows in each partition."""
    name = f"barrierflow_{assignment.run_id}"
    session.dataSource.register(
        source_of(replace(assignment, stages=assignment.stages.for_workers(with_sources=True)), name)
    )
    frame = session.readStream.format(name).load()
    stages: Stages = assignment.stages
    far = replace(assignment, stages=stages.for_workers(with_sources=False))
    router = router_of(far)
    if _needs_routing(stages):
        frame = frame.mapInArrow(router, DDL)
    for level in range(1, stages.depth + 1):
        frame = frame.groupBy("slot").transformWithState(
            statefulProcessor=processor_of(far, level),
            outputStructType=DDL,
            outputMode="Append",
            timeMode="None",
        )
        frame = frame.mapInArrow(router, DDL)
    writer = frame.writeStream.outputMode("append").foreachBatch(driver.batch).queryName(name)
    writer = writer.option("checkpointLocation", assignment.home.spark)
    return (writer.trigger(availableNow=True) if bounded else writer.trigger(processingTime="0 seconds")).start()


def _needs_routing(stages: Stages) -> bool:
    """Whether lanes leave anything raw."""
    from dataflow.runners.spark.staging import Hosting

    return any(
        stages.hosting[link.source] is Hosting.LANE and stages.hosting[link.target] is not Hosting.SLOT
        for link in stages.plan.links
    )


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
        self._end(JobState.FINISHED if ended(self._driver.assignment, self._driver.done) else JobState.STOPPED)
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
