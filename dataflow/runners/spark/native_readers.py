"""Spark's own readers in place of sources.

The user's streaming DataFrame replaces a source. Spark decides which rows are in a micro-batch, and where to resume
after a restart; commits have the number of the micro-batch. Pipelines that this cannot run are refused here.

In every partition of every micro-batch the chain after the source runs as a subtask that is built anew. So nothing in
it keeps state; operators after a shuffle do. Rows are gathered into larger batches first, because Spark delivers few at
a time.

**Time.** Each source has a watermark, the least of those of its splits: see `SparkSource`. Tasks take all rows of a
micro-batch before they take the watermarks that its partitions send, so time moves between micro-batches only. Without
a micro-batch nothing closes, and the end of a run is not the end of the input: open windows stay in the state until a
later run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.clock import SystemClock
from dataflow.contracts.source import SourceContext
from dataflow.errors import ConfigurationError, UnknownSplitsWarning, UnsupportedOnRunner, did_you_mean
from dataflow.events.plan_shape import task_id
from dataflow.planning.graph import Graph, Node
from dataflow.planning.physical_plan import Vertex
from dataflow.planning.specs import Read, Write
from dataflow.protocol.events import Data
from dataflow.runners.spark.accepted_types import cast_batch, differences
from dataflow.runners.spark.envelopes import DDL, batches_of
from dataflow.runners.spark.expressions.spark_types import carrier, is_exact, nullable, spark_schema, to_carriers
from dataflow.runners.spark.metrics import report_envelope
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runners.spark.session import column, map_in_arrow, pyspark
from dataflow.runners.spark.session_kinds import same_session, source_text
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.spark_source import SparkSource, split_name
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runners.spark.worker_notes import working_on
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.source_input import SourceInput

__all__ = ["NativeReaders", "gather_batches"]

_ROWS: Final = 1 << 17
"""The rows of a batch for the chain: Spark delivers 10,000 at a time, and a call costs the same for more."""
_SPLIT: Final = "barrierflow:split"
"""The column of the name of a row's split."""
"""The column of the time of the micro-batch, in microseconds."""
_BATCH_ID: Final = "streaming.sql.batchId"
"""The property in which Spark gives its tasks the number of their micro-batch."""


