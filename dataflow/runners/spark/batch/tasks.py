"""The tasks of a batch on Spark, as functions for ``mapInArrow``.

A source task reads its splits to their end. After each shuffle, every partition runs one subtask of each vertex of that
level, from its first envelope to its last. Rows are sent on as soon as there are some tens of MB of them, so a task
holds what its operators hold. Envelopes for later levels and for the driver pass unchanged.

An envelope has the number of the attempt that sent it where envelopes of a stream have that of the micro-batch: see
`attempts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import pyarrow as pa

from dataflow.clock import SystemClock
from dataflow.contracts.source import SourceContext, Split
from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import Vertex
from dataflow.planning.specs import Read
from dataflow.protocol.events import Data
from dataflow.runners.spark.accepted_types import cast_batch
from dataflow.runners.spark.envelopes import TO_DRIVER, Envelope, batches_of, envelopes_of
from dataflow.runners.spark.metrics import report_envelope
from dataflow.runners.spark.native_readers import gather_batches
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runners.spark.worker_notes import working_on
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import SplitState

__all__ = ["CHECKPOINT", "level_function", "reader_function", "source_function"]

CHECKPOINT: Final = 1
"""The number of the only checkpoint."""
_PAUSE: Final = 0.005
"""Seconds to wait for a source that has no rows now."""

_Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def source_function(assignment: Assignment, splits: Sequence[Sequence[SplitState]]) -> _Function:
    """Return the function that runs source tasks: each row that it gets is the number of one.

    Args:
        assignment: the job, with its sources.
        splits: the splits of each source task.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = pyspark().TaskContext.get().taskAttemptId()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                sent = _read(assignment, splits[number], number, attempt)
                yield from _sent(sent, number, assignment.spark_plan.partitions)

    return read


