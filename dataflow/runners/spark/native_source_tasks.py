"""What is behind a source, where Spark has read the rows: in every partition of every micro-batch.

A partition is a subtask that is made anew each time, so nothing in it can remember anything. Rows are gathered
first, for Spark gives few at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from dataflow.clock import SystemClock
from dataflow.contracts.source import SourceContext
from dataflow.planning.physical_plan import Vertex, task_id
from dataflow.planning.specs import Read
from dataflow.protocol.events import Data
from dataflow.runners.spark.accepted_types import conformed
from dataflow.runners.spark.envelopes import batches_of
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.task_reports import reported
from dataflow.runners.spark.user_errors import carried
from dataflow.runners.spark.worker_notes import at_work
from dataflow.runtime.task.source_input import SourceInput

__all__ = ["chain_of", "gathered"]

_ROWS: Final = 1 << 17
"""Rows that a chain gets at a time: Spark gives 10,000, and a call costs the same for more."""
_BATCH_ID: Final = "streaming.sql.batchId"
"""The property in which Spark tells its tasks which micro-batch they are of."""


def chain_of(assignment: Assignment, vertex: Vertex) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: a partition of a micro-batch through the chain behind a source."""

    def chain(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = pyspark().TaskContext.get()
        return read(assignment, vertex, batches, context.partitionId(), int(context.getLocalProperty(_BATCH_ID)))

    return chain


def read(
    assignment: Assignment, vertex: Vertex, batches: Iterable[pa.RecordBatch], partition: int, round_: int
) -> Iterator[pa.RecordBatch]:
    """Partition ``partition`` of micro-batch ``round_``, as envelopes; nothing comes of one without rows."""
    source = vertex.head
    stages, wide = assignment.stages.for_partition(vertex, partition)
    recorder = Recorder(stages, partition, round_, dealt=True)
    waiting = gathered(batches)
    if (first := next(waiting, None)) is None:
        return
    assert isinstance(source.spec, Read), f"{source.name} reads no source"
    nobody: Any = source.spec.source
    nowhere = SourceInput(nobody, [], SourceContext(source.name, partition, wide.parallelism, SystemClock()))
    task = task_id(vertex.name, partition)
    with (
        at_work(assignment.home, wide, partition),
        Hosted(stages, wide, partition, None, assignment.run_id, recorder, nowhere) as hosted,
    ):
        for step, rows in enumerate(itertools.chain([first], waiting)):
            with carried(task):
                fitting = conformed(rows, source.schema, source.name)
            hosted.push(0, Data(fitting, 0))
            recorder.step(step)
        hosted.state(round_ + 1)
        hosted.close()  # before the report, which has its errors
        yield from batches_of([*recorder.envelopes(), reported(hosted.report(), round_)])


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a size that is worth a call; none is empty."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= _ROWS:
            yield from _joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches
