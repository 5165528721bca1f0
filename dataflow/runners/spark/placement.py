"""Where each vertex of a plan runs on Spark, and after how many shuffles. Pure.

- A vertex with a source has a **source task** for each subtask: a partition of the streaming source, which reads batch
  by batch and runs the chain after the source. If Spark reads in place of a source, each of Spark's partitions runs
  the chain.
- A vertex that has keyed state, or takes rows from more than one subtask, has a **keyed task** for each subtask: a key
  of Spark's grouping, with state of its own. Keyed vertices have one for each key group.
- A two-phase sink after keyed tasks writes one file in each **partition** of Spark's, because a key group has too few
  rows for a file.
- Sinks without two-phase commit get their rows in the **driver**.

Keyed tasks are in levels: each level is one shuffle, which runs all vertices of the level. A union costs none in a
stream, because it runs in the tasks of its inputs: see `inline_unions`.

In a **batch** keyed tasks keep no state between calls, so there is one for each partition of Spark's shuffle instead of
one for each key group. They have enough rows for a file, so two-phase sinks are chained to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from dataflow.contracts.checkpointing import Checkpointing
from dataflow.contracts.execution import Execution
from dataflow.contracts.operator import Operator
from dataflow.contracts.sink import FrameSink, Guarantee, TwoPhaseSink
from dataflow.contracts.source import InputIdentity, Source
from dataflow.contracts.spec import Spec
from dataflow.errors import BarrierflowWarning, UnsupportedOnRunner, check_count
from dataflow.planning.graph import Graph, Node, Partitioning
from dataflow.planning.inline_unions import inline_unions
from dataflow.planning.operator_table import operator_class
from dataflow.planning.physical_plan import Link, Plan, Vertex, executed_graph, place
from dataflow.planning.specs import Read, Write
from dataflow.runners.binding import LIBRARY
from dataflow.runners.spark.batch.cut import Cut, ReasonAgainst, cut_graph
from dataflow.runners.spark.envelopes import CLOSING, Envelope
from dataflow.runners.spark.even_slots import closing_numbers, partition_of
from dataflow.runners.spark.expressions.spark_types import spark_schema
from dataflow.runners.spark.placeholders import PlaceholderSink, PlaceholderSource
from dataflow.runners.spark.split_times import SplitRule
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.outputs import ForwardOutput, Output, output_for

__all__ = ["Placement", "SparkPlan", "plan_for_spark"]


class Placement(Enum):
    """Where a vertex runs."""

    SOURCE_TASK = "a partition of the source"
    NATIVE_READER = "mapInArrow after a reader of Spark's"
    KEYED_TASK = "transformWithState, with state for each keyed task"
    PARTITION = "a file for each partition, committed by the driver"
    DRIVER = "the driver"


@dataclass(frozen=True)
class SparkPlan:
    """A plan with the placement of each vertex.

    Attributes:
        plan: the plan of the tasks.
        placements: where each vertex runs.
        regions: the region of each vertex, where it is not 0; see `cut`.
        cut: what Spark computes itself; None: nothing, or this is a copy for workers.
        given: the names of the sources that are DataFrames of the user.
        slots: the number under which Spark knows each of `keyed_tasks`, in a stream.
        closing: the closing number of each partition of a shuffle: see `routing`.
        awaited: by the name of a source, the splits of its DataFrame that hold time back until their first row.
    """

    plan: Plan
    placements: Mapping[str, Placement]
    regions: Mapping[str, int] = field(default_factory=dict)
    cut: Cut | None = None
    given: Sequence[str] = ()
    awaited: Mapping[str, Sequence[str]] = field(default_factory=dict)
    slots: Sequence[int] = ()
    closing: Sequence[int] = ()

    @property
    def graph(self) -> Graph:
        """The graph that runs, including what Spark computes."""
        return self.plan.graph if self.cut is None else self.cut.whole

    def guarantee(self, checkpoint: Checkpointing | None) -> Guarantee:
        """Return the guarantee from end to end of a job with these checkpoints; None: it has none."""
        return self.graph.guarantee(Guarantee.AT_MOST_ONCE if checkpoint is None else Guarantee.EXACTLY_ONCE)

    @property
    def native(self) -> Container[str]:
        """The names of the operators of a batch that Spark computes itself."""
        return () if self.cut is None else self.cut.native

    @property
    def native_sources(self) -> Mapping[str, Source]:
        """The sources whose files Spark reads in a batch, by name."""
        if self.cut is None:
            return {}
        reads = [node for node in self.cut.whole if node.name in self.cut.native and node.name not in self.given]
        return {node.name: node.spec.source for node in reads if isinstance(node.spec, Read)}

    @cached_property
    def source_tasks(self) -> list[tuple[Vertex, int]]:
        """The source tasks of all sources, as vertex and subtask; their place in this list is their number."""
        return self._subtasks(Placement.SOURCE_TASK)

    @cached_property
    def keyed_tasks(self) -> list[tuple[Vertex, int]]:
        """The keyed tasks of all levels, as vertex and subtask."""
        return self._subtasks(Placement.KEYED_TASK)

    def _subtasks(self, placement: Placement) -> list[tuple[Vertex, int]]:
        return [
            (vertex, subtask)
            for vertex in self.plan.vertices.values()
            if self.placements[vertex.name] is placement
            for subtask in range(vertex.parallelism)
        ]

    def keyed_task_number(self, vertex: str, subtask: int) -> int:
        """Return the number under which Spark knows a keyed task.

        In a batch it is that of its partition, which runs one subtask of each vertex.
        """
        if self.in_batch:
            return subtask
        return self.slots[self._first_numbers[vertex] + subtask]

    def keyed_task(self, number: int) -> tuple[Vertex, int]:
        """Return the keyed task of a stream that Spark knows under a number."""
        return self.keyed_tasks[self._places[number]]

    def numbered(self, slots: Sequence[int], partitions: int) -> SparkPlan:
        """Return the plan of a stream with the numbers of its keyed tasks, for shuffles of ``partitions``."""
        return replace(self, slots=slots, closing=closing_numbers(max(slots, default=0), partitions))

    def partition_of(self, number: int) -> int:
        """Return the partition of a shuffle to which Spark sends a number."""
        if number not in self._partitions:
            self._partitions[number] = partition_of(number, len(self.closing))
        return self._partitions[number]

    @cached_property
    def _partitions(self) -> dict[int, int]:
        return {}

    def closing_envelope(self, partition: int, round_: int) -> Envelope:
        """Return the envelope that a partition of keyed tasks gets last."""
        return Envelope(self.closing[partition], CLOSING, partition, round_, b"")

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {slot: place for place, slot in enumerate(self.slots)}

    @property
    def driver_sinks(self) -> list[str]:
        """The sinks to which the driver writes the rows that tasks send it."""
        others = {*self.frame_sinks, *(() if self.cut is None else self.cut.handed.values())}
        return [name for name, place in self.placements.items() if place is Placement.DRIVER and name not in others]

    @property
    def frame_sinks(self) -> Mapping[str, FrameSink]:
        """The sinks that get their rows as DataFrames, by name."""
        return {
            node.name: node.spec.sink
            for node in self.graph
            if isinstance(node.spec, Write) and isinstance(node.spec.sink, FrameSink)
        }

    @property
    def partitions(self) -> int:
        """The number of partitions of each shuffle of a batch."""
        return max((vertex.parallelism for vertex, _ in self.keyed_tasks), default=1)

    @property
    def in_batch(self) -> bool:
        """Whether the pipeline runs as a batch."""
        return self.plan.execution is Execution.BATCH

    @cached_property
    def _first_numbers(self) -> Mapping[str, int]:
        first: dict[str, int] = {}
        for number, (vertex, _) in enumerate(self.keyed_tasks):
            first.setdefault(vertex.name, number)
        return first

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """The number of shuffles before the rows of each vertex, in its region."""
        levels: dict[str, int] = {}
        for name in self.plan.vertices:
            own = [link.source for link in self.plan.inputs(name) if self.region(link.source) == self.region(name)]
            before = max((levels[source] for source in own), default=0)
            levels[name] = before + (self.placements[name] is Placement.KEYED_TASK)
        return levels

    def region(self, vertex: str) -> int:
        """Return the region of a vertex."""
        return self.regions.get(vertex, 0)

    def for_workers(self, *, with_sources: bool) -> SparkPlan:
        """Return a copy to pickle: without sinks of the driver, and without sources that workers do not read."""
        plan = self.plan.with_specs({node.name: self._spec_for_workers(node, with_sources) for node in self.plan.graph})
        return replace(self, plan=replace(plan, logical=plan.graph), cut=None)

    def loaded(self, notify: Callable[[type[BarrierflowWarning], str], None]) -> SparkPlan:
        """Return the same plan with what its operators read at each start of a job."""
        return replace(self, plan=self.plan.loaded(notify))

    def _spec_for_workers(self, node: Node, with_sources: bool) -> Spec:  # noqa: FBT001
        if isinstance(node.spec, Read) and not with_sources:
            return Read(PlaceholderSource(node.schema, node.spec.source.sides))
        if isinstance(node.spec, Write) and not isinstance(node.spec.sink, TwoPhaseSink):
            return Write(PlaceholderSink())
        return node.spec

    @property
    def depth(self) -> int:
        """The number of shuffles."""
        return max(self.levels.values(), default=0)

    def depth_of(self, region: int) -> int:
        """Return the number of shuffles of a region."""
        return max([level for name, level in self.levels.items() if self.region(name) == region], default=0)

    def at(self, level: int, placement: Placement, region: int = 0) -> list[Vertex]:
        """Return the vertices with this placement after ``level`` shuffles of a region."""
        vertices = [v for v in self.plan.vertices.values() if self.region(v.name) == region]
        return [v for v in vertices if self.levels[v.name] == level and self.placements[v.name] is placement]

    def watermark_sources(self, link: Link) -> int:
        """Return how many subtasks send watermarks over a link: one if all subtasks of the vertex have the same.

        The partitions of a reader of Spark's are one, too: there may be any number of them in each micro-batch.
        """
        one = self.placements[link.source] is Placement.NATIVE_READER
        return 1 if one or self._same_watermarks(link.source) else self.plan.vertices[link.source].parallelism

    def _same_watermarks(self, vertex: str) -> bool:
        """Return whether all subtasks pass on the same watermark.

        Source tasks do not, nor those with one input subtask, nor those in which an operator makes or holds watermarks
        by its rows.
        """
        forward = any(link.partitioning is Partitioning.FORWARD for link in self.plan.inputs(vertex))
        own = any(_decides_time(node) for node in self.plan.vertices[vertex].nodes)
        return self.placements[vertex] is Placement.KEYED_TASK and not forward and not own

    def maker_of_time(self, link: Link) -> Node | None:
        """Return the operator that makes the watermarks of rows that Spark has read, before a link; None: none does."""
        node = self.plan.graph.nodes[link.node]
        while node.inputs and node.spec.split_silence is None:
            node = self.plan.graph.nodes[node.inputs[0].source]
        return None if node.spec.split_silence is None else node

    def rules_of(self, vertex: str) -> Mapping[int, SplitRule]:
        """Return how the splits of streaming DataFrames count, by the number of a link into a vertex."""
        rules: dict[int, SplitRule] = {}
        for number, link in enumerate(self.plan.links):
            native = self.placements[link.source] is Placement.NATIVE_READER and not self.in_batch
            if link.target == vertex and native and (maker := self.maker_of_time(link)) is not None:
                silence = maker.spec.split_silence
                assert silence is not None, f"{maker.name} makes time"
                rules[number] = SplitRule(self.awaited.get(link.source, ()), silence.idle_after, silence.close_after)
        return rules

    def channels(self, vertex: str, subtask: int) -> list[tuple[int, int]]:
        """Return the (link, source) pairs that a keyed task receives from, in the order of its watermarks.

        In a batch, time moves only at the end. So there is one channel for each link.
        """
        if self.in_batch:
            return [(number, 0) for number, link in enumerate(self.plan.links) if link.target == vertex]
        channels: list[tuple[int, int]] = []
        for number, link in enumerate(self.plan.links):
            forward = link.partitioning is Partitioning.FORWARD
            if link.target == vertex and forward and self.placements[link.source] is not Placement.NATIVE_READER:
                channels.append((number, subtask))
            elif link.target == vertex:
                channels += [(number, source) for source in range(self.watermark_sources(link))]
        return channels

    def output(self, link: Link, channels: list[Channel]) -> Output:
        """Return the output that distributes rows to the keyed tasks of a link's target."""
        if link.partitioning is Partitioning.FORWARD and len(channels) > 1:  # after a reader of Spark's
            return output_for(Partitioning.REBALANCE, channels, (), self.plan.max_key_groups)
        if link.partitioning is Partitioning.FORWARD:
            return ForwardOutput(channels)
        return output_for(link.partitioning, channels, link.keys, self.plan.max_key_groups)


