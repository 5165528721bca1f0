"""The physical plan of a logical graph: vertices of fused operators, and the links between them. Pure.

A node joins the vertex of its input if rows need not move between subtasks: one input, forward, equal parallelism.
The head of each vertex takes rows from channels (or is a source); the other operators form a tree below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dataflow.contracts.execution import Execution
from dataflow.contracts.source import InputIdentity, Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import Meaning, Updates
from dataflow.errors import ConfigurationError, GraphError, check_count
from dataflow.events.plan_shape import channel_name, task_id
from dataflow.planning.batch_graph import batch_graph
from dataflow.planning.encode_columns import encode_columns
from dataflow.planning.graph import Edge, Graph, Node, Partitioning
from dataflow.planning.pre_aggregation import preaggregate
from dataflow.planning.prune_columns import prune_columns
from dataflow.planning.prune_rows import prune_rows
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.errors import BarrierflowWarning

__all__ = [
    "ChannelId",
    "Link",
    "Plan",
    "Vertex",
    "executed_graph",
    "make_plan",
    "place",
    "spread",
    "vertex_of",
]


def vertex_of(task: str) -> str:
    """Return the vertex of a task's name, exactly: names of operators hold no brackets (see ``Graph.add``).

    >>> vertex_of("a -> b[1]")
    'a -> b'
    """
    return task.rpartition("[")[0]


@dataclass(frozen=True, slots=True)
class ChannelId:
    """The ends of a channel: two tasks, and the operator at the head of the target.

    ``input`` is the port it feeds if several channels connect the same two tasks; else None.
    """

    source: str
    target: str
    operator: str
    input: int | None = None

    @property
    def end(self) -> str:
        """The target, with the input if that is needed to distinguish channels."""
        return self.target if self.input is None else f"{self.target} (input {self.input})"

    @property
    def name(self) -> str:
        """The name of the channel in messages and checkpoints."""
        return channel_name(self.source, self.target, self.input)


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
    """Operators that run fused in one task, ``parallelism`` times. The head comes first, parents before children."""

    name: str
    parallelism: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def head(self) -> Node:
        """The operator that takes rows from channels, or reads a source."""
        return self.nodes[0]

    @property
    def blocking(self) -> bool:
        """Whether a call of one of its operators may wait for something outside the engine."""
        return any(node.blocking for node in self.nodes)

    @property
    def tasks(self) -> list[str]:
        """The names of its subtasks."""
        return [task_id(self.name, i) for i in range(self.parallelism)]


@dataclass(slots=True)
class Plan:
    """Vertices in topological order, and the links between them.

    ``graph`` is the graph that runs; ``logical`` is the graph of the user, including columns that no operator reads.
    The graph of a batch has other settings and some more operators: see ``batch_graph``.
    """

    graph: Graph
    logical: Graph
    vertices: dict[str, Vertex]
    links: list[Link]
    max_key_groups: int
    execution: Execution = Execution.STREAMING

    def inputs(self, vertex: str) -> list[Link]:
        """Return the links into a vertex, by port."""
        return sorted((link for link in self.links if link.target == vertex), key=lambda link: link.port)

    def untimed_ports(self, vertex: str) -> frozenset[int]:
        """Return the input ports of a vertex that do not count for time: broadcast ones beside others."""
        inputs = self.inputs(vertex)
        broadcast = frozenset([link.port for link in inputs if link.partitioning is Partitioning.BROADCAST])
        all_count = len(broadcast) == len(inputs) or self.vertices[vertex].head.spec.times_broadcasts
        return frozenset() if all_count else broadcast

    def outputs(self, vertex: str) -> list[Link]:
        """Return the links out of a vertex."""
        return [link for link in self.links if link.source == vertex]

    def tasks(self) -> Iterator[tuple[Vertex, int, str]]:
        """Yield every subtask: its vertex, index and name."""
        for vertex in self.vertices.values():
            for i, task in enumerate(vertex.tasks):
                yield vertex, i, task

    def channels(self, link: Link) -> list[tuple[int, int]]:
        """Return the (source subtask, target subtask) pairs of a link, ordered by target, then source."""
        sources = self.vertices[link.source].parallelism
        targets = self.vertices[link.target].parallelism
        if link.partitioning is Partitioning.FORWARD:
            return [(i, i) for i in range(targets)]
        return [(s, t) for t in range(targets) for s in range(sources)]

    def channel_ids(self, link: Link) -> Mapping[tuple[int, int], ChannelId]:
        """Return the ends of each channel of a link, by (source subtask, target subtask)."""
        parallel_links = [other for other in self.links if (other.source, other.target) == (link.source, link.target)]
        port = link.port if len(parallel_links) > 1 else None
        return {
            (s, t): ChannelId(task_id(link.source, s), task_id(link.target, t), link.target, port)
            for s, t in self.channels(link)
        }

    def predecessors(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each task the tasks from which it takes rows."""
        sources: dict[str, dict[str, None]] = {task: {} for _, _, task in self.tasks()}
        for link in self.links:
            for s, t in self.channels(link):
                sources[task_id(link.target, t)][task_id(link.source, s)] = None
        return {task: tuple(before) for task, before in sources.items()}

    def with_specs(self, specs: Mapping[str, Spec]) -> Plan:
        """Return the same plan with other settings of the operators named in ``specs``."""
        graph, logical = (
            Graph([replace(node, spec=specs.get(node.name, node.spec)) for node in graph])
            for graph in (self.graph, self.logical)
        )
        vertices = {
            vertex.name: Vertex(vertex.name, vertex.parallelism, [graph.nodes[node.id] for node in vertex.nodes])
            for vertex in self.vertices.values()
        }
        return replace(self, graph=graph, logical=logical, vertices=vertices)

    def loaded(self, notify: Callable[[type[BarrierflowWarning], str], None]) -> Plan:
        """Return the same plan with what its operators read at each start of a job: see ``Spec.loaded``."""
        nodes = {node.name: node for node in self.graph}  # the copies of an operator have one name
        specs = {name: node.spec.loaded(name, notify) for name, node in nodes.items()}
        changed = {name: spec for name, spec in specs.items() if spec is not nodes[name].spec}
        return self.with_specs(changed) if changed else self

    def describe(self) -> list[dict[str, Json]]:
        """Return the graph as a checkpoint stores it, with the settings that decide where a key's state is.

        An operator without tasks has parallelism 1: a batch on Spark stores only tasks of sources and sinks.
        """
        width = {node.name: vertex.parallelism for vertex in self.vertices.values() for node in vertex.nodes}
        return [
            {**node, "parallelism": width.get(str(node["name"]), 1), "max_key_groups": self.max_key_groups}
            for node in self.logical.describe()
        ]


