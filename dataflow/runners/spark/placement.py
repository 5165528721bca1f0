"""What becomes of each vertex of a plan on Spark, and in which order. Pure.

A vertex with a source is a **lane** a subtask: a partition of the stream's source, read batch by batch, with the chain
behind it. Where Spark reads in the place of a source, each of Spark's partitions has the chain. One whose state is
found by key, or that takes rows from more than one subtask, has a **slot** a subtask: a key of Spark's, its state one
value; keyed vertices have one for each key group. A sink behind slots writes in every **partition** what its rows are
there, for a key group is too little for a file. Sinks that cannot be committed in two phases get their rows in the
**driver**.

Slots are in levels: one shuffle each, in which all vertices of the level are hosted.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from dataflow.contracts.sink import Guarantee, TwoPhaseSink
from dataflow.contracts.source import InputIdentity
from dataflow.contracts.spec import Spec
from dataflow.errors import UnsupportedOnRunner
from dataflow.planning.graph import Graph, Node, Partitioning
from dataflow.planning.physical_plan import Link, Plan, Vertex, make_plan
from dataflow.planning.specs import Read, Write
from dataflow.runners.binding import can_preaggregate
from dataflow.runners.spark.absent import NoSink, NoSource
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.outputs import ForwardOutput, Output, output_for

__all__ = ["Hosting", "Stages", "staged"]


class Hosting(Enum):
    """Where a vertex runs."""

    LANE = "a partition of the source"
    READER = "mapInArrow behind a reader of Spark's"
    SLOT = "transformWithState, state as one value per slot"
    PARTITION = "mapInArrow, committed by the driver"
    DRIVER = "the driver"


@dataclass(frozen=True)
class Stages:
    """A plan with a place for each vertex. ``lanes`` are the subtasks of all sources, ``slots`` those with slots."""

    plan: Plan
    hosting: Mapping[str, Hosting]

    @cached_property
    def lanes(self) -> list[tuple[Vertex, int]]:
        return self._subtasks(Hosting.LANE)

    @cached_property
    def slots(self) -> list[tuple[Vertex, int]]:
        return self._subtasks(Hosting.SLOT)

    def _subtasks(self, hosting: Hosting) -> list[tuple[Vertex, int]]:
        return [
            (vertex, subtask)
            for vertex in self.plan.vertices.values()
            if self.hosting[vertex.name] is hosting
            for subtask in range(vertex.parallelism)
        ]

    def slot(self, vertex: str, subtask: int) -> int:
        """The number of a slot."""
        return self._first_slots[vertex] + subtask

    @cached_property
    def _first_slots(self) -> Mapping[str, int]:
        first: dict[str, int] = {}
        for number, (vertex, _) in enumerate(self.slots):
            first.setdefault(vertex.name, number)
        return first

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """How many shuffles the rows of each vertex have behind them."""
        found: dict[str, int] = {}
        for name in self.plan.vertices:
            before = max((found[link.source] for link in self.plan.inputs(name)), default=0)
            found[name] = before + (self.hosting[name] is Hosting.SLOT)
        return found

    def for_workers(self, *, with_sources: bool) -> Stages:
        """The same stages without what stays in the driver, and without sources where nobody reads: to be pickled."""
        nodes = {node.id: replace(node, spec=self._carried(node, with_sources)) for node in self.plan.graph}
        vertices = {
            vertex.name: Vertex(vertex.name, vertex.parallelism, [nodes[node.id] for node in vertex.nodes])
            for vertex in self.plan.vertices.values()
        }
        graph = Graph(list(nodes.values()))
        return Stages(replace(self.plan, graph=graph, logical=graph, vertices=vertices), self.hosting)

    def _carried(self, node: Node, with_sources: bool) -> Spec:  # noqa: FBT001
        if isinstance(node.spec, Read) and not with_sources:
            return Read(NoSource(node.schema, node.spec.source.sides))
        if isinstance(node.spec, Write) and not isinstance(node.spec.sink, TwoPhaseSink):
            return Write(NoSink())
        return node.spec

    def for_partition(self, vertex: Vertex, partition: int) -> tuple[Stages, Vertex]:
        """The same with room for ``partition`` among the subtasks of a vertex: Spark has as many as it likes."""
        wide = Vertex(vertex.name, max(vertex.parallelism, partition + 1), vertex.nodes)
        vertices = {**self.plan.vertices, vertex.name: wide}
        groups = max(self.plan.max_key_groups, wide.parallelism)
        return Stages(replace(self.plan, vertices=vertices, max_key_groups=groups), self.hosting), wide

    @property
    def depth(self) -> int:
        """How many shuffles there are."""
        return max(self.levels.values())

    def at(self, level: int, hosting: Hosting) -> list[Vertex]:
        """The vertices of a kind behind so many shuffles."""
        vertices = self.plan.vertices.values()
        return [v for v in vertices if self.levels[v.name] == level and self.hosting[v.name] is hosting]

    def speakers(self, link: Link) -> int:
        """How many subtasks must be heard about time over a link: one, where all of the vertex hear the same."""
        return 1 if self._in_unison(link.source) else self.plan.vertices[link.source].parallelism

    def _in_unison(self, vertex: str) -> bool:
        """Whether all subtasks hear the same: lanes do not, and nobody does who hears a single subtask."""
        forward = any(link.partitioning is Partitioning.FORWARD for link in self.plan.inputs(vertex))
        return self.hosting[vertex] is Hosting.SLOT and not forward

    def channels(self, vertex: str, subtask: int) -> list[tuple[int, int]]:
        """The (link, source) pairs from which a slot hears, in the order of its watermarks."""
        found = []
        for number, link in enumerate(self.plan.links):
            if link.target == vertex and link.partitioning is Partitioning.FORWARD:
                found.append((number, subtask))
            elif link.target == vertex:
                found += [(number, source) for source in range(self.speakers(link))]
        return found

    def output(self, link: Link, channels: list[Channel]) -> Output:
        """The output that deals rows out to the slots of a link's target."""
        if link.partitioning is Partitioning.FORWARD:
            return ForwardOutput(channels)
        return output_for(link.partitioning, channels, link.keys, self.plan.max_key_groups)


