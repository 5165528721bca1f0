"""The driver's part of a batch: it runs the plan, takes the only checkpoint, commits, and adds up counters.

A crash before the checkpoint is durable leaves staged rows that the next start deletes. After it, the next start only
commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dataflow.contracts.source import Split
from dataflow.errors import BatchRepeatedWarning, SparkFailed
from dataflow.events.plan_shape import task_id
from dataflow.protocol.events import BarrierKind
from dataflow.runners.job_progress import ReadInput
from dataflow.runners.job_thread import JobThread
from dataflow.runners.spark.batch.attempts import mixed_attempts
from dataflow.runners.spark.batch.checkpoint import BatchCheckpoint
from dataflow.runners.spark.batch.frames import MadeFrames
from dataflow.runners.spark.batch.row_counts import RowCounts
from dataflow.runners.spark.batch.tasks import CHECKPOINT
from dataflow.runners.spark.driver_sinks import DriverSinks
from dataflow.runners.spark.envelopes import REPORT, envelopes_of
from dataflow.runners.spark.frame_sinks import App
from dataflow.runners.spark.metrics import handles_of, read_report
from dataflow.runners.spark.session_kinds import SparkJobs
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.transient_failures import LOST, TRIES, reason_to_repeat
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.task_input import SplitState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchDriver", "BatchQuery"]


class MixedAttempts(Exception):
    """Rows of these tasks come from several attempts. The argument is the list of the tasks."""


class BatchDriver(DriverSinks):
    """The driver's part of a batch. ``restored``: its checkpoint, if an earlier run took it: nothing is computed then.

    Attributes:
        pipeline: the name of the pipeline.
        listed: the splits of each source.
    """

    stops_in_between = False

    def __init__(
        self,
        assignment: Assignment,
        checkpoint: BatchCheckpoint,
        splits: Mapping[str, Sequence[Split]],
        restored: RestoredCheckpoint | None,
        notices: Notices,
        row_counts: RowCounts,
        app: App,
    ) -> None:
        done, report = (0, None) if restored is None else (1, restored.report)
        super().__init__(assignment, done, report, notices, app)
        self.pipeline = checkpoint.recording.pipeline
        self._checkpoint = checkpoint
        self.listed = splits
        self._row_counts = row_counts
        self._states = {} if restored is None else restored.states

    @property
    def finished(self) -> bool:
        return self.done > 0

    def finish(self) -> None:
        """Do nothing: the input ends before the checkpoint."""

    def read_input(self) -> ReadInput | None:
        if not self.finished:
            return None
        splits = [SplitState(split, done=True) for own in self.listed.values() for split in own]
        return ReadInput.of(splits) if splits else None

    def notes(self) -> list[str]:
        return self._row_counts.notes()

    def micro_batches(self) -> None:
        return None

    def wait_until_counted(self) -> None:
        """Do nothing: a batch has its own list of what was committed."""

    def _restored(self, sink: str) -> TaskState | None:
        return self._states.get(task_id(sink, 0))

    def complete(self, sent_rows: Sequence[pa.Table], for_sinks: Mapping[str, Any]) -> None:
        """Write what the tasks sent to the driver, take the checkpoint, and commit.

        ``for_sinks``: the DataFrames of sinks that get them.

        Raises: MixedAttempts, before anything is written, if rows may be missing or there twice.
        """
        started = self.clock.now()
        self.events.triggered(CHECKPOINT, BarrierKind.FINAL, started)
        envelopes = [e for rows in sent_rows for batch in rows.to_batches() for e in envelopes_of(batch)]
        number = CHECKPOINT
        attempts = [(read_report(e.payload), e.round) for e in envelopes if e.link == REPORT]
        sent = [e for e in envelopes if e.link != REPORT]
        taken = [(e.link, e.source, e.round) for e in sent]
        if mixed := mixed_attempts(self.assignment.spark_plan.plan, attempts, taken):
            raise MixedAttempts(mixed)
        reports = [report for report, _ in attempts]
        self._record_tasks(reports, started)
        self.check_files()
        with serialized_errors("the driver"):
            # before rows are delivered: if Spark has lost rows, all of this is done again
            frames = [self._write_frame(name, frame, 0) for name, frame in for_sinks.items()]
            self._record_tasks(frames, self.clock.now(), started)
            reports += frames
            self._deliver(sent)
            for host in self._sink_hosts.values():
                host.finish()
            self._record_sinks(started)
            transactions = handles_of(reports)
            with self._committing():
                states = self._sink_states(number)
                size = self._checkpoint.write(number, self.listed, states, transactions, self.clock)
                durable = self.clock.now()
                self.events.rested(durable)
                self.events.durable(number, durable, size)
                for name, sink in self.sinks.items():
                    try:
                        with self._commit_of(name, number):
                            sink.commit(number, transactions.get(name, []))
                    except Exception as error:
                        error.add_note(
                            f"raised while sink {name!r} committed the batch; its rows are staged: if the job has a "
                            "checkpoint=, run it again with restore='auto' to commit them"
                        )
                        raise
                self.done = number
        self.events.committed(number, self.clock.now())
        for report in reports:
            self._counters.add(self._row_counts.corrected(report))
            self.notices.include(report.notices)
        for report in self._row_counts.reports(self._counters):
            self._counters.add(report)
        self.records.append(CheckpointRecord(number, BarrierKind.FINAL, durable - started, size, {}))

    def check_files(self) -> None:
        """Raise InputChanged if files that Spark has read are not those that were listed."""
        for name, source in self.assignment.spark_plan.native_sources.items():
            for split in self.listed[name]:
                source.check(split)

    def begin_anew(self, reason: str, error: Exception, tries_left: int) -> None:
        """Delete what was staged, and warn that the batch is computed again. Raises: SparkFailed without tries left."""
        if not tries_left:
            raise SparkFailed(f"{reason}, {TRIES} times; run the batch again when the cluster is stable", error)
        self.restarts += 1
        self.notices.add(BatchRepeatedWarning, f"{reason}: the batch was computed again from the beginning")
        for sink in self.sinks.values():
            sink.sweep()
        self.events.begin(self.done)


def _reason_to_repeat(error: Exception) -> str | None:
    """Return why a batch that failed is computed again; None: its failure is not Spark's, or would come again."""
    if isinstance(error, MixedAttempts):
        return f"{LOST} ({', '.join(error.args[0][:_SHOWN])}), whose rows may differ from those sent before"
    return reason_to_repeat(error)


