"""The output of all tasks in one partition of Spark: merged in each micro-batch, and routed to the next tasks.

The rows that keyed tasks emit are unrouted, one envelope a link. Here the rows of a step are merged and distributed to
the keyed tasks of the next level. So there is one envelope for each target, not for each pair of source and target. The
reports of these tasks are added up, too. Two-phase sinks write here: one staged file a partition, which the driver
commits.

**When.** Spark calls the keyed tasks of a partition one by one, in ascending order of their numbers, and has no call
after the last one. So each task that sends to a partition also sends an envelope to its *closing number*, which is
higher than the numbers of all its keyed tasks. The call for it is the last one, and routes what the others have sent.
To route in a second process would be simpler, but takes twice as many processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Link
from dataflow.protocol.events import Data
from dataflow.runners.spark.envelopes import (
    MESSAGE,
    REPORT,
    UNROUTED,
    Content,
    Envelope,
    by_channel,
    merge_contents,
)
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.metrics import merged_reports, read_report, report_envelope
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.task_report import TaskReport
from dataflow.runners.spark.worker_notes import working_on

__all__ = ["PartitionOutput"]


class PartitionOutput:
    """Takes what the tasks of a partition send, after ``level`` shuffles; sends it on, at the latest at the end."""

    def __init__(self, spark_plan: SparkPlan, directory: JobDirectory, run_id: str, level: int) -> None:
        self._spark_plan = spark_plan
        self._directory = directory
        self._run_id = run_id
        self._level = level
        self._round = 0
        self._unrouted: dict[int, list[Envelope]] = defaultdict(list)  # by link, to keyed tasks
        self._staged: dict[str, list[Envelope]] = defaultdict(list)  # by two-phase sink, to which links may be several
        self._reports: list[TaskReport] = []
        self._bytes = 0  # of the rows to keyed tasks
        self._reached: set[int] = set()  # partitions with keyed tasks that get something

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for the end."""
        return not (self._unrouted or self._staged or self._reports)

    def take(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """Take what a task sent; yield what can be sent on now."""
        plan = self._spark_plan
        for envelope in envelopes:
            self._round = envelope.round
            if envelope.link == REPORT:
                self._reports.append(read_report(envelope.payload))
            elif envelope.task != UNROUTED:
                yield self._sent(envelope)
            elif plan.placements[plan.plan.links[envelope.link].target] is Placement.PARTITION:
                self._staged[plan.plan.links[envelope.link].target].append(envelope)
            else:
                self._unrouted[envelope.link].append(envelope)
                self._bytes += len(envelope.payload)
        if self._bytes > MESSAGE:
            yield from self._route()

    def end(self, partition: int) -> Iterator[Envelope]:
        """Yield all that waits, after the last task of the partition with this number."""
        # Rows first, then reports, then the closing numbers: _reached has the partitions that get something from here
        # only when all rows are routed, and staging a sink's rows adds a report.
        yield from self._route()
        for sink, unrouted in self._staged.items():
            self._reports.append(self._write(sink, unrouted, partition))
        for report in merged_reports(self._reports):
            yield report_envelope(report, self._round)
        plan = self._spark_plan
        yield from [plan.closing_envelope(reached, self._round) for reached in sorted(self._reached)]
        self._staged.clear()
        self._reports.clear()

    def _sent(self, envelope: Envelope) -> Envelope:
        if envelope.task >= 0:
            self._reached.add(self._spark_plan.partition_of(envelope.task))
        return envelope

    def _route(self) -> Iterator[Envelope]:
        for number, unrouted in self._unrouted.items():
            for envelope in route_link(self._spark_plan, number, unrouted):
                yield self._sent(envelope)
        self._unrouted.clear()
        self._bytes = 0

    def _write(self, sink: str, unrouted: list[Envelope], partition: int) -> TaskReport:
        """Stage the rows for a two-phase sink, in a file of its own for each level and partition."""
        round_, plan = self._round, self._spark_plan
        vertex = plan.plan.vertices[sink]
        number = partition * (plan.depth + 1) + self._level
        recorder = OutputRecorder(plan, number, round_, distributed=False)
        clock = MicroBatchClock(self._directory.time(round_))
        with (
            working_on(self._directory, vertex, number),
            TaskHost(plan, vertex, number, None, self._run_id, recorder, clock=clock) as host,
        ):
            for data in merge_contents([Content.decode(e.payload) for e in unrouted]).rows():
                host.push(0, data)
            host.prepare_writers(round_ + 1)
            host.close()  # before the report, which includes errors of closing
            return host.report()

    def all_of(self, envelopes: Iterable[Envelope], partition: int) -> Iterator[Envelope]:
        """Yield what becomes of the only envelopes of a partition."""
        yield from self.take(envelopes)
        yield from self.end(partition)


def route_link(spark_plan: SparkPlan, number: int, unrouted: list[Envelope]) -> Iterator[Envelope]:
    """Yield the envelopes for keyed tasks that the unrouted envelopes of a link become."""
    link = spark_plan.plan.links[number]
    if link.partitioning is not Partitioning.FORWARD:
        yield from _distribute(spark_plan, link, number, unrouted)
        return
    for e in unrouted:
        task = spark_plan.keyed_task_number(link.target, e.source)
        yield Envelope(task, number, e.source, e.round, e.payload)


def _distribute(spark_plan: SparkPlan, link: Link, number: int, unrouted: list[Envelope]) -> Iterator[Envelope]:
    """Distribute the rows of many subtasks to the keyed tasks of the target, and pass on watermarks and ends."""
    round_ = unrouted[0].round
    recorder = OutputRecorder(spark_plan, 0, round_, distributed=True)
    output = recorder.output(number, link)
    contents = {source: content for (_, source), content in by_channel(unrouted).items()}
    # Step by step, over all sources: within a step, rows of different sources may be joined to larger batches, because
    # no watermark lies between them. Across steps they may not: a row would come after a watermark that it came before,
    # and be late. A row and the one that takes it back come from one source, whose order is kept.
    for step in sorted({step for content in contents.values() for step in content.steps}):
        for batch in _join([element.rows for content in contents.values() for element in _rows_of(content, step)]):
            output.emit(batch, 0)
        recorder.step(step)
    yield from recorder.envelopes()
    for source in range(spark_plan.watermark_sources(link)):
        payload = _control(contents[source]) if source in contents else None
        if payload is not None:
            for subtask in range(spark_plan.plan.vertices[link.target].parallelism):
                yield Envelope(spark_plan.keyed_task_number(link.target, subtask), number, source, round_, payload)


def _rows_of(content: Content, step: int) -> Iterator[Any]:
    return (element for element in content.steps.get(step, ()) if isinstance(element, Data))


def _control(content: Content) -> bytes | None:
    """Return the elements other than rows, encoded; None: there are none."""
    control = Content()
    for step, elements in content.steps.items():
        control.add(step, [element for element in elements if not isinstance(element, Data)])
    return control.encode() if control.steps else None


def _join(rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield as few batches as possible. Dictionaries are not merged: one for all may overflow the index type."""
    for schema, same in groupby(rows, key=lambda batch: batch.schema):
        batches = list(same)
        if len(batches) == 1 or any(pa.types.is_dictionary(t) or pa.types.is_nested(t) for t in schema.types):
            yield from batches
        else:
            yield pa.concat_batches(batches)