_GROUPS_OF_A_TASK = 64
"""Key groups of each subtask of a batch: several, so that subtasks have nearly the same number of keys."""


def plan_for_spark(
    graph: Graph,
    *,
    parallelism: int,
    key_groups: int,
    readers: Sequence[str] = (),
    input_identity: InputIdentity = "mtime",
    execution: Execution = Execution.STREAMING,
    reason_against: ReasonAgainst | None = None,
) -> SparkPlan:
    """Plan ``graph`` for Spark, with ``parallelism`` source tasks for each source that does not set its own number.

    Spark reads in place of the sources named in ``readers``. The others recognise their input by ``input_identity``.
    ``key_groups`` is the number of keyed tasks of a keyed operator; in a batch, of the partitions of each shuffle.
    ``reason_against`` decides which operators of a batch Spark computes itself; None: no operator.

    Raises: UnsupportedOnRunner for a source that cannot be read again, a sink that would write rows more than once, and
        time from the clock after a shuffle; errors of planning itself.
    """
    _refuse_unrepeatable(graph, readers)
    widened = _widened(graph, parallelism, key_groups)
    in_batch = execution is Execution.BATCH
    chosen = frozenset([node.name for node in graph if node.parallelism is not None])
    widest = max([node.parallelism or 1 for node in widened], default=1)
    apart = {node.name for node in widened if _runs_apart(widened, node, in_batch=in_batch)}
    groups = _GROUPS_OF_A_TASK * widest if in_batch else key_groups
    check_count("parallelism", parallelism)
    check_count("max_key_groups", key_groups)
    graph = executed_graph(widened, parallelism, input_identity, execution)
    graph = graph if in_batch or not readers else _without_splits(graph)
    cut = None if reason_against is None else cut_graph(graph, reason_against, readers)
    plan = place(
        Plan(graph if cut is None else cut.tasks, widened, {}, [], groups, execution),
        parallelism,
        combine=LIBRARY.mergeable,
        apart=lambda node: node.name in apart or (cut is not None and node.name in cut.handed.values()),
    )
    plan = plan if in_batch else inline_unions(plan, _decides_time, chosen)
    read_by_spark = readers if cut is None else cut.native
    placements = {v.name: _placement_of(v, read_by_spark, in_batch=in_batch) for v in plan.vertices.values()}
    for vertex in plan.vertices.values():
        if placements[vertex.name] is Placement.KEYED_TASK:
            _refuse_processing_time(vertex)
    regions = {} if cut is None else {name: _region(cut, vertex) for name, vertex in plan.vertices.items()}
    return SparkPlan(plan, placements, regions, cut, readers)