_PAUSE: Final = 0.05
"""Seconds between two attempts to cancel Spark's jobs."""
_SHOWN: Final = 3
"""Tasks that a message names."""


class BatchQuery:
    """A batch that runs on a thread, with the methods that a job uses of a ``StreamingQuery``."""

    def __init__(self, session: Any, frames: Callable[[], MadeFrames] | None, driver: BatchDriver) -> None:
        self._driver = driver
        self._jobs = SparkJobs(session, f"barrierflow_{driver.assignment.run_id}")
        self._frames = frames
        self._over = JobThread(self._run, "spark-batch")
        self._over.start()

    def _run(self) -> None:
        if self._frames is None:
            return
        try:
            with self._jobs.running(f"the batch {self._driver.pipeline}"):
                self._run_tries(self._frames)
        except BaseException as error:
            self._driver.error = error

    def _run_tries(self, frames: Callable[[], MadeFrames]) -> None:
        for tries_left in reversed(range(TRIES)):
            try:
                self._driver.check_files()
                made = frames()
                self._driver.complete([frame.toArrow() for frame in made.for_driver], made.for_sinks)
            except Exception as error:
                reason = _reason_to_repeat(error)
                self._driver.record_failure(error, reason)
                if reason is None:
                    raise
                self._driver.begin_anew(reason, error, tries_left)
            else:
                break

    @property
    def current(self) -> BatchQuery:
        """The batch itself, as the query that runs."""
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the batch is running."""
        return not self._over.is_set()

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        """Wait ``timeout`` seconds; return whether the batch is over."""
        return self._over.wait(timeout)

    def stop(self) -> None:
        """Cancel what Spark runs, and wait for the end."""
        while not self._over.is_set():
            self._jobs.cancel()
            self._over.wait(_PAUSE)

    @property
    def share(self) -> float | None:
        """The share of Spark's tasks that are done; None: that is not known."""
        plan, counted = self._driver.assignment.spark_plan, self._jobs.tasks()
        if counted is None:
            return None
        done, known = counted
        return min(done / max(len(plan.source_tasks) + plan.depth * plan.partitions, known, 1), 1.0)
