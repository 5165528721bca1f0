"""The driver's part in each micro-batch: it writes to its own sinks, commits, and adds up counters.

Exactly-once output relies on the order: Spark counts a micro-batch as done only after this has finished. If a
micro-batch is repeated, the sinks have been taken back to the one before it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dataflow.clock import Clock, SystemClock
from dataflow.contracts.sink import Collector, TwoPhaseSink
from dataflow.errors import CleanupFailedWarning
from dataflow.planning.physical_plan import task_id
from dataflow.planning.specs import Write
from dataflow.protocol.events import BarrierKind
from dataflow.runners.run_result import presented
from dataflow.runners.spark.envelopes import REPORT, Content, Envelope, envelopes_of, merge_contents
from dataflow.runners.spark.metrics import Counters, MicroBatchTimes, handles_of, read_report
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.quiet_logs import MicroBatchRejected
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runners.spark.worker_notes import wait_until_idle
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Driver"]

_PATIENCE: Final = 5.0
"""Seconds to wait for a commit when the job is aborted, and for workers to end after the query was stopped."""
_COUNTING: Final = 5.0
"""Seconds to wait until Spark counts a committed micro-batch as done."""
_PAUSE: Final = 0.02
"""Seconds between two checks."""


class Driver:
    """The driver's part of a job after ``done`` micro-batches; a context manager that opens and closes its own sinks.

    ``restore_report``: the restore that the job started with; None: the job is new.
    """

    def __init__(
        self,
        assignment: Assignment,
        done: int,
        restore_report: RestoreReport | None = None,
        notices: Notices | None = None,
    ) -> None:
        self.assignment = assignment
        self.restore_report = restore_report
        self._counters = Counters()
        self.times = MicroBatchTimes(done)
        self.records: list[CheckpointRecord] = []
        self.notices = notices or Notices()
        self.clock: Clock = SystemClock()
        self.done = done
        self.error: BaseException | None = None
        self._given_up = False  # True: no further micro-batch is committed
        self._committing = threading.Lock()  # guards _given_up and done, for the length of a commit
        spark_plan = assignment.spark_plan
        self.sinks: dict[str, TwoPhaseSink] = {
            node.name: node.spec.sink
            for node in spark_plan.plan.graph
            if isinstance(node.spec, Write) and isinstance(node.spec.sink, TwoPhaseSink)
        }
        self._sink_hosts: dict[str, TaskHost] = {}

    def __enter__(self) -> Driver:
        try:
            self._open()
        except BaseException:  # Python does not call __exit__ for what __enter__ raises
            self.__exit__()
            raise
        return self

    def _open(self) -> None:
        spark_plan, directory = self.assignment.spark_plan, self.assignment.directory
        for name, placement in spark_plan.placements.items():
            if placement is Placement.DRIVER:
                state = directory.read_task(task_id(name, 0), self.done)
                recorder = OutputRecorder(spark_plan, 0, 0, distributed=False)
                vertex, run_id = spark_plan.plan.vertices[name], self.assignment.run_id
                host = TaskHost(spark_plan, vertex, 0, state, run_id, recorder, notices=self.notices)
                self._sink_hosts[name] = host
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
        return presented(self.assignment.spark_plan.plan.graph, tables)

    def batch(self, frame: Any, number: int) -> None:
        """Process what micro-batch ``number`` sent to the driver; the function for ``foreachBatch``.

        An error is stored in ``error``, and Spark gets a short message. Spark's patterns overflow the stack on long
        messages, and without a reply (after SystemExit) it would wait forever.
        """
        try:
            self._batch(frame, number)
        except BaseException as error:
            self.error = error
            raise MicroBatchRejected(f"micro-batch {number}: {type(error).__name__}") from None

    def _batch(self, frame: Any, number: int) -> None:
        started = self.clock.now()
        self.times.catch_up(number)
        rows: list[Envelope] = [e for batch in frame.toArrow().to_batches() for e in envelopes_of(batch)]
        with serialized_errors("the driver"):
            reports = [read_report(e.payload) for e in rows if e.link == REPORT]
            self.assignment.directory.check_owner(self.assignment.run_id)
            self._deliver([e for e in rows if e.link != REPORT])
            with self._committing:
                if self._given_up:
                    raise MicroBatchRejected("the job has ended")
                for host in self._sink_hosts.values():
                    self.assignment.directory.write_task(host.snapshot(number + 1), number + 1)
                for name, handles in handles_of(reports).items():
                    self.sinks[name].commit(number + 1, handles)
                self.done = number + 1
        for report in reports:
            self._counters.add(report)
            self.notices.include(report.notices)
        if not self.assignment.spark_plan.source_tasks:
            self.assignment.directory.drop_before(number)
        # the size of state, and the bytes written of it, are in Spark's query.recentProgress
        self.records.append(CheckpointRecord(number + 1, BarrierKind.CHECKPOINT, self.clock.now() - started, 0, {}))

    def _deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Write rows to the driver's own sinks, in the order of the steps."""
        contents: dict[str, list[Content]] = defaultdict(list)
        for e in envelopes:
            contents[self.assignment.spark_plan.plan.links[e.link].target].append(Content.decode(e.payload))
        for name, parts in contents.items():
            for rows in merge_contents(parts).rows():
                self._sink_hosts[name].push(0, rows)

    def finish(self) -> None:
        """End the input of the driver's own sinks, once all input was read. A later run of the job does not repeat it.

        A later run may have more input for Spark's own readers. So sinks after them get the end in every run.
        """
        for host in self._sink_hosts.values():
            if not host.ended:
                host.finish()
                if self.assignment.spark_plan.source_tasks:
                    self.assignment.directory.write_task(host.snapshot(self.done), self.done)

    def give_up(self) -> None:
        """Commit no further micro-batch. Wait a few seconds for a commit that has started."""
        in_time = self._committing.acquire(timeout=_PATIENCE)
        self._given_up = True
        if in_time:
            self._committing.release()

    def wait_until_counted(self) -> None:
        """Wait a few seconds until Spark counts committed micro-batches as done.

        The next start deletes the rows of a micro-batch that Spark does not count.
        """
        deadline = time.monotonic() + _COUNTING
        while self.assignment.directory.done < self.done and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def sweep(self) -> None:
        """Delete the staged rows of aborted micro-batches, whose workers were killed before they could delete them.

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
        try:
            self.assignment.directory.sweep()
        except OSError as error:
            what = f"unfinished files of killed workers stay until the next start deletes them: {error!r}"
            self.notices.add(CleanupFailedWarning, what)

    def metrics(self) -> Counters:
        """Return the current counters of every operator, including the driver's own sinks."""
        counters = self._counters.copy()
        for host in self._sink_hosts.values():
            report = host.report()  # its busy time covers the whole job, in which it mostly waits
            counters.add(replace(report, busy=sum(operator[5] for operator in report.operators)))
        return counters