def _without_splits(graph: Graph) -> Graph:
    """Return the graph with watermarks of rows that Spark has read."""
    return Graph([replace(node, spec=node.spec.without_splits()) for node in graph])


def _region(cut: Cut, vertex: Vertex) -> int:
    return max([cut.regions.get(node.name, 0) for node in vertex.nodes])  # helpers of the planner have none


def _refuse_unrepeatable(graph: Graph, readers: Container[str]) -> None:
    """Raise UnsupportedOnRunner for a source that cannot be read again."""
    for node in graph:
        if isinstance(node.spec, Read) and node.name not in readers and not node.spec.source.replayable:
            raise UnsupportedOnRunner(
                f"source {node.name!r}",
                "spark",
                "its rows cannot be read again, and Spark repeats tasks",
                "use the local runner, or write the rows to files first",
            )


def _refuse_processing_time(vertex: Vertex) -> None:
    """Raise UnsupportedOnRunner for an operator that takes time from the clock: idle keyed tasks are not called."""
    for node in vertex.nodes:
        if node.spec.times_by_clock:
            raise UnsupportedOnRunner(
                f"operator {node.name!r}",
                "spark",
                "after a shuffle it would hold back time, because Spark calls only tasks that have rows",
                "call with_processing_time before key_by, rebalance, broadcast and union",
            )


