"""What becomes of a pipeline on Spark, as a table, and where it differs from a local run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from dataflow.planning.graph import Node, Partitioning
from dataflow.planning.physical_plan import Vertex
from dataflow.planning.specs import Watermarks
from dataflow.runners.explain_table import Explanation
from dataflow.runners.spark.placement import Hosting, Stages

__all__ = ["explained"]

_HEADS: Final = ("operator", "kind", "on Spark")
_NOTES: Final = (
    "a micro-batch is the barrier: Checkpointing(every=) and its timeouts do not count; exactly once",
    "parallelism= is the number of lanes in which a source is read; keyed operators have a slot for each key group",
    "with one source and one lane, the same rows are late as in a local run with parallelism=1; otherwise "
    "which rows are late may differ, as it may between two local runs",
    "emit='updates' gives an update per batch and key; how many there are depends on the batches, as it does locally",
)
_DRIFT: Final = (
    "max_drift= is looked at before each micro-batch: a lane too far ahead sits it out, so lanes are no further apart "
    "than that and what a micro-batch takes"
)

_NOTES_ON_READERS: Final = (
    "a micro-batch is the barrier: Checkpointing(every=) and its timeouts do not count; exactly once",
    "what is in a micro-batch is up to the DataFrame (maxFilesPerTrigger, maxOffsetsPerTrigger): "
    "rows_per_trigger= does not count",
    "Spark's partitions are the subtasks: parallelism= does not count",
)


def explained(pipeline: str, stages: Stages, readers: Mapping[str, str] | None = None) -> Explanation:
    """What becomes of each operator; ``readers`` tells what Spark reads in the place of sources."""
    rows = [
        (node.name, node.kind, _place(stages, vertex, node, readers or {}))
        for vertex in stages.plan.vertices.values()
        for node in vertex.nodes
    ]
    if readers:
        return Explanation(f"{pipeline} on Spark", _HEADS, tuple(rows), _NOTES_ON_READERS)
    drift = [
        node for node in stages.plan.graph if isinstance(node.spec, Watermarks) and node.spec.max_drift is not None
    ]
    return Explanation(f"{pipeline} on Spark", _HEADS, tuple(rows), (*_NOTES, _DRIFT) if drift else _NOTES)


def _place(stages: Stages, vertex: Vertex, node: Node, readers: Mapping[str, str]) -> str:
    if node is not vertex.head:
        return f"in the tasks of {vertex.name!r}"
    match stages.hosting[vertex.name]:
        case Hosting.LANE:
            return f"a streaming source of {vertex.parallelism} partitions"
        case Hosting.READER:
            return f"read by Spark: {readers[vertex.name]}; the chain in mapInArrow"
        case Hosting.SLOT:
            shuffle = f"shuffle {stages.levels[vertex.name]}: transformWithState"
            return f"{shuffle}, {vertex.parallelism} slots{_by(stages, vertex)}"
        case Hosting.PARTITION:
            return "mapInArrow, a file a partition; the driver commits after each micro-batch"
        case Hosting.DRIVER:
            return "foreachBatch: rows are brought to the driver"
        case never:
            assert_never(never)


def _by(stages: Stages, vertex: Vertex) -> str:
    keys = list(_keys(stages, vertex))
    return f" by {', '.join(keys)}" if keys else ""


def _keys(stages: Stages, vertex: Vertex) -> Iterator[str]:
    for link in stages.plan.inputs(vertex.name):
        if link.partitioning is Partitioning.HASH:
            yield from (key for key in link.keys)
            return
