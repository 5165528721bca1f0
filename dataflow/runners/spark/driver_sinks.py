"""The driver's own sinks: hosts that write rows which come from the workers, and the counters of a run.

A sink without two-phase commit is written to here, because Spark may run a task again and could not take back what it
wrote. Streams and batches share this part of the driver; what they do with a checkpoint differs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from dataflow.clock import SystemClock
from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.contracts.sink import Collector
from dataflow.errors import BarrierflowWarning, CleanupFailedWarning
from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import vertex_of
from dataflow.runners.run_result import presented
from dataflow.runners.spark.driver_events import DriverEvents
from dataflow.runners.spark.envelopes import Content, Envelope, merge_contents
from dataflow.runners.spark.frame_sinks import App, FrameSinks
from dataflow.runners.spark.metrics import Counters
from dataflow.runners.spark.quiet_logs import MicroBatchRejected
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import OutputRecorder, TaskHost
from dataflow.runners.spark.task_report import TaskReport, TaskWork
from dataflow.runners.spark.user_errors import original_error, place_of
from dataflow.runners.spark.worker_notes import wait_until_idle
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.restore.verification import two_phase_sinks
from dataflow.runtime.task.job_clock import JobClock
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runners.job_progress import ReadInput
    from dataflow.runners.micro_batches import MicroBatches
    from dataflow.runtime.task.parts import TaskState

__all__ = ["DriverSinks"]

_PATIENCE: Final = 5.0
"""Seconds to wait for a commit when the job is aborted, and for workers to end after the query was stopped."""


class DriverSinks(ABC):
    """The part of the driver that streams and batches share; a context manager that opens and closes its own sinks.

    ``restore_report``: the restore that the job started with; None: the job is new. ``done``: commits so far. ``app``:
    identifies the job to functions that get DataFrames.
    """

    stops_in_between: bool
    """Whether a job that is stopped has a result, and can be continued; otherwise stopping cancels it."""

    def __init__(
        self,
        assignment: Assignment,
        done: int,
        restore_report: RestoreReport | None = None,
        notices: Notices | None = None,
        app: App | None = None,
    ) -> None:
        self.assignment = assignment
        self.restore_report = restore_report
        self.records: list[CheckpointRecord] = []
        self.notices = notices or Notices()
        self.clock = JobClock(SystemClock(), self.notices.add)
        self.events = DriverEvents(self.clock)
        self.done = done
        self.restarts = 0  # how often the work was begun again after a transient failure of Spark
        self.error: BaseException | None = None
        self.sinks = two_phase_sinks(assignment.spark_plan.plan)
        self.frame_sinks = FrameSinks(assignment.spark_plan.frame_sinks, app or App())
        self._counters = Counters()
        self._given_up = False  # True: nothing more is committed
        self._lock = threading.Lock()  # guards _given_up and done, for the length of a commit
        self._sink_hosts: dict[str, TaskHost] = {}
        self._sink_work: dict[str, TaskWork] = {}  # what the hosts had done when their work was recorded last

    # --- what differs

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether all input was read, and everything is committed."""

    @abstractmethod
    def finish(self) -> None:
        """End the input of the driver's own sinks, once all input was read."""

    @abstractmethod
    def read_input(self) -> ReadInput | None:
        """Return how much of the input was read; None if that is not known."""

    @abstractmethod
    def micro_batches(self) -> MicroBatches | None:
        """Return the times of micro-batches; None: there are none in this kind of job."""

    def warnings(self) -> list[BarrierflowWarning]:
        """Return what the user is warned of when the job has finished or was stopped."""
        return []

    def notes(self) -> list[str]:
        """Return what the user should know of the counts and the output of a job that has finished."""
        return []

    @abstractmethod
    def wait_until_counted(self) -> None:
        """Wait a few seconds until Spark counts what was committed as done."""

    @abstractmethod
    def _restored(self, sink: str) -> TaskState | None:
        """Return the state that a sink of the driver starts from; None: there is none."""

    # --- the sinks

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:  # Python does not call __exit__ for what __enter__ raises
            self.__exit__()
            raise
        return self

    def _open(self) -> None:
        spark_plan = self.assignment.spark_plan
        for name in spark_plan.driver_sinks:
            recorder = OutputRecorder(spark_plan, 0, 0, distributed=False)
            vertex, run_id = spark_plan.plan.vertices[name], self.assignment.run_id
            state = self._restored(name)
            host = TaskHost(spark_plan, vertex, 0, state, run_id, recorder, notices=self.notices, clock=self.clock)
            self._sink_hosts = {**self._sink_hosts, name: host}  # a new mapping: others may be reading the old one
            host.__enter__()

    def __exit__(self, *error: object) -> None:
        for host in self._sink_hosts.values():
            host.close()

    @property
    def _collectors(self) -> Mapping[str, Collector]:
        heads = {name: host.chain.head.operator for name, host in self._sink_hosts.items()}
        return {name: head for name, head in heads.items() if isinstance(head, Collector)}

    @property
    def full(self) -> bool:
        """Whether a collecting sink has its maximum of rows."""
        return any([collector.full for collector in self._collectors.values()])

    def tables(self) -> Mapping[str, pa.Table]:
        """Return the rows of collecting sinks."""
        tables = {name: collector.result() for name, collector in self._collectors.items()}
        return presented(self.assignment.spark_plan.graph, tables)

    def _deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Write rows to the driver's own sinks, in the order of the steps."""
        contents: dict[str, list[Content]] = defaultdict(list)
        for e in envelopes:
            contents[self.assignment.spark_plan.plan.links[e.link].target].append(Content.decode(e.payload))
        for name, parts in contents.items():
            for rows in merge_contents(parts).rows():
                self._sink_hosts[name].push(0, rows)

    def _write_frame(self, name: str, frame: Any, number: int) -> TaskReport:
        """Give the rows of a batch to a sink as a DataFrame; return the report of it."""
        rows = self.frame_sinks.write(name, frame, number)
        return TaskReport(task_id(name, 0), [OperatorMetrics(name, rows)], work=[TaskWork(0, rows, 0, 0)])

    def _sink_states(self, round_: int) -> list[TaskState]:
        return [host.snapshot(round_) for host in self._sink_hosts.values()]

    # --- events

    def record_failure(self, error: BaseException, why: str | None) -> None:
        """Record an error that ends the work, unless the job was given up, which ends it with errors of Spark's.

        ``why``: why the work failed; None: the error says it.
        """
        if not self._given_up:
            raised = type(original_error(error, self.assignment.directory)).__name__
            self.events.failed(raised, place_of(error), why)

    def _record_tasks(self, reports: Iterable[TaskReport], now: int, since: int | None = None) -> None:
        """Record what tasks report; ``now`` and ``since``: see `DriverEvents.worked`."""
        works = [(vertex_of(report.task), work) for report in reports for work in report.work]
        self.events.worked(works, now, since)

    def _record_sinks(self, since: int | None = None) -> None:
        """Record what the driver's own sinks did since the last call; ``since``: see `DriverEvents.worked`."""
        works = []
        for name, host in self._sink_hosts.items():
            report = host.report()
            (work,) = report.work
            total = work._replace(busy=_busy_in_operators(report))
            before = self._sink_work.get(name, TaskWork(0, 0, 0, 0))
            works.append((name, total.since(before)))
            self._sink_work[name] = total
        self.events.worked(works, self.clock.now(), since)

    @contextmanager
    def _commit_of(self, sink: str, number: int) -> Iterator[None]:
        """Record an error of the commit in the block."""
        try:
            yield
        except Exception as error:
            self.events.commit_failed(number, sink, error)
            raise

    # --- commits

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Hold the lock of commits. Raises: MicroBatchRejected if the job was given up."""
        with self._lock:
            if self._given_up:
                raise MicroBatchRejected("the job has ended")
            yield

    def give_up(self) -> None:
        """Commit nothing more. Wait a few seconds for a commit that has started."""
        in_time = self._lock.acquire(timeout=_PATIENCE)
        self._given_up = True
        if in_time:
            self._lock.release()

    def sweep(self) -> None:
        """Delete the staged rows of aborted tasks, whose workers were killed before they could delete them.

        If a worker still runs after a few seconds, the next start deletes the rows that it stages after this.
        """
        if not wait_until_idle(self.assignment.directory, _PATIENCE):
            self.notices.add(
                CleanupFailedWarning,
                "a Spark worker still ran after the job had ended; the next start deletes the rows that it stages",
            )
        for name, sink in self.sinks.items():
            try:
                sink.sweep()
            except Exception as error:
                what = f"the staged rows of sink {name!r} stay until the next start deletes them: {error!r}"
                self.notices.add(CleanupFailedWarning, what)

    def metrics(self) -> Counters:
        """Return the current counters of every operator, including the driver's own sinks."""
        counters = self._counters.copy()
        for host in self._sink_hosts.values():
            report = host.report()
            counters.add(replace(report, busy=_busy_in_operators(report)))
        return counters


def _busy_in_operators(report: TaskReport) -> int:
    """Return how long the operators of a driver's sink worked. Its host exists for the whole job, and mostly waits."""
    return sum([metrics.busy for metrics in report.operators])