def _widened(graph: Graph, parallelism: int, key_groups: int) -> Graph:
    """Return the graph with the parallelism of every operator: one keyed task for each key group after a key_by.

    Aggregates over all rows have no keys, and one keyed task.
    """
    widened = Graph()
    for node in graph:
        above = [widened.nodes[edge.source].parallelism or parallelism for edge in node.inputs]
        if any(edge.partitioning is Partitioning.HASH for edge in node.inputs):
            width = key_groups if any(edge.keys for edge in node.inputs) else 1
        elif isinstance(node.spec, Read):
            width = node.parallelism or parallelism
        elif isinstance(node.spec, Write):
            width = above[0]
        else:
            width = max(above) if node.parallelism is None else node.parallelism
        widened.nodes.append(replace(node, parallelism=width))
    return widened


def _runs_apart(graph: Graph, node: Node, *, in_batch: bool) -> bool:
    """Return whether a sink is a vertex of its own: all but two-phase sinks directly after a source, or in a batch."""
    if not isinstance(node.spec, Write):
        return False
    if any(edge.partitioning is Partitioning.BROADCAST for edge in node.inputs):
        raise UnsupportedOnRunner(
            f"sink {node.name!r}",
            "spark",
            "after broadcast() it would write each row once for each subtask",
            "remove broadcast() before the sink",
        )
    sink = node.spec.sink
    if isinstance(sink, FrameSink):
        spark_schema(node.schema, f"sink {node.name!r}")
    if not in_batch and sink.guarantee is not Guarantee.EXACTLY_ONCE and not sink.idempotent:
        raise UnsupportedOnRunner(
            f"sink {node.name!r}, {sink!r}",
            "spark",
            "micro-batches are repeated after a failure, and this sink cannot take back what it wrote",
            "write files; if writing a row again changes nothing, use op.upsert_batches(function), or set "
            "idempotent = True in your sink's class",
        )
    return not isinstance(sink, TwoPhaseSink) or not (in_batch or _is_in_source_task(graph, node))


