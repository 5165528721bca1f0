"""From a logical graph to what runs: vertices of fused operators, and the links between them. Pure.

A node joins the vertex of its input when rows need not move between subtasks: one input, forward, equal parallelism.
What is left are vertices whose head takes rows from channels (or is a source), with a tree of operators behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from dataflow.errors import ConfigurationError, GraphError
from dataflow.graph import (
    Aggregate,
    Apply,
    Edge,
    Filter,
    Graph,
    MapBatches,
    Node,
    Partitioning,
    Project,
    Read,
    Spec,
    Union,
    Write,
)
from dataflow.operator import Json, Source

__all__ = ["Link", "Plan", "Vertex", "of", "pruned_sources", "task_id"]


def task_id(vertex: str, subtask: int) -> str:
    """The name of one subtask, in messages and in checkpoints.

    >>> task_id("counts", 1)
    'counts[1]'
    """
    return f"{vertex}[{subtask}]"


@dataclass(frozen=True, slots=True)
class Link:
    """Rows of ``node`` (its output ``tag``) in vertex ``source`` to input ``port`` of the head of vertex ``target``."""

    source: str
    node: int
    tag: str | None
    target: str
    port: int
    partitioning: Partitioning
    keys: tuple[str, ...]


@dataclass(slots=True)
class Vertex:
    """Operators that run fused in one task, ``parallelism`` times. ``nodes[0]`` is the head; parents precede children."""

    name: str
    parallelism: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def blocking(self) -> bool:
        return any(node.blocking for node in self.nodes)

    @property
    def tasks(self) -> list[str]:
        return [task_id(self.name, i) for i in range(self.parallelism)]


@dataclass(slots=True)
class Plan:
    """Vertices in topological order, and the links between them."""

    graph: Graph
    vertices: dict[str, Vertex]
    links: list[Link]
    max_key_groups: int

    def inputs(self, vertex: str) -> list[Link]:
        """The links into a vertex, by port."""
        return sorted((link for link in self.links if link.target == vertex), key=lambda link: link.port)

    def outputs(self, vertex: str) -> list[Link]:
        return [link for link in self.links if link.source == vertex]

    def tasks(self) -> Iterator[tuple[Vertex, int, str]]:
        """Every subtask: its vertex, index and name."""
        for vertex in self.vertices.values():
            for i, task in enumerate(vertex.tasks):
                yield vertex, i, task

    def channels(self, link: Link) -> list[tuple[int, int]]:
        """The (source subtask, target subtask) pairs of a link, ordered by target, then source."""
        sources = self.vertices[link.source].parallelism
        targets = self.vertices[link.target].parallelism
        if link.partitioning is Partitioning.FORWARD:
            return [(i, i) for i in range(targets)]
        return [(s, t) for t in range(targets) for s in range(sources)]

    def predecessors(self) -> Mapping[str, tuple[str, ...]]:
        """For each task the tasks it takes rows from."""
        found: dict[str, dict[str, None]] = {task: {} for _, _, task in self.tasks()}
        for link in self.links:
            for s, t in self.channels(link):
                found[task_id(link.target, t)][task_id(link.source, s)] = None
        return {task: tuple(before) for task, before in found.items()}

    def describe(self) -> list[dict[str, Json]]:
        """The graph's description with the parallelism of each operator: what a checkpoint keeps."""
        width = {node.name: vertex.parallelism for vertex in self.vertices.values() for node in vertex.nodes}
        return [{**node, "parallelism": width[str(node["name"])]} for node in self.graph.describe()]


def of(graph: Graph, *, parallelism: int = 1, max_key_groups: int = 128) -> Plan:
    """Plan ``graph`` for ``parallelism`` subtasks an operator, where an operator does not say otherwise.

    Raises: ConfigurationError for a parallelism below 1 or above the number of key groups; GraphError for a forward
    edge between operators of different parallelism.
    """
    if not 1 <= parallelism:
        raise ConfigurationError(f"parallelism is at least 1, got {parallelism}")
    plan = Plan(graph, {}, [], max_key_groups)
    home: dict[int, Vertex] = {}
    for node in graph:
        width = node.parallelism or parallelism
        if width > max_key_groups:
            raise ConfigurationError(
                f"operator {node.name!r}: parallelism {width} is above max_key_groups={max_key_groups}; "
                "the number of key groups bounds the parallelism and is fixed by the first checkpoint"
            )
        chained = _chains(node, home, width)
        if chained:
            vertex = home[node.inputs[0].source]
        else:
            vertex = plan.vertices[node.name] = Vertex(node.name, width)
            for port, edge in enumerate(node.inputs):
                how = _partitioning(edge, node, home[edge.source].parallelism, width)
                link = Link(home[edge.source].name, edge.source, edge.tag, node.name, port, how, edge.keys)
                plan.links.append(link)
        vertex.nodes.append(node)
        home[node.id] = vertex
    return plan


def _chains(node: Node, home: Mapping[int, Vertex], width: int) -> bool:
    if isinstance(node.spec, Read) or len(node.inputs) != 1:
        return False
    edge = node.inputs[0]
    forward = edge.partitioning in (None, Partitioning.FORWARD)
    return forward and home[edge.source].parallelism == width


def _partitioning(edge: Edge, node: Node, before: int, width: int) -> Partitioning:
    if edge.partitioning is None:
        return Partitioning.FORWARD if before == width else Partitioning.REBALANCE
    if edge.partitioning is Partitioning.FORWARD and before != width:
        raise GraphError(f"operator {node.name!r}: a forward edge needs equal parallelism, found {before} and {width}")
    return edge.partitioning


def pruned_sources(graph: Graph) -> Mapping[int, Source]:
    """The source of each ``Read`` node, told to give only the columns that the pipeline uses."""
    used: dict[int, set[str]] = {node.id: set() for node in graph}
    for node in reversed(graph.nodes):
        for edge in node.inputs:
            above = graph.nodes[edge.source].schema.names
            used[edge.source].update(edge.keys, _reads(node.spec, used[node.id], above))
    sources = {}
    for node in graph:
        if isinstance(node.spec, Read):
            columns = [name for name in node.schema.names if name in used[node.id]] or node.schema.names[:1]
            sources[node.id] = node.spec.source.select(columns)
    return sources


def _reads(spec: Spec, used: set[str], available: Sequence[str]) -> Iterable[str]:
    """The input columns an operator needs, if ``used`` of its output are used."""
    match spec:
        case Filter(predicate=predicate):
            return {*used, *predicate.columns()}
        case Project(columns=columns):
            return [name for column in columns for name in column.columns()]
        case Aggregate(keys=keys, aggregations=aggregations):
            return {*keys, *(name for a in aggregations for name in a.columns())}
        case Union():
            return used
        case Read() | MapBatches() | Apply() | Write():
            return available
        case _:
            assert_never(spec)
