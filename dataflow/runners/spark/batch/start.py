"""Starts of batches on Spark: the checks, the plan as a DataFrame of envelopes, and the job.

    Spark's operators -> tasks -> [shuffle -> each partition runs a subtask of each vertex of a level] ... -> the driver

Spark runs all of it as one job; if its operators also need rows that tasks have computed, as one for each such turn. A
task that it runs again stages its rows again, and only what the report of the successful attempt names is committed.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataflow.contracts.checkpointing import Checkpointing, input_identity
from dataflow.contracts.execution import Execution
from dataflow.contracts.source import Split
from dataflow.events.recorder import OpenFile
from dataflow.planning.batch_graph import refuse_in_batch
from dataflow.planning.graph import NamedGraph
from dataflow.planning.specs import Read
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import NoLine, ProgressLine
from dataflow.runners.spark.batch.checkpoint import BatchCheckpoint, stored_plan
from dataflow.runners.spark.batch.driver import BatchDriver, BatchQuery
from dataflow.runners.spark.batch.frames import BatchFrames
from dataflow.runners.spark.batch.row_counts import RowCounts
from dataflow.runners.spark.driver_events import Recording
from dataflow.runners.spark.frame_sinks import app_of
from dataflow.runners.spark.job import SparkJob
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.lowering import reason_against
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.placement import SparkPlan, plan_for_spark
from dataflow.runners.spark.progress_and_result import SparkMeter
from dataflow.runners.spark.quiet_logs import is_spark_handler
from dataflow.runners.spark.session import check_settings
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.user_errors import SerializedError, original_error
from dataflow.runners.spark.worker_check import check_workers
from dataflow.runtime.job.build_job import store_of
from dataflow.runtime.restore.find_checkpoint import refuse_without_store
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.restore.new_input import with_new_input
from dataflow.runtime.restore.sink_starts import check_sinks, refuse_sinks_inside, with_targets
from dataflow.runtime.restore.verification import two_phase_sinks
from dataflow.runtime.task.contract_checks import check_splits
from dataflow.runtime.task.notices import Notices
from dataflow.store.memory import MemoryStore

__all__ = ["BatchStart", "batch_plan", "splits_of_sources"]


def batch_plan(
    pipeline: NamedGraph,
    source_tasks: int,
    partitions: int,
    checkpoint: Checkpointing | None,
    method: str,
    readers: NativeReaders,
) -> SparkPlan:
    """Return the plan of ``pipeline`` as a batch. ``readers``: the DataFrames in place of sources.

    Raises: ConfigurationError for what cannot be a batch; UnsupportedOnRunner for what cannot run on Spark.
    """
    readers.check_for_batch(pipeline.graph)
    refuse_in_batch(pipeline.graph, checkpoint, method, readers.names)
    return plan_for_spark(
        pipeline.graph,
        parallelism=source_tasks,
        key_groups=partitions,
        input_identity=input_identity(checkpoint),
        execution=Execution.BATCH,
        reason_against=reason_against,
        readers=readers.names,
    )


@dataclass(frozen=True)
class BatchStart:
    """What a user has asked for; ``session`` is where it runs."""

    pipeline: NamedGraph
    session: Any
    source_tasks: int
    partitions: int
    checkpoint: Checkpointing | None
    restore: object
    progress: bool
    full_metrics: bool
    readers: NativeReaders
    open_file: OpenFile | None

    def start(self, check: Callable[[SparkPlan], None]) -> SparkJob:
        """Start the batch and return the job. ``check`` raises UnsupportedOnRunner for plans that workers cannot run.

        Raises: see `SparkRunner.start`.
        """
        refuse_without_store(self.restore, self.checkpoint)
        spark_plan = batch_plan(self.pipeline, self.source_tasks, self.partitions, self.checkpoint, "run", self.readers)
        check(spark_plan)
        check_settings(self.session)
        check_workers(self.session, spark_plan)
        notices = Notices()
        with notices.as_notes():
            spark_plan = spark_plan.loaded(notices.add)
        with CtrlC(replaces=is_spark_handler) as pressed, ExitStack() as resources:
            directory = JobDirectory(Path(tempfile.mkdtemp(prefix="barrierflow-spark-")).absolute())
            resources.callback(directory.remove)
            assignment = Assignment(spark_plan, directory, uuid.uuid4().hex[:12], 0)
            row_counts = RowCounts(spark_plan, full=self.full_metrics)
            driver = self._driver(assignment, row_counts, notices, resources)
            frames = BatchFrames(self.session, assignment, driver.listed, row_counts, self.readers)
            query = BatchQuery(self.session, None if driver.finished else frames.make, driver)
            meter = SparkMeter(driver, query)
            line = ProgressLine(self.pipeline.name, meter, sys.stderr, driver.clock) if self.progress else NoLine()
            job = SparkJob(self.pipeline.name, query, driver, self.checkpoint, resources.pop_all(), line, meter)
        if pressed.count:
            job.cancel()
            raise KeyboardInterrupt
        return job

    def _driver(
        self, assignment: Assignment, row_counts: RowCounts, notices: Notices, resources: ExitStack
    ) -> BatchDriver:
        """Lock the store and the sinks, and take them to the point where the batch starts. All checks come first."""
        checkpoint, graph = self.checkpoint, self.pipeline.graph
        store = MemoryStore() if checkpoint is None else store_of(checkpoint)
        store.open(assignment.run_id)
        resources.callback(store.close)
        stored = stored_plan(graph, assignment.spark_plan, input_identity(checkpoint))
        recording = Recording.of(self.pipeline.name, checkpoint, assignment.spark_plan, self.open_file)
        found = BatchCheckpoint(store, stored, assignment.run_id, recording, random_id(None))
        with notices.as_notes():
            restored = found.find(self.restore, checkpoint)
            restored = restored and with_targets(with_new_input(restored, stored), two_phase_sinks(stored))
            splits = splits_of_sources(assignment.spark_plan) if restored is None else {}
            app = app_of(_directory(checkpoint), assignment.spark_plan.frame_sinks, notices)
            driver = BatchDriver(assignment, found, splits, restored, notices, row_counts, app)
            resources.callback(driver.events.close)
            job, _ = found.job(restored)
            driver.events.open(recording, job, assignment.spark_plan, notices)
            refuse_sinks_inside(self.restore, graph)
            for sink in driver.sinks.values():
                resources.enter_context(sink.hold(assignment.run_id))
            check_sinks(assignment.spark_plan.graph, driver.sinks, restored, store).carry_out(notices)
            store.remove_orphans()
            try:
                resources.enter_context(driver)
            except SerializedError as error:
                raise original_error(error) from None
        driver.events.begin(driver.done)
        return driver


def splits_of_sources(spark_plan: SparkPlan) -> Mapping[str, Sequence[Split]]:
    """Return the splits of each source; a DataFrame has none."""
    reads = {node.name: node.spec.source for node in spark_plan.graph if isinstance(node.spec, Read)}
    return {name: [] if name in spark_plan.given else check_splits(source, name) for name, source in reads.items()}


def _directory(checkpoint: Checkpointing | None) -> Path | None:
    """Return the directory of the checkpoint; None: there is none, or it is in another store."""
    location = None if checkpoint is None else checkpoint.location
    return (
        Path(location) if isinstance(location, Path) or (isinstance(location, str) and "://" not in location) else None
    )
