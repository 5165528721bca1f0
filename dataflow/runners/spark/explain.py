"""The table of where each operator of a pipeline runs on Spark, and of differences from a local run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from dataflow.planning.graph import Node, Partitioning
from dataflow.planning.physical_plan import Vertex
from dataflow.runners.explain_table import Explanation
from dataflow.runners.spark.placement import Placement, SparkPlan

__all__ = ["explain_plan"]

_HEADS: Final = ("operator", "kind", "on Spark")
_NOTES: Final = (
    "a micro-batch is the barrier, exactly once: Checkpointing(every=) and its timeouts are ignored",
    "parallelism= is the number of source tasks of a source; keyed operators have a keyed task for each key group",
    "with one source and one source task, the same rows are late as in a local run with parallelism=1; otherwise "
    "which rows are late may differ, as it may between two local runs",
    "emit='updates' emits an update per batch and key, so the number of updates depends on the batches, as in a local "
    "run",
)
_DRIFT: Final = (
    "max_drift= is checked before each micro-batch: a source task too far ahead skips it, so source tasks differ by at "
    "most max_drift and the rows of one micro-batch"
)
_CLOCK: Final = "with_processing_time goes by micro-batch: all rows of one have the same time"
_TRIGGERS: Final = (
    "op.after_time goes by micro-batch: the clock is read when each begins, so results may be shown later than asked"
)

_NOTES_ON_READERS: Final = (
    "a micro-batch is the barrier, exactly once: Checkpointing(every=) and its timeouts are ignored",
    "the DataFrame limits the rows of a micro-batch (maxFilesPerTrigger, maxOffsetsPerTrigger): rows_per_trigger= is "
    "ignored",
    "Spark's partitions are the subtasks: parallelism= is ignored",
)


def explain_plan(pipeline: str, spark_plan: SparkPlan, readers: Mapping[str, str] | None = None) -> Explanation:
    """Return the table of placements; ``readers``: Spark's input for each source in whose place it reads."""
    vertices: dict[str, list[str]] = {}  # a union, and what follows it, runs in the tasks of all of its inputs
    for vertex in spark_plan.plan.vertices.values():
        for node in vertex.nodes:
            vertices.setdefault(node.name, []).append(vertex.name)
    rows = [
        (node.name, node.kind, _place(spark_plan, vertex, node, readers or {}, vertices[node.name]))
        for vertex in spark_plan.plan.vertices.values()
        for node in vertex.nodes
        if vertices[node.name][0] == vertex.name
    ]
    rows = list(dict.fromkeys(rows))  # of two inputs in one vertex
    if readers:
        return Explanation(f"{pipeline} on Spark", _HEADS, tuple(rows), _NOTES_ON_READERS)
    specs = [node.spec for node in spark_plan.plan.graph]
    notes = (
        *_NOTES,
        *([_DRIFT] if any(spec.max_drift is not None for spec in specs) else []),
        *([_CLOCK] if any(spec.times_by_clock for spec in specs) else []),
        *([_TRIGGERS] if any(spec.shown_by_clock for spec in specs) else []),
    )
    return Explanation(f"{pipeline} on Spark", _HEADS, tuple(rows), notes)


def _place(
    spark_plan: SparkPlan, vertex: Vertex, node: Node, readers: Mapping[str, str], vertices: Sequence[str]
) -> str:
    if node is not vertex.head:
        return f"in the tasks of {', '.join(map(repr, dict.fromkeys(vertices)))}"
    match spark_plan.placements[vertex.name]:
        case Placement.SOURCE_TASK:
            return f"a streaming source of {vertex.parallelism} partitions"
        case Placement.NATIVE_READER:
            return f"read by Spark: {readers[vertex.name]}; the chain in mapInArrow"
        case Placement.KEYED_TASK:
            shuffle = f"shuffle {spark_plan.levels[vertex.name]}: transformWithState"
            return f"{shuffle}, {vertex.parallelism} keyed tasks{_by(spark_plan, vertex)}"
        case Placement.PARTITION:
            return "a file for each partition of those tasks; the driver commits after each micro-batch"
        case Placement.DRIVER:
            return "foreachBatch: rows are sent to the driver"
        case never:
            assert_never(never)


def _by(spark_plan: SparkPlan, vertex: Vertex) -> str:
    keys = list(_keys(spark_plan, vertex))
    return f" by {', '.join(keys)}" if keys else ""


def _keys(spark_plan: SparkPlan, vertex: Vertex) -> Iterator[str]:
    for link in spark_plan.plan.inputs(vertex.name):
        if link.partitioning is Partitioning.HASH:
            yield from (key for key in link.keys)
            return