def make_plan(
    graph: Graph,
    *,
    parallelism: int = 1,
    max_key_groups: int = 128,
    combine: Callable[[Node, pa.Schema], bool] | None = None,
    apart: Callable[[Node], bool] | None = None,
    encode: bool = False,
    input_identity: InputIdentity = "mtime",
    execution: Execution = Execution.STREAMING,
) -> Plan:
    """Return the plan of ``graph``.

    Args:
        parallelism: subtasks of each operator that has no parallelism of its own.
        max_key_groups: the number of key groups, which bounds the parallelism.
        combine: ``combine(node, schema of its rows)`` chooses the aggregates whose rows are folded, batch by batch,
            before the shuffle; None: no aggregate.
        encode: whether keys of text are read as dictionaries where that is faster; it reads a sample of each source.
        apart: chooses operators that begin a vertex of their own, whatever their input; None: no operator.
        input_identity: the rule by which sources recognise their input.
        execution: whether the operators process a stream or a batch.

    Raises: ConfigurationError for a parallelism below 1 or above the number of key groups; GraphError for a forward
        edge between operators of different parallelism.
    """
    for name, value in (("parallelism", parallelism), ("max_key_groups", max_key_groups)):
        check_count(name, value)
    executed = executed_graph(graph, parallelism, input_identity, execution)
    executed = encode_columns(executed) if encode else executed
    plan = Plan(executed, graph, {}, [], max_key_groups, execution)
    return place(plan, parallelism, combine=combine, apart=apart)