class NativeReaders:
    """The DataFrames that replace sources, by the sources' names."""

    def __init__(self, frames: Mapping[str, Any]) -> None:
        self._sources = {
            name: frame if isinstance(frame, SparkSource) else SparkSource(frame) for name, frame in frames.items()
        }
        self._frames = {name: source.frame for name, source in self._sources.items()}

    def __bool__(self) -> bool:
        return bool(self._frames)

    def __contains__(self, name: str) -> bool:
        return name in self._frames

    @property
    def names(self) -> list[str]:
        return sorted(self._frames)

    @property
    def stored(self) -> list[str]:
        """What a job's directory keeps of them: their names, and the columns that name splits."""
        by = {name: ", ".join(self._sources[name].split_by) for name in self.names}
        return [f"{name} by {by[name]}" if by[name] else name for name in self.names]

    def awaiting(self, spark_plan: SparkPlan) -> SparkPlan:
        """Return the plan of a stream, with the splits that are waited for."""
        known = {name: source.split_names() for name, source in self._sources.items() if source.splits is not None}
        return replace(spark_plan, awaited=known)

    def warn_of_splits(self, graph: Graph, notices: Notices) -> None:
        """Warn of DataFrames whose splits are not known before their first rows, if there is event time."""
        unknown = [n for n, source in self._sources.items() if source.split_by and source.splits is None]
        if unknown and any(node.spec.assigns_time for node in graph):
            notices.add(
                UnknownSplitsWarning,
                f"the splits of {', '.join(map(repr, unknown))} count from their first row on, so the rows of a split "
                "that appears later may be late; name them with SparkSource(splits=[...])",
            )

    @property
    def session(self) -> Any:
        """The session of the DataFrames; None: there are none."""
        return next((getattr(frame, "sparkSession", None) for frame in self._frames.values()), None)

    def check(self, graph: Graph) -> None:
        """Check the DataFrames against the pipeline.

        Raises: ConfigurationError for wrong names, DataFrames that do not stream, or different sessions;
            UnsupportedOnRunner for wrong columns, and operators with state.
        """
        if not self._frames:
            return
        sources = self._checked_sources(graph, streaming=True)
        for node in graph:
            _refuse_waiting(node)
        for name in sources:
            if name not in self._frames:
                raise UnsupportedOnRunner(
                    f"source {name!r}", "spark", "Spark reads another source, and the micro-batches of the two differ",
                    f"give SparkRunner(sources=) a DataFrame for {name!r}, too, or for no source",
                )  # fmt: skip

    def check_for_batch(self, graph: Graph) -> None:
        """Check the DataFrames against the pipeline of a batch.

        Raises: ConfigurationError for wrong names, DataFrames that stream, or different sessions; UnsupportedOnRunner
            for wrong columns.
        """
        self._checked_sources(graph, streaming=False)

    def _checked_sources(self, graph: Graph, *, streaming: bool) -> Mapping[str, Node]:
        """Return the sources of the pipeline by name, of which some have a DataFrame that was checked."""
        sources = {node.name: node for node in graph if isinstance(node.spec, Read)}
        for name, frame in self._frames.items():
            if name not in sources:
                raise ConfigurationError(
                    f"SparkRunner(sources=): the pipeline has no source {name!r}{did_you_mean(name, sources)}; "
                    f"its sources: {sorted(sources)}"
                )
            self._check_frame(sources[name], frame, streaming=streaming)
        return sources

    def _check_frame(self, node: Node, frame: Any, *, streaming: bool) -> None:
        where = f"SparkRunner(sources=): {node.name!r}"
        if not hasattr(frame, "isStreaming"):
            kind = "a streaming DataFrame" if streaming else "a DataFrame"
            found = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
            raise ConfigurationError(f"{where}: expected {kind} of Spark's, found an object of type {found}")
        if frame.isStreaming and not streaming:
            raise ConfigurationError(
                f"{where}: expected a DataFrame that is read once, found a streaming one, which has no end: use "
                "spark.read instead of spark.readStream, or leave execution= out"
            )
        if streaming and not frame.isStreaming:
            raise ConfigurationError(
                f"{where}: expected a streaming DataFrame, found one that is read once: use spark.readStream instead "
                "of spark.read, or run(execution='batch')"
            )
        if not same_session(frame.sparkSession, self.session):
            raise ConfigurationError(
                f"{where}: its DataFrame belongs to another session than the others: create all in one session"
            )
        columns = frame.columns
        if missing := [name for name in self._sources[node.name].split_by if name not in columns]:
            raise ConfigurationError(
                f"{where}: SparkSource(split_by=): there is no column {missing[0]!r}"
                f"{did_you_mean(missing[0], columns)}; the columns of the DataFrame: {columns}"
            )
        if str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true":
            used = {name.lower() for name in [*node.schema.names, *self._sources[node.name].split_by]}
            counts = Counter(name.lower() for name in {*columns})
            if twice := [name for name in columns if name.lower() in used and counts[name.lower()] > 1]:
                raise UnsupportedOnRunner(
                    f"source {node.name!r}", "spark",
                    f"its DataFrame has the columns {' and '.join(map(repr, twice))}, which Spark takes for one",
                    "rename one of them, or set spark.sql.caseSensitive to true",
                )  # fmt: skip
        if wrong := differences(_arrow(frame), node.schema):
            raise UnsupportedOnRunner(
                f"source {node.name!r}", "spark", f"its DataFrame has other columns: {'; '.join(wrong)}",
                f"it needs {', '.join(f'{f.name}: {f.type}' for f in node.schema)}",
            )  # fmt: skip

    def check_plan(self, spark_plan: SparkPlan) -> None:
        """Raise UnsupportedOnRunner for an operator with state in the tasks that have the rows of a reader.

        Spark distributes rows to these tasks as it likes, and they keep no state from micro-batch to micro-batch.
        """
        for vertex in spark_plan.plan.vertices.values() if self._frames else ():
            for node in vertex.nodes if spark_plan.placements[vertex.name] is Placement.NATIVE_READER else ():
                if node.spec.is_users and not node.spec.row_wise and not isinstance(node.spec, Write):
                    raise UnsupportedOnRunner(
                        f"operator {node.name!r}",
                        "spark",
                        "it may keep state, and tasks that take rows from Spark's own readers keep none",
                        f"if it does not, {node.spec.row_wise_advice}; else call key_by or rebalance before it",
                    )

    def check_session(self, session: Any) -> None:
        """Raise ConfigurationError if the DataFrames do not belong to ``session``."""
        if self._frames and not same_session(self.session, session):
            raise ConfigurationError(
                "SparkRunner(session, sources=): the DataFrames belong to another session: create them with "
                "session.readStream"
            )

    def texts(self) -> Mapping[str, str]:
        """Return Spark's description of its input for each source."""
        return {name: source_text(frame) for name, frame in self._frames.items()}

    def batch_frame(self, node: Node) -> Any:
        """Return the rows of a source of a batch, with the columns and types of ``spark_schema``, where there are such.

        Values of other types are cast in Python workers, which check each of them. Texts are equal if their bytes are,
        as on the other runners, whatever the collation of the DataFrame's column.
        """
        schema = node.schema
        rows = _without_collations(self._frames[node.name], schema.names)
        types = [carrier(field.type) for field in schema]
        fit = [given == held for given, held in zip(_arrow(rows).types, types, strict=True)]
        if None in types or (all(fit) and all(is_exact(field.type) for field in schema)):
            return rows
        return map_in_arrow(rows, _cast_function(schema, node.name), spark_schema(nullable(schema)))

    def _with_split(self, node: Node) -> Any:
        """Return the rows of a source, and the name of the split of each if there are splits."""
        source = self._sources[node.name]
        columns = [column(name) for name in node.schema.names]
        if source.split_by:
            columns.append(split_name(map(column, source.split_by)).alias(_SPLIT))
        return source.frame.select(*columns)

    def frame(self, assignment: Assignment) -> Any:
        """Return a DataFrame of the envelopes that the chains send; ``assignment`` may be one without sources."""
        frames = [
            map_in_arrow(self._with_split(vertex.head), native_task_function(assignment, vertex), DDL)
            for vertex in assignment.spark_plan.plan.vertices.values()
            if assignment.spark_plan.placements[vertex.name] is Placement.NATIVE_READER
        ]
        return reduce(lambda one, other: one.union(other), frames)


