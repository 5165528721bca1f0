"""Fold the rows of keyed aggregates per key before the shuffle: the planner puts a ``Combine`` node in front.

The rows of such a node count as rows of its input. Some are unchanged, some are records of several rows (see
``operators.aggregation.partials``). So a graph with such nodes and one without restore each other's checkpoints,
including the rows in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.planning.graph import Graph, Node, Partitioning

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["preaggregate"]


def preaggregate(graph: Graph, parallelism: int, chosen: Callable[[Node, pa.Schema], bool]) -> Graph:
    """Return ``graph`` with a ``Combine`` before every ``chosen`` aggregate that its rows reach over a shuffle.

    Aggregates whose state cannot be merged get none. Neither do aggregates whose late rows are read, because those must
    be emitted unchanged.
    """
    result = Graph()
    new_id: dict[int, int] = {}
    for node in graph:
        edges = tuple(replace(edge, source=new_id[edge.source]) for edge in node.inputs)
        folding = node.spec.folding()
        if folding is not None and _is_worth(graph, node, parallelism, chosen):
            (edge,) = edges
            before = result.nodes[edge.source]
            helper = Node(
                id=len(result.nodes),
                name=f"{node.name}/combine",
                spec=folding,
                inputs=(replace(edge, partitioning=None, keys=()),),
                schema=before.output(edge.tag),
                parallelism=before.parallelism,
                encoded=before.encoded if edge.tag is None else (),
            )
            result.nodes.append(helper)
            edges = (replace(edge, source=helper.id, tag=None),)
        new_id[node.id] = len(result.nodes)
        result.nodes.append(replace(node, id=len(result.nodes), inputs=edges))
    return result


def _is_worth(graph: Graph, node: Node, parallelism: int, chosen: Callable[[Node, pa.Schema], bool]) -> bool:
    """Return whether folding before ``node`` is possible and reduces work."""
    if len(node.inputs) != 1:
        return False
    (edge,) = node.inputs
    widths = [n.parallelism or parallelism for n in (graph.nodes[edge.source], node)]
    if edge.partitioning is not Partitioning.HASH:
        return False
    if max(widths) == 1 and not node.spec.folds_alone:
        return False  # no rows move between subtasks, so nothing is saved
    sides_read = {e.tag for n in graph for e in n.inputs if e.source == node.id}
    return not sides_read & set(node.sides) and chosen(node, graph.schema_of(edge))
