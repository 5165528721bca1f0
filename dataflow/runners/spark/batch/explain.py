"""The table of where each operator of a batch runs on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Vertex
from dataflow.planning.specs import Read, Write
from dataflow.runners.explain_table import Explanation
from dataflow.runners.spark.batch.cut import SAME_PROCESS, Cut
from dataflow.runners.spark.placeholders import PlaceholderSink, PlaceholderSource
from dataflow.runners.spark.placement import Placement, SparkPlan

__all__ = ["explain_batch"]

_HEADS: Final = ("operator", "kind", "on Spark")
_NOTES: Final = (
    "nothing is committed before the end: then comes the one checkpoint, and the commit of what tasks have staged",
    "with checkpoint=, a crash after the checkpoint only repeats the commit; without, and before it, a batch starts "
    "from nothing",
    "parallelism= is the number of source tasks of a source; a shuffle between tasks has max_key_groups= partitions, "
    "by default spark.sql.shuffle.partitions, as Spark's own shuffles",
)


def explain_batch(pipeline: str, spark_plan: SparkPlan, readers: Mapping[str, str]) -> Explanation:
    """Return the table of placements of a batch, in the order of the pipeline, and why not all of it is Spark's.

    ``readers``: Spark's description of the DataFrame of each source that has one.
    """
    cut = spark_plan.cut
    assert cut is not None, "a batch is cut"
    places = {
        node.name: _place(spark_plan, vertex, node)
        for vertex in spark_plan.plan.vertices.values()
        for node in vertex.nodes
        if not _is_placeholder(node)
    }
    places |= dict.fromkeys(cut.native, "Spark's own plan")
    places |= {name: f"Spark reads {what}" for name, what in readers.items()}
    kinds = {node.name: node.kind for vertex in spark_plan.plan.vertices.values() for node in vertex.nodes}
    kinds |= {node.name: node.kind for node in cut.whole}
    names: list[str] = []
    own = {node.name for node in cut.whole}
    helpers = [name for name in places if name not in own]
    for node in cut.whole:  # helpers of the planner, which only the tasks have, come before the operator they help
        names += [name for name in helpers if name.startswith(f"{node.name}/")]
        names.append(node.name)
    rows = [(name, kinds[name], places[name]) for name in names]
    return Explanation(f"{pipeline} on Spark, as a batch", _HEADS, tuple(rows), (*_NOTES, *_reasons(cut)))


def _reasons(cut: Cut) -> list[str]:
    """Return why Spark does not compute operators itself, those that follow from others left out."""
    told = {name: why for name, why in cut.reasons.items() if why not in SAME_PROCESS}
    return [f"{name!r} is not in Spark's own plan: {why}" for name, why in told.items()]


def _is_placeholder(node: Node) -> bool:
    spec = node.spec
    if isinstance(spec, Read):
        return isinstance(spec.source, PlaceholderSource)
    return isinstance(spec, Write) and isinstance(spec.sink, PlaceholderSink)


def _place(spark_plan: SparkPlan, vertex: Vertex, node: Node) -> str:
    if node is not vertex.head:
        native = spark_plan.placements[vertex.name] is Placement.NATIVE_READER
        return f"mapInArrow on the rows of {vertex.name!r}" if native else f"in the tasks of {vertex.name!r}"
    match spark_plan.placements[vertex.name]:
        case Placement.SOURCE_TASK:
            return f"mapInArrow, {vertex.parallelism} source tasks"
        case Placement.KEYED_TASK:
            return f"shuffle {spark_plan.levels[vertex.name]}: mapInArrow, {vertex.parallelism} partitions"
        case Placement.NATIVE_READER:
            raise AssertionError("the head is a placeholder")
        case Placement.DRIVER:
            return "the driver: rows are sent to it"
        case Placement.PARTITION:
            raise AssertionError("a batch writes in the tasks that have the rows")
        case never:
            assert_never(never)