def staged(
    graph: Graph,
    *,
    parallelism: int,
    key_groups: int,
    readers: Container[str] = (),
    input_identity: InputIdentity = "mtime",
) -> Stages:
    """Plan ``graph`` for Spark, with ``parallelism`` lanes a source that does not say otherwise.

    Spark reads in place of the sources named in ``readers``. The others recognise their input by ``input_identity``.

    Raises: UnsupportedOnRunner for a sink that would get every row several times over; what ``plan.of`` raises.
    """
    widened = _widened(graph, parallelism, key_groups)
    broken = {node.id for node in widened if _stands_apart(widened, node, parallelism)}
    names = {widened.nodes[id].name for id in broken}
    plan = make_plan(
        widened,
        parallelism=parallelism,
        max_key_groups=key_groups,
        combine=can_preaggregate,
        apart=lambda node: node.name in names,
        input_identity=input_identity,
    )
    return Stages(plan, {vertex.name: _hosting(vertex, readers) for vertex in plan.vertices.values()})


def _widened(graph: Graph, parallelism: int, key_groups: int) -> Graph:
    """The graph with the parallelism of every operator: a slot for each key group behind a key_by."""
    made = Graph()
    for node in graph:
        above = [made.nodes[edge.source].parallelism or parallelism for edge in node.inputs]
        if any(edge.partitioning is Partitioning.HASH for edge in node.inputs):
            width = key_groups
        elif isinstance(node.spec, Read):
            width = node.parallelism or parallelism
        elif isinstance(node.spec, Write):
            width = above[0]
        else:
            width = max(above) if node.parallelism is None else node.parallelism
        made.nodes.append(replace(node, parallelism=width))
    return made


def _stands_apart(graph: Graph, node: Node, parallelism: int) -> bool:
    """Sinks stay with the source they follow, if they can be committed in two phases; else they are on their own."""
    if not isinstance(node.spec, Write):
        return False
    if any(edge.partitioning is Partitioning.BROADCAST for edge in node.inputs):
        raise UnsupportedOnRunner(
            f"sink {node.name!r}",
            "spark",
            "behind broadcast() it gets each row once a subtask",
            "leave broadcast() out",
        )
    sink = node.spec.sink
    if sink.guarantee is not Guarantee.EXACTLY_ONCE and not sink.idempotent:
        raise UnsupportedOnRunner(
            f"sink {node.name!r}, {sink!r},",
            "spark",
            "micro-batches are repeated after a failure, and nobody takes back what it wrote",
            "write files, or, where writing a row again changes nothing, say so: op.upsert_batches(function), or "
            "idempotent = True in a sink of your own",
        )
    return not isinstance(sink, TwoPhaseSink) or not _is_in_lane(graph, node)


def _is_in_lane(graph: Graph, node: Node) -> bool:
    while len(node.inputs) == 1:
        (edge,) = node.inputs
        before = graph.nodes[edge.source]
        if edge.partitioning not in (None, Partitioning.FORWARD) or before.parallelism != node.parallelism:
            return False
        node = before
    return isinstance(node.spec, Read)


def _hosting(vertex: Vertex, readers: Container[str]) -> Hosting:
    head = vertex.head
    if isinstance(head.spec, Read):
        return Hosting.READER if head.name in readers else Hosting.LANE
    if isinstance(head.spec, Write):
        return Hosting.PARTITION if isinstance(head.spec.sink, TwoPhaseSink) else Hosting.DRIVER
    return Hosting.SLOT
