"""Cut the graph of a batch into the operators that Spark computes itself, and those that run in Python workers.

Spark's operators are a plan of DataFrames, the others are tasks. The two take turns: **region** 0 of DataFrames feeds
region 0 of tasks, whose rows feed region 1 of DataFrames, and so on. A pipeline without user functions has one of each.

In the graph of the tasks, an operator of Spark's whose rows tasks need is a source: a `PlaceholderSource` of the same
name. An operator in a task whose rows Spark needs has a sink after it, ``NAME/handed``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dataflow.contracts.sink import FrameSink
from dataflow.planning.graph import Edge, Graph, Node
from dataflow.planning.specs import Read, Write
from dataflow.runners.spark.placeholders import PlaceholderSink, PlaceholderSource

__all__ = ["SAME_PROCESS", "Cut", "ReasonAgainst", "cut_graph"]

ReasonAgainst = Callable[[Node, Graph], str | None]
"""Returns why Spark cannot compute an operator of a graph; None: it can."""

_FOLLOWS: Final = "its input is in a Python worker"
_SINK: Final = "it is a sink"
SAME_PROCESS: Final = (_FOLLOWS, _SINK)
"""Reasons that need not be told: the operator is where its rows are."""


@dataclass(frozen=True)
class Cut:
    """A graph that was cut.

    Attributes:
        whole: the graph as it was.
        tasks: the graph of the tasks. It has placeholders, and sinks for rows that Spark needs.
        native: the region of each operator that Spark computes, by name.
        regions: the region of each operator of ``tasks``, by name.
        handed: the name of the sink in ``tasks`` for each output of an operator that Spark needs, by name and tag.
        reasons: why an operator is not computed by Spark, by name.
    """

    whole: Graph
    tasks: Graph
    native: Mapping[str, int]
    regions: Mapping[str, int]
    handed: Mapping[tuple[str, str | None], str]
    reasons: Mapping[str, str]


def cut_graph(graph: Graph, reason_against: ReasonAgainst, given: Container[str] = ()) -> Cut:
    """Return the cut of ``graph`` into what Spark computes and what runs in tasks.

    Args:
        graph: the graph of a batch.
        reason_against: decides which operators Spark can compute.
        given: the names of the sources for which there is a DataFrame, which Spark always reads.
    """
    native: dict[str, int] = {}
    regions: dict[str, int] = {}
    reasons: dict[str, str] = {}
    consumers = _consumers(graph)
    for node in graph:
        before = [graph.nodes[edge.source].name for edge in node.inputs]
        if node.name in given and isinstance(node.spec, Read):
            native[node.name] = 0
            continue
        frames = isinstance(node.spec, Write) and isinstance(node.spec.sink, FrameSink)
        reason = None if frames else _reason(node, graph, consumers[node.id], native, reason_against)
        if reason is None:
            native[node.name] = max([native[n] if n in native else regions[n] + 1 for n in before], default=0)
        else:
            reasons[node.name] = reason
            regions[node.name] = max([native.get(n, regions.get(n, 0)) for n in before], default=0)
    return _cut(graph, native, regions, reasons)


def _reason(
    node: Node,
    graph: Graph,
    consumers: list[tuple[Node, Edge]],
    native: Mapping[str, int],
    reason_against: ReasonAgainst,
) -> str | None:
    if isinstance(node.spec, Write):
        return _SINK
    if isinstance(node.spec, Read) and any(consumer.spec.numbers_rows for consumer, _ in consumers):
        return "the order of its rows is needed"
    if tags := sorted({edge.tag for _, edge in consumers if edge.tag is not None}):
        return f"its side output {tags[0]!r} is read"
    if (reason := reason_against(node, graph)) is not None:
        return reason
    follows = node.spec.row_wise and not all(graph.nodes[edge.source].name in native for edge in node.inputs)
    return _FOLLOWS if follows else None


def _consumers(graph: Graph) -> list[list[tuple[Node, Edge]]]:
    """Return for each node the nodes that take rows from it, with the edge."""
    consumers: list[list[tuple[Node, Edge]]] = [[] for _ in graph.nodes]
    for node in graph:
        for edge in node.inputs:
            consumers[edge.source].append((node, edge))
    return consumers


def _cut(graph: Graph, native: Mapping[str, int], regions: dict[str, int], reasons: Mapping[str, str]) -> Cut:
    """Make the graph of the tasks."""
    consumers = _consumers(graph)
    tasks, numbers = Graph(), dict[int, int]()
    handed: dict[tuple[str, str | None], str] = {}
    for node in graph:
        if node.name not in native:
            edges = tuple(replace(edge, source=numbers[edge.source]) for edge in node.inputs)
            numbers[node.id] = _append(tasks, replace(node, inputs=edges))
        elif any(consumer.name not in native for consumer, _ in consumers[node.id]):  # never for a sink
            placeholder = Read(PlaceholderSource(node.schema, {}))
            numbers[node.id] = _append(tasks, replace(node, spec=placeholder, inputs=()))
            regions[node.name] = native[node.name]
    for node, edge in _handed(graph, native):
        name = f"{node.name}/handed" if edge.tag is None else f"{node.name}/handed side {edge.tag}"
        own = Edge(numbers[edge.source], tag=edge.tag)
        _append(tasks, Node(0, name, Write(PlaceholderSink()), (own,), tasks.schema_of(own), node.parallelism))
        handed[node.name, edge.tag] = name
        regions[name] = regions[node.name]
    assert len({node.name for node in tasks}) == len(tasks), "helpers have names of their own"
    return Cut(graph, tasks, native, regions, handed, reasons)


def _handed(graph: Graph, native: Mapping[str, int]) -> Iterator[tuple[Node, Edge]]:
    """Yield the outputs of operators in tasks that Spark needs, each once."""
    seen: set[tuple[int, str | None]] = set()
    for node in graph:
        for edge in node.inputs if node.name in native else ():
            source = graph.nodes[edge.source]
            if source.name not in native and (edge.source, edge.tag) not in seen:
                seen.add((edge.source, edge.tag))
                yield source, edge


def _append(graph: Graph, node: Node) -> int:
    number = len(graph.nodes)
    graph.nodes.append(replace(node, id=number))
    return number
