"""The driver's part in each micro-batch: it writes to its own sinks, commits, and adds up counters.

Exactly-once output relies on the order: Spark counts a micro-batch as done only after this has finished. If a
micro-batch is repeated, the sinks have been taken back to the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import Any, Final

from dataflow.errors import AwaitedSplitsWarning, BarrierflowWarning, CleanupFailedWarning, NothingToReadWarning
from dataflow.events.plan_shape import task_id
from dataflow.protocol.events import BarrierKind
from dataflow.runners.job_progress import ReadInput
from dataflow.runners.micro_batches import MicroBatches
from dataflow.runners.spark.driver_sinks import DriverSinks
from dataflow.runners.spark.envelopes import REPORT, Envelope, decoder, envelopes_of
from dataflow.runners.spark.expressions.spark_types import nullable, spark_schema
from dataflow.runners.spark.frame_sinks import App
from dataflow.runners.spark.metrics import Counters, MicroBatchTimes, handles_of, read_report
from dataflow.runners.spark.quiet_logs import MicroBatchRejected
from dataflow.runners.spark.source_tasks import Assignment, positions_of
from dataflow.runners.spark.split_positions import listed_splits
from dataflow.runners.spark.transient_failures import reason_to_repeat
from dataflow.runners.spark.user_errors import serialized_errors, spark_errors
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.parts import TaskState

__all__ = ["Driver"]

_COUNTING: Final = 5.0
"""Seconds to wait until Spark counts a committed micro-batch as done."""
_PAUSE: Final = 0.02
"""Seconds between two checks."""


class Driver(DriverSinks):
    """The driver's part of a stream after ``done`` micro-batches."""

    stops_in_between = True

    def __init__(
        self,
        assignment: Assignment,
        done: int,
        restore_report: RestoreReport | None = None,
        notices: Notices | None = None,
        app: App | None = None,
    ) -> None:
        super().__init__(assignment, done, restore_report, notices, app)
        self.clock.raise_to(assignment.directory.newest_time)
        self.times = MicroBatchTimes(done)
        self._begun = done
        self._awaited: tuple[int, list[str]] = (0, [])  # the number of splits that time waits for, and some of them
        self._counted = {done: Counters()}  # the counters after the last micro-batches, by the number of these

    @property
    def finished(self) -> bool:
        return self.assignment.directory.ended(self.assignment.source_task_ids, self.done)

    def read_input(self) -> ReadInput | None:
        tasks = self.assignment.source_task_ids
        states = [self.assignment.directory.read_task(task, self.done) for task in tasks]
        read = [positions_of(self.assignment, state).rows for state in states if state is not None]
        rows = self._rows_of_splits
        return None if rows is None else ReadInput(rows, min(rows, sum(read)))

    @cached_property
    def _rows_of_splits(self) -> int | None:
        """The rows of all splits; None: not all say how many they have, or Spark reads the input."""
        directory, run_id = self.assignment.directory, self.assignment.run_id
        tasks = self.assignment.source_task_ids
        counts = [split.info.get("rows") for task in tasks for split in listed_splits(directory, task, run_id)]
        known = [count for count in counts if isinstance(count, int)]
        return sum(known) if tasks and len(known) == len(counts) else None

    @property
    def _may_have_more(self) -> bool:
        """Whether Spark's own readers read what there is, and a later run may find more."""
        return bool(self.assignment.spark_plan.given) and self.assignment.spark_plan.plan.logical.bounded

    def warnings(self) -> list[BarrierflowWarning]:
        found: list[BarrierflowWarning] = []
        count, splits = self._awaited
        if count:
            found.append(
                AwaitedSplitsWarning(
                    f"SparkSource(splits=) names {count} {'split' if count == 1 else 'splits'} without any row yet, "
                    f"{', '.join(splits)}{', ...' if count > len(splits) else ''}, for which time waits: windows stay "
                    "open until each has some; leave out splits that do not exist, or give "
                    "with_watermark(idle_after=)"
                )
            )
        given = self.assignment.spark_plan.given
        read = any(self._counters.of(name).rows_in for name in given)
        if self._may_have_more and not self._begun and not read:
            names = ", ".join(map(repr, given))
            found.append(
                NothingToReadWarning(
                    f"Spark had no rows for {names} when the stream started, and it did not wait for any; to wait for "
                    "rows, as of Kafka or the rate source, declare op.spark_table(schema, bounded=False)"
                )
            )
        return found

    def notes(self) -> list[str]:
        logical = self.assignment.spark_plan.plan.logical
        if not self._may_have_more or not any(node.spec.assigns_time for node in logical):
            return []
        return [
            "a later run may have more input for Spark's own readers, so what waits for time to pass, such as open "
            "windows, has not come out; with the same checkpoint= a later run continues it"
        ]

    def micro_batches(self) -> MicroBatches:
        return self.times.collected(self.done)

    def _restored(self, sink: str) -> TaskState | None:
        return self.assignment.directory.read_task(task_id(sink, 0), self.done)

    def batch(self, frame: Any, number: int) -> None:
        """Process what micro-batch ``number`` sent to the driver; the function for ``foreachBatch``.

        An error is stored in ``error``, and Spark gets a short message. Spark's patterns overflow the stack on long
        messages, and without a reply (after SystemExit) it would wait forever.
        """
        try:
            self._batch(frame, number)
        except BaseException as error:
            self.error = error
            self.record_failure(error, reason_to_repeat(error, in_stream=True))
            raise MicroBatchRejected(f"micro-batch {number}: {type(error).__name__}") from None

    def _batch(self, frame: Any, number: int) -> None:
        started = self.clock.now()
        self.events.triggered(number + 1, BarrierKind.CHECKPOINT, started)
        self.times.catch_up(number)
        self._check_that_it_counts()
        with serialized_errors("the driver"):
            self.assignment.directory.write_time(number, self.clock.time())  # nothing has run for the micro-batch yet
        links = self._frame_links
        with ExitStack() as kept:
            if links:
                frame = frame.persist()
                kept.callback(_unpersist, frame)
            theirs = [link for numbers in links.values() for link in numbers]
            own = frame.where(~frame["link"].isin(theirs)) if links else frame
            rows: list[Envelope] = [e for batch in own.toArrow().to_batches() for e in envelopes_of(batch)]
            reports = [read_report(e.payload) for e in rows if e.link == REPORT]
            with serialized_errors("the driver"):
                for name, numbers in links.items():
                    self._check_that_it_counts()  # before each function, because one may take long
                    reports.append(self._write_frame(name, self._frame_of(frame, name, numbers), number))
        self._check_that_it_counts()
        with serialized_errors("the driver"):
            self._deliver([e for e in rows if e.link != REPORT])
            with self._committing():
                for state in self._sink_states(number + 1):
                    self.assignment.directory.write_task(state, number + 1)
                for name, handles in handles_of(reports).items():
                    with self._commit_of(name, number + 1):
                        self.sinks[name].commit(number + 1, handles)
                self.done = number + 1
        for report in reports:
            self._counters.add(report)
            self.notices.include(report.notices)
        self._awaited = max([report.awaited for report in reports if report.awaited], default=self._awaited)
        if not self.assignment.spark_plan.source_tasks:
            self.assignment.directory.drop_before(number)
        self._counted = {number: self._counted.get(number, Counters()), number + 1: self.metrics()}
        self._record_sinks(started)
        ended = self.clock.now()
        self._record_tasks(reports, ended, started)
        # the size of state, and the bytes written of it, are in Spark's query.recentProgress
        self.records.append(CheckpointRecord(number + 1, BarrierKind.CHECKPOINT, ended - started, 0, {}))
        self.events.durable(number + 1, ended)
        self.events.committed(number + 1, ended)

    def _check_that_it_counts(self) -> None:
        """Raise, before sinks get rows, if this run was given up or another one has the directory."""
        with self._committing(), serialized_errors("the driver"):
            self.assignment.directory.check_owner(self.assignment.run_id)

    @property
    def _frame_links(self) -> Mapping[str, Sequence[int]]:
        """The names of the sinks that get DataFrames, with the numbers of the links to them."""
        links: dict[str, list[int]] = {}
        for number, link in enumerate(self.assignment.spark_plan.plan.links):
            if link.target in self.frame_sinks.sinks:
                links.setdefault(link.target, []).append(number)
        return links

    def _frame_of(self, frame: Any, sink: str, links: Sequence[int]) -> Any:
        """Return the rows that were sent to a sink over ``links``, of the envelopes in a micro-batch."""
        schema = self.assignment.spark_plan.plan.vertices[sink].head.schema
        return frame.where(frame["link"].isin(list(links))).mapInArrow(decoder(links), spark_schema(nullable(schema)))

    def go_back(self, done: int) -> None:
        """Take the driver's own sinks and the counters back to micro-batch ``done``, the last but one at most."""
        self.times.collected(self.done)  # of a query that is over
        for host in self._sink_hosts.values():
            host.close()
        self.done, self._counters = done, self._counted[done].copy()
        self.records = [record for record in self.records if record.checkpoint <= done]
        self._open()
        self._sink_work = {}
        self.events.begin(done)

    def finish(self) -> None:
        """End the input of the driver's own sinks, once all input was read. A later run of the job does not repeat it.

        A later run may have more input for Spark's own readers. So sinks after them get the end in every run.
        """
        for host in self._sink_hosts.values():
            if not host.ended:
                host.finish()
                if self.assignment.spark_plan.source_tasks:
                    self.assignment.directory.write_task(host.snapshot(self.done), self.done)
        self._record_sinks()

    def wait_until_counted(self) -> None:
        """Wait a few seconds until Spark counts committed micro-batches as done.

        The next start deletes the rows of a micro-batch that Spark does not count.
        """
        deadline = time.monotonic() + _COUNTING
        while self.assignment.directory.done < self.done and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def sweep(self) -> None:
        super().sweep()
        try:
            self.assignment.directory.sweep()
        except OSError as error:
            what = f"unfinished files of killed workers stay until the next start deletes them: {error!r}"
            self.notices.add(CleanupFailedWarning, what)


def _unpersist(frame: Any) -> None:
    """Free a DataFrame. If Spark is gone there is nothing to free, and the error that matters is another one."""
    with suppress(*spark_errors()):
        frame.unpersist()