def _without_collations(frame: Any, names: Sequence[str]) -> Any:
    """Return some columns of a DataFrame, in which Spark compares texts by their bytes."""
    binary: Any = pyspark("pyspark.sql.pandas.types").from_arrow_schema(_arrow(frame))
    types = {given.name: own.dataType for given, own in zip(frame.schema, binary, strict=True) if _has_collation(given)}
    return frame.select(*[column(n).cast(types[n]).alias(n) if n in types else column(n) for n in names])


def _has_collation(field: Any) -> bool:
    return " collate " in field.dataType.simpleString()


def _cast_function(schema: pa.Schema, source: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that casts rows to the declared types, and these to Spark's for them."""

    def cast(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with serialized_errors(source):
                rows = to_carriers(cast_batch(batch, schema, source))
            yield rows

    return cast


def _arrow(frame: Any) -> pa.Schema:
    schema: pa.Schema = pyspark("pyspark.sql.pandas.types").to_arrow_schema(frame.schema, timezone="UTC")
    return schema


def _refuse_waiting(node: Node) -> None:
    """Raise UnsupportedOnRunner for an operator that waits for the end of the input, or goes by the clock."""
    spec = node.spec
    if spec.times_by_clock:
        reason, instead = "it sets time by the clock", "remove it"
    elif spec.max_drift is not None:
        reason = "max_drift stops the tasks of a source"
        instead = "leave it out of with_watermark, and limit the micro-batch in the DataFrame"
    elif spec.emits_at_end:
        reason, instead = f"{spec.emits_at_end} come at the end of the input", spec.emits_sooner
    else:
        return
    raise UnsupportedOnRunner(
        f"operator {node.name!r}",
        "spark",
        f"{reason}, and a streaming DataFrame has no splits that we know, and no end",
        f"{instead}, or let the pipeline read its sources: use SparkRunner without sources=",
    )


def native_task_function(
    assignment: Assignment, vertex: Vertex
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``, which runs the chain after a source on a partition of a micro-batch."""

    def chain(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = pyspark().TaskContext.get()
        return run_partition(
            assignment, vertex, batches, context.partitionId(), int(context.getLocalProperty(_BATCH_ID))
        )

    return chain


def run_partition(
    assignment: Assignment, vertex: Vertex, batches: Iterable[pa.RecordBatch], partition: int, round_: int
) -> Iterator[pa.RecordBatch]:
    """Run a partition of micro-batch ``round_``; yield the envelopes it sends: none if the partition has no rows."""
    source = vertex.head
    spark_plan = assignment.spark_plan
    recorder = OutputRecorder(spark_plan, partition, round_, distributed=True, read_by_spark=True)
    waiting = gather_batches(batches)
    if (first := next(waiting, None)) is None:
        return
    assert isinstance(source.spec, Read), f"{source.name} reads no source"
    unread: Any = source.spec.source
    rows_of = SourceInput(unread, [], SourceContext(source.name, partition, vertex.parallelism, SystemClock()))
    task, number = task_id(vertex.name, partition), itertools.count()
    clock = MicroBatchClock(assignment.directory.time(round_))
    with (
        working_on(assignment.directory, vertex, partition),
        TaskHost(spark_plan, vertex, partition, None, assignment.run_id, recorder, rows_of, clock=clock) as host,
    ):
        for rows in itertools.chain([first], waiting):
            for split, part in _by_split(rows):
                rows_of.current = split
                with serialized_errors(task):
                    declared = cast_batch(part, source.schema, source.name)
                host.push(0, Data(declared, 0))
                recorder.step(next(number))
        recorder.take_times(host.split_times(), clock.time())
        host.prepare_writers(round_ + 1)
        recorder.step(next(number))  # rows that were folded until now
        host.close()  # before the report, which includes errors of closing
        sent = [*recorder.envelopes(), report_envelope(host.report(), round_)]
        yield from batches_of(assignment.output(0).all_of(sent, partition))


def _by_split(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each split."""
    if _SPLIT not in rows.schema.names:
        yield "", rows
        return
    names = rows.column(_SPLIT)
    every = names.unique().to_pylist()
    for name in every:
        yield name, rows if len(every) == 1 else rows.filter(pc.equal(names, name))


def gather_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, of which none is empty."""
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
