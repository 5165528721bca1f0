"""The table of where each operator of a batch runs on Spark."""

from __future__ import annotations

from typing import Final, assert_never

from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Vertex
from dataflow.runners.explain_table import Explanation
from dataflow.runners.spark.placement import Placement, SparkPlan

__all__ = ["explain_batch"]

_HEADS: Final = ("operator", "kind", "on Spark")
_NOTES: Final = (
    "the whole pipeline is one job of Spark's; what its tasks stage is committed when it has ended",
    "the one checkpoint comes then: with checkpoint=, a crash after it only repeats the commit; without, and before "
    "it, a batch starts from nothing",
    "parallelism= is the number of source tasks of a source; a shuffle has max_key_groups= partitions, by default "
    "spark.sql.shuffle.partitions",
)


def explain_batch(pipeline: str, spark_plan: SparkPlan) -> Explanation:
    """Return the table of placements of a batch."""
    rows = [
        (node.name, node.kind, _place(spark_plan, vertex, node))
        for vertex in spark_plan.plan.vertices.values()
        for node in vertex.nodes
    ]
    return Explanation(f"{pipeline} on Spark, as a batch", _HEADS, tuple(rows), _NOTES)


def _place(spark_plan: SparkPlan, vertex: Vertex, node: Node) -> str:
    if node is not vertex.head:
        return f"in the tasks of {vertex.name!r}"
    match spark_plan.placements[vertex.name]:
        case Placement.SOURCE_TASK:
            return f"mapInArrow, {vertex.parallelism} source tasks"
        case Placement.KEYED_TASK:
            return f"shuffle {spark_plan.levels[vertex.name]}: mapInArrow, {vertex.parallelism} partitions"
        case Placement.DRIVER:
            return "the driver: rows are sent to it"
        case Placement.NATIVE_READER | Placement.PARTITION as other:
            raise AssertionError(f"a batch has no {other}")
        case never:
            assert_never(never)
