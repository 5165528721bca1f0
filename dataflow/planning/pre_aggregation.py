"""Keyed aggregates get help before the shuffle: a node in front of the edge folds the rows of each batch per key.

The node's rows count as rows of its input. Some come as they are, some as records of several rows (see
``operators.aggregation.partials``). So a graph with such nodes and one without restore each other's checkpoints, and
the rows in flight that these hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.planning.graph import Graph, Node, Partitioning
from dataflow.planning.specs import Combine, Grouped

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["preaggregate"]


def preaggregate(graph: Graph, parallelism: int, chosen: Callable[[Node, pa.Schema], bool]) -> Graph:
    """``graph`` with a ``Combine`` before every ``chosen`` aggregate that its rows reach over a shuffle.

    Aggregates whose state cannot be merged have none, nor those whose late rows somebody wants as they came.
    """
    made = Graph()
    place: dict[int, int] = {}
    for node in graph:
        edges = tuple(replace(edge, source=place[edge.source]) for edge in node.inputs)
        if isinstance(node.spec, Grouped) and _is_worth(graph, node, node.spec, parallelism, chosen):
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


def _is_worth(
    graph: Graph, node: Node, spec: Grouped, parallelism: int, chosen: Callable[[Node, pa.Schema], bool]
) -> bool:
    if len(node.inputs) != 1:
        return False
    (edge,) = node.inputs
    widths = [n.parallelism or parallelism for n in (graph.nodes[edge.source], node)]
    if edge.partitioning is not Partitioning.HASH:
        return False
    if max(widths) == 1 and not spec.folds_alone:
        return False  # no rows move between subtasks, so nothing is saved
    wanted = {e.tag for n in graph for e in n.inputs if e.source == node.id}
    return not wanted & set(node.sides) and chosen(node, graph.schema_of(edge))
