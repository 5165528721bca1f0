"""Unions without tasks of their own: their operators run in the tasks of each input. Pure.

A union takes rows from several vertices, so a plan gives it a vertex, and on an engine with expensive shuffles its rows
would move twice. Instead, the vertex of each input gets a copy of the union and of the operators after it in the same
vertex. The links that left the union's vertex leave each copy. So the input port of an operator may have several links.

Time is still the least of all inputs: it is taken by the operators that the links lead to. So only operators that
neither make nor hold back time, and need no state, can be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dataflow.planning.graph import Edge, Graph, Node, Partitioning
from dataflow.planning.physical_plan import Link, Plan, Vertex, spread

__all__ = ["inline_unions"]


def inline_unions(plan: Plan, decides_time: Callable[[Node], bool], fixed: frozenset[str] = frozenset()) -> Plan:
    """Return ``plan`` with unions in the vertices of their inputs, where that changes no result.

    Args:
        plan: a plan with vertices and links.
        decides_time: says whether subtasks of an operator may pass on different watermarks for the same one.
        fixed: the names of operators that keep a vertex of their own, because the user chose their parallelism.
    """
    for union in list(plan.vertices.values()):  # in topological order, so a union of unions has links of copies
        if _can_be_copied(plan, union, decides_time, fixed):
            plan = _inlined(plan, union)
    return plan


def _can_be_copied(plan: Plan, union: Vertex, decides_time: Callable[[Node], bool], fixed: frozenset[str]) -> bool:
    if not union.head.spec.runs_per_input or any(edge.partitioning is not None for edge in union.head.inputs):
        return False
    if any(node.name in fixed or decides_time(node) or not _keeps_nothing(node) for node in union.nodes):
        return False
    if any(_edge_at(plan, link).partitioning is Partitioning.FORWARD for link in plan.outputs(union.name)):
        return False
    inputs = plan.inputs(union.name)
    return all(_same_time(plan, name, [i for i in inputs if i.source == name], decides_time) for name in plan.vertices)


def _edge_at(plan: Plan, link: Link) -> Edge:
    return plan.vertices[link.target].head.inputs[link.port]


def _keeps_nothing(node: Node) -> bool:
    return node.spec.row_wise or node.spec.folds_rows


def _same_time(plan: Plan, vertex: str, links: Sequence[Link], decides_time: Callable[[Node], bool]) -> bool:
    """Return whether all copies in a vertex have the same time, as one operator's state in it has one time by name."""
    makers = {node.id for node in plan.vertices[vertex].nodes if decides_time(node)}
    above = [makers & _ancestors(plan, vertex, link.node) for link in links]
    return all(ids == above[0] for ids in above)


def _ancestors(plan: Plan, vertex: str, last: int) -> set[int]:
    """Return the ids of a node and of those before it in its vertex."""
    ids, head = {last}, plan.vertices[vertex].head.id
    while last != head:
        last = plan.graph.nodes[last].inputs[0].source
        ids.add(last)
    return ids


def _inlined(plan: Plan, union: Vertex) -> Plan:
    nodes, links = list(plan.graph.nodes), [link for link in plan.links if union.name not in (link.source, link.target)]
    vertices = {name: vertex for name, vertex in plan.vertices.items() if name != union.name}
    for link in plan.inputs(union.name):
        copies = _copies(union, link, len(nodes))
        nodes += copies
        before = vertices[link.source]
        vertices[before.name] = Vertex(before.name, before.parallelism, [*before.nodes, *copies])
        new_id = {old.id: copy.id for old, copy in zip(union.nodes, copies, strict=True)}
        for out in plan.outputs(union.name):
            edge, target = _edge_at(plan, out), vertices[out.target]
            meaning = plan.graph.meaning_of(edge)
            how, keys = spread(edge, meaning, target.head, before.parallelism, target.parallelism)
            links.append(replace(out, source=before.name, node=new_id[out.node], partitioning=how, keys=keys))
    return replace(plan, graph=Graph(nodes), vertices=vertices, links=links)


def _copies(union: Vertex, link: Link, first: int) -> Sequence[Node]:
    """Return copies of the nodes of ``union`` for one of its inputs, with ids from ``first`` on and the same names."""
    new_id = {node.id: first + place for place, node in enumerate(union.nodes)}
    edges = {node.id: node.inputs[0] for node in union.nodes[1:]}
    edges = {old: replace(edge, source=new_id[edge.source]) for old, edge in edges.items()}
    edges[union.head.id] = replace(union.head.inputs[link.port], source=link.node, tag=link.tag)
    return [replace(node, id=new_id[node.id], inputs=(edges[node.id],)) for node in union.nodes]
