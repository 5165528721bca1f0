"""Spark's own readers in the place of sources, for pipelines without state.

The user's streaming DataFrame stands for a source. Which rows are in a micro-batch, and where to go on after a restart,
is Spark's business; the number of the micro-batch is the commit's. What does not go with that is refused here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from dataflow.clock import SystemClock
from dataflow.contracts.source import SourceContext
from dataflow.errors import ConfigurationError, UnsupportedOnRunner, did_you_mean
from dataflow.planning.graph import Graph, Node
from dataflow.planning.physical_plan import Vertex, task_id
from dataflow.planning.specs import Read
from dataflow.protocol.events import Data
from dataflow.runners.spark.accepted_types import conformed, differences
from dataflow.runners.spark.envelopes import DDL, batches_of
from dataflow.runners.spark.metrics import reported
from dataflow.runners.spark.placement import Hosting, Stages
from dataflow.runners.spark.session import functions, pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.user_errors import carried
from dataflow.runners.spark.worker_notes import at_work
from dataflow.runtime.task.task_inputs import SourceInlet

__all__ = ["Readers", "gathered"]

_ROWS: Final = 1 << 17
"""Rows that a chain gets at a time: Spark gives 10,000, and a call costs the same for more."""
_BATCH_ID: Final = "streaming.sql.batchId"
"""The property in which Spark tells its tasks which micro-batch they are of."""


class Readers:
    """The DataFrames that stand for sources, by the sources' names."""

    def __init__(self, frames: Mapping[str, Any]) -> None:
        self._frames = dict(frames)

    def __bool__(self) -> bool:
        return bool(self._frames)

    def __contains__(self, name: str) -> bool:
        return name in self._frames

    @property
    def names(self) -> list[str]:
        return sorted(self._frames)

    @property
    def session(self) -> Any:
        """The session that the DataFrames are of; None: there are none."""
        return next((getattr(frame, "sparkSession", None) for frame in self._frames.values()), None)

    def check(self, graph: Graph) -> None:
        """Raise for what does not go together: names, streams, sessions, columns, and operators with state.

        Raises: ConfigurationError, UnsupportedOnRunner.
        """
        if not self._frames:
            return
        sources = {node.name: node for node in graph if isinstance(node.spec, Read)}
        for name, frame in self._frames.items():
            if name not in sources:
                raise ConfigurationError(
                    f"SparkRunner(sources=): the pipeline has no source {name!r}{did_you_mean(name, sources)}; "
                    f"its sources: {sorted(sources)}"
                )
            self._check_frame(sources[name], frame)
        for node in graph:
            _refuse_state(node)
        for name in sources:
            if name not in self._frames:
                raise UnsupportedOnRunner(
                    f"source {name!r}", "spark", "another source is read by Spark, and micro-batches of the two differ",
                    f"give SparkRunner(sources=) a DataFrame for {name!r}, too, or for none",
                )  # fmt: skip

    def _check_frame(self, node: Node, frame: Any) -> None:
        where = f"SparkRunner(sources=): {node.name!r}"
        if not hasattr(frame, "isStreaming"):
            raise ConfigurationError(f"{where}: expected a streaming DataFrame, found a {type(frame).__name__}")
        if not frame.isStreaming:
            raise ConfigurationError(
                f"{where}: expected a streaming DataFrame, found one that is read once: spark.readStream in the place "
                "of spark.read"
            )
        if not frame.sparkSession._jsparkSession.equals(self.session._jsparkSession):
            raise ConfigurationError(f"{where}: its DataFrame is of another session than the others: make all in one")
        if wrong := differences(_arrow(frame), node.schema):
            raise UnsupportedOnRunner(
                f"source {node.name!r}", "spark", f"its DataFrame has other columns: {'; '.join(wrong)}",
                f"it needs {', '.join(f'{f.name}: {f.type}' for f in node.schema)}",
            )  # fmt: skip

    def check_stages(self, stages: Stages) -> None:
        """Raises: UnsupportedOnRunner for an operator that takes rows from other tasks than the one that reads them."""
        for name in self._frames and [n for n, hosting in stages.hosting.items() if hosting is Hosting.SLOT]:
            raise UnsupportedOnRunner(
                f"operator {name!r}", "spark", "behind Spark's own readers rows stay where they were read",
                "leave rebalance(), broadcast() and parallelism= out, and give the DataFrame the partitions you want",
            )  # fmt: skip

    def check_session(self, session: Any) -> None:
        """Raises: ConfigurationError where the DataFrames are not of ``session``."""
        if self._frames and not self.session._jsparkSession.equals(session._jsparkSession):
            raise ConfigurationError(
                "SparkRunner(session, sources=): the DataFrames are of another session: use session.readStream"
            )

    def texts(self) -> Mapping[str, str]:
        """What Spark reads for each source, in Spark's words."""
        return {name: ", ".join(_leaves(frame)) for name, frame in self._frames.items()}

    def frame(self, assignment: Assignment) -> Any:
        """A DataFrame of envelopes: what the chains behind all sources make of the rows; no source need travel."""
        read = [
            frame.select(*[functions().col(f"`{name.replace('`', '``')}`") for name in vertex.head.schema.names])
            .mapInArrow(chain_of(assignment, vertex), DDL)
            for vertex in assignment.stages.plan.vertices.values()
            if assignment.stages.hosting[vertex.name] is Hosting.READER
            for frame in [self._frames[vertex.head.name]]
        ]  # fmt: skip
        return reduce(lambda one, other: one.union(other), read)


def _arrow(frame: Any) -> pa.Schema:
    schema: pa.Schema = pyspark("pyspark.sql.pandas.types").to_arrow_schema(frame.schema, timezone="UTC")
    return schema


def _leaves(frame: Any) -> Iterator[str]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        yield str(leaves.apply(number).toString())


def _refuse_state(node: Node) -> None:
    spec = node.spec
    if len(node.inputs) > 1:
        reason, instead = "it takes rows of several tasks", "give each stream a sink of its own"
    elif spec.assigns_time:
        reason, instead = "it is about event time", "leave it out"
    elif spec.row_wise:
        return
    elif spec.is_users:
        reason, instead = "it may keep state", "say stateless = True in its class if it does not"
    else:
        reason, instead = "it keeps state", "leave it out"
    raise UnsupportedOnRunner(
        f"operator {node.name!r}", "spark", f"{reason}, and behind Spark's own readers each row stands for itself",
        f"{instead}, or let the pipeline read its sources: SparkRunner without sources=",
    )  # fmt: skip


# TASKS
"""What is behind a source, where Spark has read the rows: in every partition of every micro-batch.

A partition is a subtask that is made anew each time, so nothing in it can remember anything. Rows are gathered
first, for Spark gives few at a time.
"""


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
    nowhere = SourceInlet(nobody, [], SourceContext(source.name, partition, wide.parallelism, SystemClock()))
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
