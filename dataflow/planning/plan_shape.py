"""The plan as plain data, for events, recordings and pictures."""

from __future__ import annotations

from dataflow.contracts.checkpointing import Mode
from dataflow.events.plan_shape import InputShape, LinkShape, OperatorShape, PlanShape, VertexShape
from dataflow.events.repeat_precision import Precision
from dataflow.planning.duplicate_precision import precisions
from dataflow.planning.graph import Edge, Graph, Node
from dataflow.planning.physical_plan import Plan
from dataflow.planning.specs import Read, Write

__all__ = ["input_shape", "shape_of", "shape_of_graph"]


def shape_of(plan: Plan, engine: str) -> PlanShape:
    """Return the shape of ``plan``; ``engine`` is the name of the runner."""
    vertices = [
        VertexShape(vertex.name, vertex.parallelism, tuple([node.name for node in vertex.nodes]))
        for vertex in plan.vertices.values()
    ]
    ends = [(link.source, link.target) for link in plan.links]
    links = [
        LinkShape(
            link.source,
            link.target,
            plan.graph.nodes[link.node].name,
            link.partitioning.value,
            link.port,
            link.tag,
            link.keys,
            is_parallel=ends.count((link.source, link.target)) > 1,
        )
        for link in plan.links
    ]
    return PlanShape(engine, shape_of_graph(plan.logical).operators, tuple(vertices), tuple(links))


def shape_of_graph(graph: Graph) -> PlanShape:
    """Return the logical operators of ``graph`` alone, without tasks."""
    repeats = precisions(graph.describe(), Mode.UNALIGNED)
    return PlanShape("", tuple([_operator(graph, node, repeats[node.name]) for node in graph]))


def _operator(graph: Graph, node: Node, repeats: Precision) -> OperatorShape:
    role = "source" if isinstance(node.spec, Read) else "sink" if isinstance(node.spec, Write) else "transform"
    inputs = [input_shape(graph, edge) for edge in node.inputs]
    words = node.spec.kind_words
    return OperatorShape(node.name, node.kind, role, tuple(inputs), node.stateful, node.parallelism, repeats, words)


def input_shape(graph: Graph, edge: Edge) -> InputShape:
    """Return the shape of an edge of ``graph``."""
    partitioning = None if edge.partitioning is None else edge.partitioning.value
    return InputShape(graph.nodes[edge.source].name, edge.tag, edge.keys, partitioning)