def executed_graph(graph: Graph, parallelism: int, input_identity: InputIdentity, execution: Execution) -> Graph:
    """Return the graph that runs: that of a stream or a batch, without columns and rows that nothing needs."""
    executed = batch_graph(graph) if execution is Execution.BATCH else graph
    return _identify_sources(prune_rows(prune_columns(executed), parallelism), input_identity)


def place(
    plan: Plan,
    parallelism: int,
    *,
    combine: Callable[[Node, pa.Schema], bool] | None = None,
    apart: Callable[[Node], bool] | None = None,
) -> Plan:
    """Return ``plan``, which has a graph, with its vertices and links. The arguments are those of ``make_plan``."""
    physical = plan.graph if combine is None else preaggregate(plan.graph, parallelism, combine)
    plan = replace(plan, graph=physical, vertices={}, links=[])
    max_key_groups = plan.max_key_groups
    vertex_by_node: dict[int, Vertex] = {}
    for node in plan.graph:
        width = node.parallelism or parallelism
        if width > max_key_groups:
            raise ConfigurationError(
                f"operator {node.name!r}: parallelism {width} is above max_key_groups={max_key_groups}; "
                "lower the parallelism, or raise max_key_groups, which the first checkpoint fixes"
            )
        if _joins_input(node, vertex_by_node, width) and not (apart is not None and apart(node)):
            vertex = vertex_by_node[node.inputs[0].source]
        else:
            vertex = plan.vertices[node.name] = Vertex(node.name, width)
            for port, edge in enumerate(node.inputs):
                meaning = plan.graph.meaning_of(edge)
                how, keys = spread(edge, meaning, node, vertex_by_node[edge.source].parallelism, width)
                link = Link(vertex_by_node[edge.source].name, edge.source, edge.tag, node.name, port, how, keys)
                plan.links.append(link)
        vertex.nodes.append(node)
        vertex_by_node[node.id] = vertex
    return plan


def _identify_sources(graph: Graph, identity: InputIdentity) -> Graph:
    """Return the graph with ``Source.identified_by`` applied to its sources."""
    return Graph(
        [
            replace(node, spec=Read(node.spec.source.identified_by(identity))) if isinstance(node.spec, Read) else node
            for node in graph
        ]
    )


def _joins_input(node: Node, vertex_by_node: Mapping[int, Vertex], width: int) -> bool:
    """Return whether ``node`` can be fused with the vertex of its input."""
    if isinstance(node.spec, Read) or len(node.inputs) != 1:
        return False
    edge = node.inputs[0]
    forward = edge.partitioning in (None, Partitioning.FORWARD)
    return forward and vertex_by_node[edge.source].parallelism == width


def spread(
    edge: Edge, meaning: Meaning | None, node: Node, before: int, width: int
) -> tuple[Partitioning, tuple[str, ...]]:
    """Return how the rows of an edge into ``node`` are distributed, and by which keys, given the parallelism of both.

    Raises: GraphError for a forward edge between operators of different parallelism.
    """
    if edge.partitioning is None:
        if before == width:
            return Partitioning.FORWARD, ()
        if isinstance(meaning, Updates):  # by turns, an update could overtake a later one of its key in another subtask
            return Partitioning.HASH, meaning.keys
        return Partitioning.REBALANCE, ()
    if edge.partitioning is Partitioning.FORWARD and before != width:
        raise GraphError(f"operator {node.name!r}: a forward edge needs equal parallelism, found {before} and {width}")
    return edge.partitioning, edge.keys
