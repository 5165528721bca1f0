"""What the driver does with each micro-batch: rows of its own sinks, commits, counters.

The order is what makes the output exact. Spark counts a micro-batch as done only when this is through; one that is
repeated finds the sinks taken back to the one before it.
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
from dataflow.runners.spark.envelopes import REPORT, Content, Envelope, envelopes_of, together
from dataflow.runners.spark.micro_batch_times import Timing
from dataflow.runners.spark.placement import Hosting
from dataflow.runners.spark.quiet_logs import Told
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.task_reports import Counters, handles_of, read_report
from dataflow.runners.spark.user_errors import carried
from dataflow.runners.spark.worker_notes import until_idle
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Driver"]

_PATIENCE: Final = 5.0
"""Seconds to wait for a commit when the job is given up, and for workers to end when the query was stopped."""
_COUNTING: Final = 5.0
"""Seconds to wait until Spark counts a committed micro-batch as done."""
_PAUSE: Final = 0.02
"""Seconds between two looks."""


class Driver:
    """The driver's part of a job, from behind ``done`` micro-batches on; a context manager around its own sinks.

    ``restored`` is what the job went back to; None: it is a new one.
    """

    def __init__(self, assignment: Assignment, done: int, restored: RestoreReport | None = None) -> None:
        self.assignment = assignment
        self.restored = restored
        self._counters = Counters()
        self.timing = Timing(done)
        self.records: list[CheckpointRecord] = []
        self.notices = Notices()
        self.clock: Clock = SystemClock()
        self.done = done
        self.error: BaseException | None = None
        self._given_up = False  # True: no further micro-batch is committed
        self._committing = threading.Lock()  # guards _given_up and done, for the length of a commit
        stages = assignment.stages
        self.sinks: dict[str, TwoPhaseSink] = {
            node.name: node.spec.sink
            for node in stages.plan.graph
            if isinstance(node.spec, Write) and isinstance(node.spec.sink, TwoPhaseSink)
        }
        self._own: dict[str, Hosted] = {}

    def __enter__(self) -> Driver:
        try:
            self._open()
        except BaseException:  # Python does not call __exit__ for what __enter__ raises
            self.__exit__()
            raise
        return self

    def _open(self) -> None:
        stages, home = self.assignment.stages, self.assignment.home
        for name, hosting in stages.hosting.items():
            if hosting is Hosting.DRIVER:
                state = home.task(task_id(name, 0), self.done)
                recorder = Recorder(stages, 0, 0, dealt=False)
                vertex, run_id = stages.plan.vertices[name], self.assignment.run_id
                hosted = Hosted(stages, vertex, 0, state, run_id, recorder, notices=self.notices)
                self._own[name] = hosted
                hosted.__enter__()

    def __exit__(self, *error: object) -> None:
        for hosted in self._own.values():
            hosted.close()

    @property
    def _collectors(self) -> Mapping[str, Collector]:
        heads = {name: hosted.chain.head.operator for name, hosted in self._own.items()}
        return {name: head for name, head in heads.items() if isinstance(head, Collector)}

    @property
    def full(self) -> bool:
        """Whether some collecting sink has all the rows it was asked for."""
        return any([collector.full for collector in self._collectors.values()])

    def tables(self) -> Mapping[str, pa.Table]:
        """What collecting sinks have."""
        return {name: collector.result() for name, collector in self._collectors.items()}

    def batch(self, frame: Any, number: int) -> None:
        """``foreachBatch``: what micro-batch ``number`` sent to the driver.

        An error stays in ``error``, and Spark is told in a few words: its patterns overflow the stack on long texts,
        and an exit would leave it without an answer, waiting for ever.
        """
        try:
            self._batch(frame, number)
        except BaseException as error:
            self.error = error
            raise Told(f"micro-batch {number}: {type(error).__name__}") from None

    def _batch(self, frame: Any, number: int) -> None:
        started = self.clock.now()
        self.timing.catch_up(number)
        rows: list[Envelope] = [e for batch in frame.toArrow().to_batches() for e in envelopes_of(batch)]
        with carried("the driver"):
            reports = [read_report(e.payload) for e in rows if e.link == REPORT]
            self.assignment.home.check(self.assignment.run_id)
            self._deliver([e for e in rows if e.link != REPORT])
            with self._committing:
                if self._given_up:
                    raise Told("the job is over")
                for hosted in self._own.values():
                    self.assignment.home.keep(hosted.state(number + 1), number + 1)
                for name, handles in handles_of(reports).items():
                    self.sinks[name].commit(number + 1, handles)
                self.done = number + 1
        for report in reports:
            self._counters.add(report)
            self.notices.include(report.notices)
        if not self.assignment.stages.lanes:
            self.assignment.home.forget(number)
        # how much state there is, and what was written of it, Spark knows: query.recentProgress
        self.records.append(CheckpointRecord(number + 1, BarrierKind.CHECKPOINT, self.clock.now() - started, 0, {}))

    def _deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Rows to the driver's own sinks, in the order of the steps."""
        contents: dict[str, list[Content]] = defaultdict(list)
        for e in envelopes:
            contents[self.assignment.stages.plan.links[e.link].target].append(Content.decode(e.payload))
        for name, found in contents.items():
            for rows in together(found).rows():
                self._own[name].push(0, rows)

    def finish(self) -> None:
        """All input was read: the driver's own sinks are told, once; a job that is run again knows that they were.

        Spark's own readers may find more to read then: sinks behind them are told at the end of every run.
        """
        for hosted in self._own.values():
            if not hosted.ended:
                hosted.finish()
                if self.assignment.stages.lanes:
                    self.assignment.home.keep(hosted.state(self.done), self.done)

    def give_up(self) -> None:
        """Commit no further micro-batch. Wait some seconds for a commit that has begun."""
        in_time = self._committing.acquire(timeout=_PATIENCE)
        self._given_up = True
        if in_time:
            self._committing.release()

    def until_counted(self) -> None:
        """Wait some seconds until Spark counts committed micro-batches as done.

        The next start deletes the rows of a micro-batch that Spark does not count.
        """
        deadline = time.monotonic() + _COUNTING
        while self.assignment.home.done < self.done and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def sweep(self) -> None:
        """Delete the staged rows of micro-batches that were given up: their workers were killed and closed nothing.

        If a worker still runs after some seconds, the next start deletes the rows that it stages after this.
        """
        if not until_idle(self.assignment.home, _PATIENCE):
            self.notices.add(
                CleanupFailedWarning,
                "a Spark worker still ran after the job had ended; the next start deletes rows that it still stages",
            )
        for name, sink in self.sinks.items():
            try:
                sink.sweep()
            except Exception as error:
                what = f"the staged rows of sink {name!r} stay until the next start deletes them: {error!r}"
                self.notices.add(CleanupFailedWarning, what)
        try:
            self.assignment.home.sweep()
        except OSError as error:
            self.notices.add(CleanupFailedWarning, f"unfinished files of killed workers stay: {error!r}")

    def metrics(self) -> Counters:
        """The counters of every operator as they are now, those of the driver's own sinks included."""
        found = self._counters.copy()
        for hosted in self._own.values():
            report = hosted.report()  # of its whole life, most of which it waits
            found.add(replace(report, busy=sum(operator[5] for operator in report.operators)))
        return found
