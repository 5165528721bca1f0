"""The plan of a job on Spark as its events show it: the tasks that report what they did.

Spark numbers the subtasks of some vertices anew in each micro-batch, and the driver runs each of its sinks once. Such a
vertex is one task here. What Spark computes itself has no task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from dataflow.events.plan_shape import LinkShape, PlanShape
from dataflow.planning.plan_shape import shape_of
from dataflow.runners.spark.placement import Placement, SparkPlan

__all__ = ["event_plan", "without_busy_time"]

_BY_SPARK: Final = (Placement.NATIVE_READER, Placement.PARTITION)
"""Spark decides how many partitions run such a vertex, and several do so at the same time."""


def event_plan(spark_plan: SparkPlan) -> PlanShape:
    """Return the plan of a job, with the tasks that its events name."""
    shape, placements = shape_of(spark_plan.plan, "spark"), spark_plan.placements
    helpers = () if spark_plan.cut is None else tuple(spark_plan.cut.handed.values())  # they pass rows to Spark
    vertices = [
        replace(vertex, parallelism=1) if placements[vertex.name] in (*_BY_SPARK, Placement.DRIVER) else vertex
        for vertex in shape.vertices
        if vertex.name not in helpers
    ]
    width = {vertex.name: vertex.parallelism for vertex in vertices}
    links = [_between(link, width) for link in shape.links if link.source in width and link.target in width]
    return replace(shape, vertices=tuple(vertices), links=tuple(links))


def _between(link: LinkShape, width: Mapping[str, int]) -> LinkShape:
    """Return a link between vertices of these widths: a forward link joins equally many subtasks."""
    if link.partitioning == "forward" and width[link.source] != width[link.target]:
        return replace(link, partitioning="rebalance")
    return link


def without_busy_time(spark_plan: SparkPlan) -> Collection[str]:
    """Return the vertices of which it is not known how long their one task was busy.

    Several partitions of Spark's work for it at the same time, or Spark computes rows while it works.
    """
    by_spark = [name for name, placement in spark_plan.placements.items() if placement in _BY_SPARK]
    return frozenset([*by_spark, *spark_plan.frame_sinks])
