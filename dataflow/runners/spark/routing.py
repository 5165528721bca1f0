"""Routing between two levels of keyed tasks, in every partition of Spark's, once a micro-batch.

The rows that the keyed tasks of a partition emit are unrouted, one envelope a link. Here the rows of a step are merged
and distributed to the keyed tasks of the next level. So there is one envelope for each target, not for each pair of
source and target. The reports of these tasks are added up, too. Two-phase sinks write here: one staged file a
partition, which the driver commits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Link
from dataflow.protocol.events import Data
from dataflow.runners.spark.envelopes import (
    REPORT,
    TO_DRIVER,
    UNROUTED,
    Content,
    Envelope,
    batches_of,
    by_channel,
    envelopes_of,
    merge_contents,
)
from dataflow.runners.spark.metrics import merged_reports, read_report, report_envelope
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import OutputRecorder, TaskHost, TaskReport
from dataflow.runners.spark.worker_notes import working_on

__all__ = ["routing_function"]


def routing_function(assignment: Assignment) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``."""

    spark_plan = assignment.spark_plan
    links = enumerate(spark_plan.plan.links)
    staged = {n: link.target for n, link in links if spark_plan.placements[link.target] is Placement.PARTITION}

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unrouted: dict[int | str, list[Envelope]] = defaultdict(list)  # by link, or by sink: links may share one
        reports: list[TaskReport] = []
        round_ = 0
        for batch in batches:
            envelopes = list(envelopes_of(batch))
            for envelope in envelopes:
                if envelope.task == UNROUTED:
                    unrouted[staged.get(envelope.link, envelope.link)].append(envelope)
                elif envelope.link == REPORT:
                    reports.append(read_report(envelope.payload))
                    round_ = envelope.round
            yield from batches_of(e for e in envelopes if e.task != UNROUTED and e.link != REPORT)
        yield from batches_of(report_envelope(report, round_) for report in merged_reports(reports))
        context = pyspark().TaskContext.get()
        partition = context.partitionId() if context else 0
        for envelopes in unrouted.values():
            yield from batches_of(route_link(assignment, envelopes[0].link, envelopes, partition))

    return route


def route_link(assignment: Assignment, number: int, unrouted: list[Envelope], partition: int) -> Iterator[Envelope]:
    """Yield the envelopes that the unrouted envelopes of a link become.

    For a two-phase sink, they may be of all links to it.
    """
    spark_plan = assignment.spark_plan
    link = spark_plan.plan.links[number]
    match spark_plan.placements[link.target]:
        case Placement.DRIVER:
            for e in unrouted:
                yield Envelope(TO_DRIVER, number, e.source, e.round, e.payload)
        case Placement.PARTITION:
            yield from _write(assignment, link, unrouted, partition)
        case _ if link.partitioning is Partitioning.FORWARD:
            for e in unrouted:
                yield Envelope(
                    spark_plan.keyed_task_number(link.target, e.source), number, e.source, e.round, e.payload
                )
        case _:
            yield from _distribute(spark_plan, link, number, unrouted)


def _write(assignment: Assignment, link: Link, unrouted: list[Envelope], partition: int) -> Iterator[Envelope]:
    round_ = unrouted[0].round
    spark_plan = assignment.spark_plan
    vertex = spark_plan.plan.vertices[link.target]
    recorder = OutputRecorder(spark_plan, partition, round_, distributed=False)
    with (
        working_on(assignment.directory, vertex, partition),
        TaskHost(spark_plan, vertex, partition, None, assignment.run_id, recorder) as host,
    ):
        for data in merge_contents([Content.decode(e.payload) for e in unrouted]).rows():
            host.push(0, data)
        host.snapshot(round_ + 1)
        host.close()  # before the report, which includes errors of closing
        yield report_envelope(host.report(), round_)


def _distribute(spark_plan: SparkPlan, link: Link, number: int, unrouted: list[Envelope]) -> Iterator[Envelope]:
    """Distribute the rows of many subtasks to the keyed tasks of the target, and pass on watermarks and ends."""
    round_ = unrouted[0].round
    recorder = OutputRecorder(spark_plan, 0, round_, distributed=True)
    output = recorder.output(number, link)
    contents = {source: content for (_, source), content in by_channel(unrouted).items()}
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
