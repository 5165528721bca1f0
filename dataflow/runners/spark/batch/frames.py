"""The DataFrames of a batch: what Spark computes itself, and around it the tasks, region by region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from dataflow.contracts.source import Split
from dataflow.planning.physical_plan import Link, Vertex
from dataflow.planning.specs import Read, Write
from dataflow.runners.spark.batch.cut import Cut
from dataflow.runners.spark.batch.row_counts import RowCounts
from dataflow.runners.spark.batch.tasks import level_function, reader_function, source_function
from dataflow.runners.spark.envelopes import DDL, decoder
from dataflow.runners.spark.expressions.spark_types import nullable, spark_schema
from dataflow.runners.spark.lowering import lower
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.session import functions, map_in_arrow
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runtime.task.task_input import SplitState

__all__ = ["BatchFrames", "MadeFrames"]


@dataclass(frozen=True)
class MadeFrames:
    """DataFrames of a batch, to compute one after the other.

    Attributes:
        for_driver: envelopes for the driver.
        for_sinks: the rows of each sink that gets a DataFrame, by name.
    """

    for_driver: Sequence[Any]
    for_sinks: Mapping[str, Any]


@dataclass(frozen=True)
class BatchFrames:
    """The DataFrames of one batch.

    Attributes:
        session: the session.
        assignment: the job.
        splits: the splits of each source that tasks read.
        row_counts: observes what Spark computes.
        readers: the user's DataFrames in place of sources.
    """

    session: Any
    assignment: Assignment
    splits: Mapping[str, Sequence[Split]]
    row_counts: RowCounts
    readers: NativeReaders

    def make(self) -> MadeFrames:
        """Return DataFrames of all that the tasks send to the driver, and those for sinks that get DataFrames.

        Regions before the last one are computed now. Their rows stay on the executors; if one of these is lost, Spark
        fails the batch, because another attempt could give other rows.
        """
        spark_plan = self.assignment.spark_plan
        cut = spark_plan.cut
        last = max([*spark_plan.regions.values(), *(() if cut is None else cut.native.values())], default=0)
        frames: dict[tuple[str, str | None], Any] = {}
        done: list[Any] = []
        for region in range(last + 1):
            if cut is not None:
                self._compute(cut, region, frames)
            rows = self._tasks(region, frames, done)
            if rows is None:
                continue
            if region < last:
                rows = rows.localCheckpoint(eager=True)
                self._hand_over(region, rows, frames)
            done.append(rows)
        inside = [n for n, link in enumerate(spark_plan.plan.links) if not self._is_for_driver(link)]
        # no union of them: in a union, the partitions of the second DataFrame have other numbers, and ours mean tasks
        for_driver = [rows.where(~rows["link"].isin(inside)) if inside else rows for rows in done]
        return MadeFrames(for_driver, {name: frames[name, None] for name in spark_plan.frame_sinks})

    def _compute(self, cut: Cut, region: int, frames: dict[tuple[str, str | None], Any]) -> None:
        """Add the DataFrames of the operators of a region that Spark computes."""
        for node in cut.whole:
            if cut.native.get(node.name) == region:
                inputs = [frames[cut.whole.nodes[edge.source].name, edge.tag] for edge in node.inputs]
                if isinstance(node.spec, Read) and node.name in self.readers:
                    frame = self.readers.batch_frame(node)
                elif isinstance(node.spec, Write):
                    frame = inputs[0]
                else:
                    frame = lower(node, cut.whole, inputs, self.session)
                frames[node.name, None] = self.row_counts.observed(node, frame)

    def _tasks(self, region: int, frames: Mapping[tuple[str, str | None], Any], done: Sequence[Any]) -> Any:
        """Return the envelopes that the tasks of a region send to the driver and to later regions; None: no tasks."""
        spark_plan = self.assignment.spark_plan
        workers = replace(self.assignment, spark_plan=spark_plan.for_workers(with_sources=False))
        parts = [
            map_in_arrow(frames[vertex.head.name, None], reader_function(workers, vertex), DDL)
            for vertex in spark_plan.at(0, Placement.NATIVE_READER, region)
        ]
        if region == 0 and spark_plan.source_tasks:
            parts.append(self._sources())
        links = [n for n, link in enumerate(spark_plan.plan.links) if self._comes_from_before(link, region)]
        if links:
            parts += [rows.where(rows["link"].isin(links)) for rows in done]
        if not parts:
            return None
        rows = reduce(lambda one, other: one.unionAll(other), parts)
        for level in range(1, spark_plan.depth_of(region) + 1):
            rows = rows.repartitionById(spark_plan.partitions, "slot")
            rows = rows.mapInArrow(level_function(workers, level, region), DDL)
        return rows

    def _sources(self) -> Any:
        spark_plan = self.assignment.spark_plan
        reading = replace(self.assignment, spark_plan=spark_plan.for_workers(with_sources=True))
        tasks = spark_plan.source_tasks
        own = [self._splits_of(vertex, subtask) for vertex, subtask in tasks]
        return self.session.range(0, len(tasks), 1, len(tasks)).mapInArrow(source_function(reading, own), DDL)

    def _splits_of(self, vertex: Vertex, subtask: int) -> list[SplitState]:
        return [SplitState(split) for split in self.splits[vertex.head.name][subtask :: vertex.parallelism]]

    def _hand_over(self, region: int, rows: Any, frames: dict[tuple[str, str | None], Any]) -> None:
        """Add the DataFrames of rows that tasks of a region computed, and that Spark needs."""
        spark_plan = self.assignment.spark_plan
        assert spark_plan.cut is not None, "without a cut there is one region"
        for output, sink in spark_plan.cut.handed.items():
            if spark_plan.region(sink) == region:
                (number,) = [n for n, link in enumerate(spark_plan.plan.links) if link.target == sink]
                schema = spark_plan.plan.vertices[sink].head.schema
                sent = rows.where(functions().col("link") == number)
                frames[output] = sent.mapInArrow(decoder([number]), spark_schema(nullable(schema)))

    def _is_for_driver(self, link: Link) -> bool:
        return link.target in self.assignment.spark_plan.driver_sinks

    def _comes_from_before(self, link: Link, region: int) -> bool:
        spark_plan = self.assignment.spark_plan
        inside = spark_plan.placements[link.target] is Placement.KEYED_TASK
        return inside and spark_plan.region(link.target) == region and spark_plan.region(link.source) < region
