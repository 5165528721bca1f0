"""Keyed aggregates get help before the shuffle: a node in front of the edge folds the rows of each batch per key.

The node's rows count as rows of its input: some come as they are, some as records of several (``operators.partials``).
So a graph with such nodes and one without restore each other's checkpoints, rows in flight included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dataflow.graph import Graph, Node, Partitioning
from dataflow.specs import Combine, Grouped

__all__ = ["combined"]


def combined(graph: Graph, parallelism: int, chosen: Callable[[Node], bool]) -> Graph:
    """``graph`` with a ``Combine`` before every ``chosen`` aggregate that its rows reach over a shuffle.

    Aggregates whose state cannot be merged have none, nor those whose late rows somebody wants as they came.
    """
    made = Graph()
    place: dict[int, int] = {}
    for node in graph:
        edges = tuple(replace(edge, source=place[edge.source]) for edge in node.inputs)
        if isinstance(node.spec, Grouped) and _is_worth(graph, node, node.spec, parallelism) and chosen(node):
            (edge,) = edges
            before = made.nodes[edge.source]
            helper = Node(
                id=len(made.nodes),
                name=f"{node.name}/combine",
                spec=Combine(node.spec),
                inputs=(replace(edge, partitioning=None, keys=()),),
                schema=before.output(edge.tag),
                parallelism=before.parallelism,
            )
            made.nodes.append(helper)
            edges = (replace(edge, source=helper.id, tag=None),)
        place[node.id] = len(made.nodes)
        made.nodes.append(replace(node, id=len(made.nodes), inputs=edges))
    return made


def _is_worth(graph: Graph, node: Node, spec: Grouped, parallelism: int) -> bool:
    if len(node.inputs) != 1:
        return False
    (edge,) = node.inputs
    widths = [n.parallelism or parallelism for n in (graph.nodes[edge.source], node)]
    if edge.partitioning is not Partitioning.HASH:
        return False
    if max(widths) == 1 and not spec.folds_alone:
        return False  # no rows move between subtasks, so nothing is saved
    wanted = {e.tag for n in graph for e in n.inputs if e.source == node.id}
    if wanted & set(node.sides):
        return False
    from operators.records import is_mergeable

    return is_mergeable(spec.aggregations, graph.schema_of(edge))