def _sent(envelopes: Iterable[Envelope], partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Spark's. What is for the driver passes through the shuffles in the partition where it is."""
    own = partition % partitions
    yield from batches_of(replace(e, task=own) if e.task == TO_DRIVER else e for e in envelopes)


def _read(assignment: Assignment, splits: Sequence[SplitState], number: int, attempt: int) -> Iterator[Envelope]:
    spark_plan = assignment.spark_plan
    vertex, subtask = spark_plan.source_tasks[number]
    spec = vertex.head.spec
    assert isinstance(spec, Read), f"{vertex.name} reads no source"
    recorder = OutputRecorder(spark_plan, subtask, attempt, distributed=True)
    notices, clock, task = Notices(), SystemClock(), task_id(vertex.name, subtask)
    context = SourceContext(vertex.head.name, subtask, vertex.parallelism, clock, notify=notices.add)
    with serialized_errors(task):
        task_input = SourceInput(spec.source, [SplitState(split.split) for split in splits], context)
    with (
        working_on(assignment.directory, vertex, subtask),
        TaskHost(spark_plan, vertex, subtask, None, _run(assignment, attempt), recorder, task_input, notices) as host,
    ):
        while not task_input.ended:
            with serialized_errors(task):
                polled = task_input.poll(clock.now())
            if polled is None or polled.flow is None:
                if not task_input.ended:
                    time.sleep(_PAUSE)
            else:
                if polled.rejected is not None:
                    host.chain.set_aside(polled.rejected, 0)
                host.push(0, polled.flow)
            host.call_due_timers()
            yield from recorder.rows()
        host.finish()
        yield from _last_envelopes(host, recorder, attempt)


def _run(assignment: Assignment, attempt: int) -> str:
    """Return the run that an attempt stages rows for. The names of staged files come from it, so attempts differ."""
    return f"{assignment.run_id}-{attempt}"


def _last_envelopes(host: TaskHost, recorder: OutputRecorder, attempt: int) -> Iterator[Envelope]:
    """Yield the last rows of a subtask, and its report with the transactions that its sinks have staged."""
    host.snapshot(CHECKPOINT)
    host.close()  # before the report, which includes errors of closing
    yield from recorder.rows(all_of_them=True)
    yield report_envelope(host.report(), attempt)


def reader_function(assignment: Assignment, vertex: Vertex) -> _Function:
    """Return the function that runs a vertex on a partition of rows that Spark has computed."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = pyspark().TaskContext.get()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        sent = _take_rows(assignment, vertex, batches, partition, attempt)
        yield from _sent(sent, partition, assignment.spark_plan.partitions)

    return read


def _take_rows(
    assignment: Assignment, vertex: Vertex, batches: Iterable[pa.RecordBatch], partition: int, attempt: int
) -> Iterator[Envelope]:
    source, task = vertex.head, task_id(vertex.name, partition)
    recorder = OutputRecorder(assignment.spark_plan, partition, attempt, distributed=True)
    spec = source.spec
    assert isinstance(spec, Read), f"{source.name} is no placeholder"
    context = SourceContext(source.name, partition, vertex.parallelism, SystemClock())
    one_split = SourceInput(spec.source, [SplitState(Split("", {}))], context)  # the partition, which Spark reads
    with (
        working_on(assignment.directory, vertex, partition),
        TaskHost(
            assignment.spark_plan, vertex, partition, None, _run(assignment, attempt), recorder, one_split
        ) as host,
    ):
        for rows in gather_batches(batches):
            with serialized_errors(task):
                declared = cast_batch(rows, source.schema, source.name)
            host.push(0, Data(declared, 0))
            yield from recorder.rows()
        host.finish()
        yield from _last_envelopes(host, recorder, attempt)


def level_function(assignment: Assignment, level: int, region: int = 0) -> _Function:
    """Return the function that runs a partition after ``level`` shuffles of a region."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = pyspark().TaskContext.get()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        yield from run_partition(assignment, level, region, partition, attempt, batches)

    return run


def run_partition(
    assignment: Assignment, level: int, region: int, partition: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the subtasks of a partition after ``level`` shuffles of a region.

    Yields the envelopes that they send, and those that pass.
    """
    spark_plan = assignment.spark_plan
    assert partition < spark_plan.partitions, f"partition {partition} of {spark_plan.partitions}"
    own = [v for v in spark_plan.at(level, Placement.KEYED_TASK, region) if partition < v.parallelism]
    with ExitStack() as resources:
        tasks = {vertex.name: _Subtask(assignment, vertex, partition, attempt, resources) for vertex in own}
        takers = {n: tasks[link.target] for n, link in enumerate(spark_plan.plan.links) if link.target in tasks}
        for batch in batches:
            for envelope in envelopes_of(batch):
                task = takers.get(envelope.link)
                sent = [envelope] if task is None else task.take(envelope)
                yield from _sent(sent, partition, spark_plan.partitions)
        for task in tasks.values():
            yield from _sent(task.end(), partition, spark_plan.partitions)


class _Subtask:
    """A subtask of a partition, with what it sends."""

    def __init__(
        self, assignment: Assignment, vertex: Vertex, subtask: int, attempt: int, resources: ExitStack
    ) -> None:
        self._directory, self._vertex, self._subtask, self._attempt = assignment.directory, vertex, subtask, attempt
        self._recorder = OutputRecorder(assignment.spark_plan, subtask, attempt, distributed=True)
        self._host = resources.enter_context(
            TaskHost(assignment.spark_plan, vertex, subtask, None, _run(assignment, attempt), self._recorder)
        )

    def take(self, envelope: Envelope) -> Iterator[Envelope]:
        with working_on(self._directory, self._vertex, self._subtask):
            self._host.take(envelope)
        yield from self._recorder.rows()

    def end(self) -> Iterator[Envelope]:
        with working_on(self._directory, self._vertex, self._subtask):
            self._host.end()
        yield from _last_envelopes(self._host, self._recorder, self._attempt)
