"""Pipelines on Spark Structured Streaming: the runner.

Spark distributes, schedules, shuffles, keeps state and recovers; what runs in its workers are the operators of the
local engine, in chains like those of local tasks. A micro-batch takes the place of the barrier.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataflow.contracts.checkpointing import Checkpointing, input_identity
from dataflow.contracts.source import InputIdentity
from dataflow.errors import (
    CheckpointMismatch,
    CheckpointsExist,
    ConfigurationError,
    NoCheckpoint,
    UnsupportedOnRunner,
)
from dataflow.planning.graph import NamedGraph
from dataflow.planning.specs import Read
from dataflow.protocol.recovery import Policy, parse
from dataflow.runners.explain_table import Explanation
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import NoLine, ProgressLine
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.envelopes import DDL
from dataflow.runners.spark.explain import explained
from dataflow.runners.spark.job import SparkJob
from dataflow.runners.spark.job_directory import Home
from dataflow.runners.spark.keyed_tasks import processor_of
from dataflow.runners.spark.native_readers import Readers
from dataflow.runners.spark.placement import Stages, staged
from dataflow.runners.spark.places import location_of
from dataflow.runners.spark.progress import SparkMeter
from dataflow.runners.spark.quiet_logs import is_sparks
from dataflow.runners.spark.restore_report import restored
from dataflow.runners.spark.routing import router_of
from dataflow.runners.spark.session import active_session, parallelism_of, session_for
from dataflow.runners.spark.shipping import check_shippable
from dataflow.runners.spark.source_tasks import Assignment, beginnings, check_input, kept_tasks, source_of
from dataflow.runners.spark.user_errors import Carrier, original
from dataflow.runners.spark.worker_notes import forget
from dataflow.runtime.job.build_job import note_taken_back
from dataflow.runtime.restore.find_checkpoint import refuse_another, refuse_larger
from dataflow.runtime.task.contract_checks import naming_sink

__all__ = ["SparkRunner"]

log = logging.getLogger("dataflow.spark")

_KEY_GROUPS = 128
"""Slots of a keyed operator. Each costs a call a micro-batch, and there are no more tasks than slots."""


class SparkRunner:
    """Runs a pipeline on Spark.

    Args:
        session: the SparkSession to use, as it is; None: the active one, else one on this machine is started.
        rows_per_trigger: rows that a micro-batch should take from all sources together; it takes whole batches.
        conf: settings of Spark's for the session that is started, over those that we choose.
        sources: streaming DataFrames of the session by the names of sources: Spark reads in their place. For pipelines
            without state; the pipeline stays as it is, and reads its own sources on other runners. How much a
            micro-batch takes is up to the DataFrame (``maxFilesPerTrigger``, ``maxOffsetsPerTrigger``). Where the
            pipeline's own sources are bounded, a run takes what there is when it starts, and a later one what is new.
    """

    def __init__(
        self,
        session: Any = None,
        *,
        rows_per_trigger: int = 1_000_000,
        conf: Mapping[str, str] | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> None:
        if rows_per_trigger < 1:
            raise ConfigurationError(f"SparkRunner(rows_per_trigger=) is at least 1, got {rows_per_trigger}")
        self._session = session
        self._rows = rows_per_trigger
        self._conf = dict(conf or {})
        self._readers = Readers(sources or {})

    def __repr__(self) -> str:
        return f"SparkRunner(rows_per_trigger={self._rows:_})"

    def explain(
        self, pipeline: NamedGraph, *, parallelism: int | None = None, max_key_groups: int = _KEY_GROUPS
    ) -> Explanation:
        """Return a table of where each operator runs. No session is started for it.

        Without ``parallelism`` it is the parallelism of the active session. If there is none, it is the parallelism of
        the session that a run would start: by ``conf=``, else a subtask for each core of this machine.

        Raises: UnsupportedOnRunner for what cannot be done on Spark.
        """
        session = self._session or self._readers.session or active_session()
        most = parallelism_of(self._conf) if session is None else session.sparkContext.defaultParallelism
        lanes = parallelism or min(most, max_key_groups)
        return explained(pipeline.name, _staged(pipeline, lanes, max_key_groups, self._readers), self._readers.texts())

    def _found(self) -> Any:
        session = session_for(self._session or self._readers.session, self._conf)
        self._readers.check_session(session)
        return session

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int | None = None,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        max_key_groups: int | None = None,
        progress: bool = False,
    ) -> SparkJob:
        """Begin to run ``pipeline``; the returned job is a context manager.

        Args:
            parallelism: lanes of each source that does not say otherwise; None: as many as the job began with, or as
                the session has cores.
            checkpoint: where the job lives, on a disk that all workers see; None: a temporary directory, and a failure
                means to begin again. Spark's micro-batch is the barrier: of the rest only mode ``"aligned"`` and
                ``input_identity`` count.
            restore: ``"auto"`` (go on where the last micro-batch ended, else a fresh start), ``"never"``, ``"latest"``.
            max_key_groups: slots that keys are dealt out in; None: as many as the job began with, 128 for a new one.
            progress: while somebody waits for the job, keep a line about it on standard error.

        Raises: UnsupportedOnRunner for what cannot be done here exactly, before anything starts.
        """
        location = location_of(checkpoint)
        policy = parse(restore)
        if not isinstance(policy, Policy):
            raise UnsupportedOnRunner(
                f"restore={restore!r}", "spark", "Spark goes back to its last micro-batch and no further",
                'use restore="auto" or "latest", or begin again in another directory',
            )  # fmt: skip
        before = None if location is None else Home(location.absolute())
        if before is not None and checkpoint is not None:
            refuse_larger(before.restored_bytes, checkpoint.max_restore_bytes, f"the job in {before.path}")
        groups = max_key_groups or (before and before.key_groups) or _KEY_GROUPS
        known = parallelism or (before and before.lanes)
        if not self._readers:  # whose session is there already: what is refused is refused before one starts
            _staged(pipeline, known or 1, groups, self._readers)
        session = self._found()
        lanes = known or min(session.sparkContext.defaultParallelism, groups)
        stages = _staged(pipeline, lanes, groups, self._readers, input_identity(checkpoint))
        check_shippable(stages)
        home = before or Home(Path(tempfile.mkdtemp(prefix="barrierflow-spark-")).absolute())
        assignment = Assignment(stages, home, uuid.uuid4().hex[:12], self._rows)
        with CtrlC(replaces=is_sparks) as pressed, ExitStack() as held:
            if location is None:
                held.callback(home.remove)
            held.enter_context(home.hold(assignment.run_id))
            driver = _begin(assignment, pipeline.name, lanes, policy, self._readers.names, held)
            try:
                query = _query(session, assignment, driver, self._readers, bounded=pipeline.graph.bounded)
            except Exception as error:
                with driver.notices.as_notes():
                    raise original(error, home) from None
            driver.timing.query = query
            meter = SparkMeter(driver)
            line = ProgressLine(pipeline.name, meter, sys.stderr, driver.clock) if progress else NoLine()
            job = SparkJob(pipeline.name, query, driver, checkpoint, held.pop_all(), line, meter)
        if pressed.count:
            job.cancel()
            raise KeyboardInterrupt
        return job


def _staged(
    pipeline: NamedGraph, lanes: int, key_groups: int, readers: Readers, identity: InputIdentity = "mtime"
) -> Stages:
    readers.check(pipeline.graph)
    for node in pipeline.graph:
        if isinstance(node.spec, Read) and node.name not in readers and not node.spec.source.replayable:
            raise UnsupportedOnRunner(
                f"source {node.name!r}",
                "spark",
                "its rows cannot be read again, and Spark repeats micro-batches",
                "use the local runner, or write the rows to files first",
            )
    stages = staged(
        pipeline.graph, parallelism=lanes, key_groups=key_groups, readers=readers.names, input_identity=identity
    )
    readers.check_stages(stages)
    return stages


def _begin(
    assignment: Assignment, pipeline: str, lanes: int, policy: Policy, readers: list[str], held: ExitStack
) -> Driver:
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
        if saved.get("readers", []) != readers:
            raise CheckpointMismatch(
                f"the job in {home.path} began with Spark reading {saved.get('readers', [])}, and now it is to read "
                f"{readers}: give SparkRunner(sources=) the same, or begin in another directory"
            )
        home.check_complete(kept_tasks(assignment, done))  # whose they are depends on who reads
        check_input(assignment, done)
    else:
        home.check_new()
    report = restored(assignment, done)
    if home.used:
        home.forget_beyond(done)
    forget(home)
    driver = Driver(assignment, done, report)
    with driver.notices.as_notes():
        _bring_back(driver, lanes, pipeline, readers, held)
    return driver


def _bring_back(driver: Driver, lanes: int, pipeline: str, readers: list[str], held: ExitStack) -> None:
    """Lock the sinks, take back what micro-batches after the last one committed, and open the sinks of the driver."""
    assignment, done = driver.assignment, driver.done
    home, plan = assignment.home, assignment.stages.plan
    for sink in driver.sinks.values():
        held.enter_context(sink.hold(assignment.run_id))
    for name, sink in driver.sinks.items():
        if home.used:
            with naming_sink(name, sink, "recover"):
                taken_back = sink.recover(done, [])
            note_taken_back(driver.notices, name, taken_back, f"micro-batch {done + 1} was cut short")
        else:
            with naming_sink(name, sink, "begin"):
                sink.begin()
    if not home.used:
        tasks = [task for _, _, task in plan.tasks()]
        fixed = {"lanes": lanes, "key_groups": plan.max_key_groups, "readers": readers}
        job = {"pipeline": pipeline, **fixed, "nodes": plan.describe(), "tasks": tasks}
        home.begin(job, beginnings(assignment.stages))
    try:
        held.enter_context(driver)
    except Carrier as error:
        raise original(error) from None


def _query(session: Any, assignment: Assignment, driver: Driver, readers: Readers, *, bounded: bool) -> Any:
    """The streaming query: lanes or readers, then for each level a shuffle to its slots, and what follows there."""
    name = f"barrierflow_{assignment.run_id}"
    stages: Stages = assignment.stages
    far = replace(assignment, stages=stages.for_workers(with_sources=False))
    if readers:
        frame = readers.frame(far)
    else:
        session.dataSource.register(source_of(replace(assignment, stages=stages.for_workers(with_sources=True)), name))
        frame = session.readStream.format(name).load()
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
    """Whether lanes or readers leave anything raw."""
    from dataflow.runners.spark.placement import Hosting

    return any(
        stages.hosting[link.source] in (Hosting.LANE, Hosting.READER)
        and stages.hosting[link.target] is not Hosting.SLOT
        for link in stages.plan.links
    )
