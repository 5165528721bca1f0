"""Routing: between two levels, in every partition of Spark's, once a micro-batch.

What the slots of a partition emitted lies raw, link by link. Rows of a step are put together and dealt out to the slots
of the next level, so that there are as many envelopes as slots, and not as pairs of them. Sinks that can be committed
in two phases write here: a file a partition, staged, and the driver commits.
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
from dataflow.runners.spark.envelopes import RAW, TO_DRIVER, Content, Envelope, batches_of, envelopes_of, together
from dataflow.runners.spark.metrics import reported
from dataflow.runners.spark.placement import Hosting, Stages
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.worker_notes import at_work

__all__ = ["router_of"]


def router_of(assignment: Assignment) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``."""

    def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raw: dict[int, list[Envelope]] = defaultdict(list)
        for batch in batches:
            envelopes = list(envelopes_of(batch))
            for envelope in envelopes:
                if envelope.slot == RAW:
                    raw[envelope.link].append(envelope)
            yield from batches_of(envelope for envelope in envelopes if envelope.slot != RAW)
        context = pyspark().TaskContext.get()
        for number, envelopes in raw.items():
            yield from batches_of(routed(assignment, number, envelopes, context.partitionId() if context else 0))

    return route


def routed(assignment: Assignment, number: int, raw: list[Envelope], partition: int) -> Iterator[Envelope]:
    """Where the raw envelopes of a link go on to."""
    stages = assignment.stages
    link = stages.plan.links[number]
    match stages.hosting[link.target]:
        case Hosting.DRIVER:
            for e in raw:
                yield Envelope(TO_DRIVER, number, e.source, e.round, e.payload)
        case Hosting.PARTITION:
            yield from _written(assignment, link, number, raw, partition)
        case _ if link.partitioning is Partitioning.FORWARD:
            for e in raw:
                yield Envelope(stages.slot(link.target, e.source), number, e.source, e.round, e.payload)
        case _:
            yield from _dealt(stages, link, number, raw)


def _written(
    assignment: Assignment, link: Link, number: int, raw: list[Envelope], partition: int
) -> Iterator[Envelope]:
    round_ = raw[0].round
    stages, vertex = assignment.stages.for_partition(assignment.stages.plan.vertices[link.target], partition)
    recorder = Recorder(stages, partition, round_, dealt=False)
    with (
        at_work(assignment.home, vertex, partition),
        Hosted(stages, vertex, partition, None, assignment.run_id, recorder) as hosted,
    ):
        for data in together([Content.decode(e.payload) for e in raw]).rows():
            hosted.push(0, data)
        hosted.state(round_ + 1)
        hosted.close()  # before the report, which has its errors
        yield reported(hosted.report(), round_)


def _dealt(stages: Stages, link: Link, number: int, raw: list[Envelope]) -> Iterator[Envelope]:
    """Rows of many subtasks to the slots of the target; and what those say of time who are to be heard."""
    round_ = raw[0].round
    recorder = Recorder(stages, 0, round_, dealt=True)
    output = recorder.output(number, link)
    contents = {e.source: Content.decode(e.payload) for e in raw}
    for step in sorted({step for content in contents.values() for step in content.steps}):
        for batch in _joined([element.rows for content in contents.values() for element in _of(content, step)]):
            output.emit(batch, 0)
        recorder.step(step)
    yield from recorder.envelopes()
    for source in range(stages.speakers(link)):
        payload = _control(contents[source]) if source in contents else None
        if payload is not None:
            for subtask in range(stages.plan.vertices[link.target].parallelism):
                yield Envelope(stages.slot(link.target, subtask), number, source, round_, payload)


def _of(content: Content, step: int) -> Iterator[Any]:
    return (element for element in content.steps.get(step, ()) if isinstance(element, Data))


def _control(content: Content) -> bytes | None:
    """All but the rows; None where there is nothing."""
    found = Content()
    for step, elements in content.steps.items():
        found.add(step, [element for element in elements if not isinstance(element, Data)])
    return found.encode() if found.steps else None


def _joined(rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As few batches as may be. Dictionaries stay apart: one for all might need more numbers than there are."""
    for schema, same in groupby(rows, key=lambda batch: batch.schema):
        batches = list(same)
        if len(batches) == 1 or any(pa.types.is_dictionary(t) or pa.types.is_nested(t) for t in schema.types):
            yield from batches
        else:
            yield pa.concat_batches(batches)
