"""Pipelines on Spark Structured Streaming: the runner.

Spark distributes, schedules, shuffles, keeps state and recovers; what runs in its workers are the operators of the
local engine, in chains like those of local tasks. A micro-batch takes the place of the barrier.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import uuid
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dataflow.contracts.checkpointing import Checkpointing, Mode, input_identity
from dataflow.contracts.source import InputIdentity
from dataflow.errors import (
    ConfigurationError,
    IgnoredSettingWarning,
    UnsupportedOnRunner,
    user_frame,
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
from dataflow.runners.spark.progress_and_result import SparkMeter
from dataflow.runners.spark.quiet_logs import is_sparks
from dataflow.runners.spark.restore import begin
from dataflow.runners.spark.routing import router_of
from dataflow.runners.spark.session import active_session, parallelism_of, pyspark, session_for
from dataflow.runners.spark.source_tasks import Assignment, source_of
from dataflow.runners.spark.user_errors import original
from dataflow.runtime.restore.find_checkpoint import refuse_larger
from dataflow.store.base import CheckpointStore

__all__ = ["SparkRunner"]

log = logging.getLogger("dataflow.spark")

_KEY_GROUPS = 128
"""Slots of a keyed operator. Each costs a call a micro-batch, and there are no more tasks than slots."""
_IGNORED: Final = ("every", "min_pause", "timeout", "max_concurrent", "tolerable_failures", "keep", "duplicates")


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
            driver = begin(assignment, pipeline.name, lanes, policy, self._readers.names, held)
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


# PLACES
"""Where a job on Spark lives, and which settings of checkpoints count there."""


def location_of(checkpoint: Checkpointing | None) -> Path | None:
    """The directory of a job; None: a temporary one. Warns of settings that do not count.

    Raises: UnsupportedOnRunner for modes and locations that Spark does not have.
    """
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
    plain = Checkpointing(checkpoint.location)
    given = [f"{name}=" for name in _IGNORED if getattr(checkpoint, name) != getattr(plain, name)]
    if given:
        warnings.warn(
            f"on Spark every micro-batch is a checkpoint, exactly once: Checkpointing({', '.join(given)}) does not "
            "count; SparkRunner(rows_per_trigger=) says how long a micro-batch is",
            IgnoredSettingWarning,
            stacklevel=user_frame(),
        )
    return Path(checkpoint.location)


# SHIPPING
"""Whether what a user wrote can go to Spark's workers: asked operator by operator, before anything starts."""


def check_shippable(stages: Stages) -> None:
    """Raise UnsupportedOnRunner where an operator cannot be pickled; sources, which may hold tables, are not tried."""
    pickle: Any = pyspark("pyspark.cloudpickle")
    for node in stages.for_workers(with_sources=False).plan.graph:
        try:
            pickle.dumps(node.spec)
        except Exception as error:
            raise UnsupportedOnRunner(
                f"operator {node.name!r}",
                "spark",
                f"it cannot be sent to other processes ({error})",
                "make locks, files and connections inside of its functions, or in open() of an operator",
            ) from error