def _is_in_source_task(graph: Graph, node: Node) -> bool:
    while len(node.inputs) == 1:
        (edge,) = node.inputs
        before = graph.nodes[edge.source]
        if edge.partitioning not in (None, Partitioning.FORWARD) or before.parallelism != node.parallelism:
            return False
        node = before
    return isinstance(node.spec, Read)


def _decides_time(node: Node) -> bool:
    """Return whether subtasks may pass on different watermarks for the same one: of a user's, as its class tells."""
    if isinstance(node.spec, Read | Write) or not node.is_users:
        return node.spec.assigns_time or node.spec.holds_by_rows
    made = operator_class(node.spec) if node.spec.made_by is None else node.spec.made_by
    made = inspect.unwrap(getattr(made, "func", made))
    known = isinstance(made, type) and issubclass(made, Operator)
    return not known or made.makes_time or made.held is not Operator.held


def _placement_of(vertex: Vertex, readers: Container[str], *, in_batch: bool) -> Placement:
    head = vertex.head
    if isinstance(head.spec, Read):
        return Placement.NATIVE_READER if head.name in readers else Placement.SOURCE_TASK
    if isinstance(head.spec, Write):
        if isinstance(head.spec.sink, TwoPhaseSink):
            return Placement.KEYED_TASK if in_batch else Placement.PARTITION
        return Placement.DRIVER
    return Placement.KEYED_TASK
