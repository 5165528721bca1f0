"""The logical graph: nodes and edges, which the methods of streams add and every runner reads.

A node defines its operation (a spec), its inputs (edges), and the schema of its output. It holds no state
and no code of an engine; ``operators`` implements specs, and a runner binds the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from dataflow.contracts.sink import Guarantee, Sink
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import Changes, Meaning, word_of
from dataflow.contracts.windows import EventTime
from dataflow.errors import GraphError
from dataflow.planning.specs import Read, Write

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Edge", "Graph", "NamedGraph", "Node", "Partitioning", "schema_json"]


class Partitioning(Enum):
    """How the rows of an edge are distributed over the subtasks of its target."""

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of node ``source`` (its side output ``tag``, or the main one) as one input of a node.

    ``partitioning`` None leaves the choice to the planner: forward if both ends have the same parallelism, else
    rebalance; updates are hashed on their keys instead. ``as_rows``: each row counts after this edge.
    """

    source: int
    partitioning: Partitioning | None = None
    keys: tuple[str, ...] = ()
    tag: str | None = None
    as_rows: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A logical operator. ``name`` is stable between runs: a checkpoint finds the operator's state by it.

    ``schema`` is the schema of the main output; ``sides`` has the schemas of all side outputs.
    ``time`` is the column of the main output that holds event time; None: rows have none. ``meaning`` says how rows of
    the main output count; None: each row counts. Side outputs hold rows. ``encoded`` names
    the columns of the main output that are dictionaries in this run and text for the user: see `encode_columns`.
    """

    id: int
    name: str
    spec: Spec
    inputs: tuple[Edge, ...]
    schema: pa.Schema
    parallelism: int | None = None
    named: bool = False
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)
    time: EventTime | None = None
    meaning: Meaning | None = None
    encoded: tuple[str, ...] = ()

    def output(self, tag: str | None) -> pa.Schema:
        """Return the schema of side output ``tag``, or of the main output for None."""
        return self.schema if tag is None else self.sides[tag]

    def declared(self, tag: str | None) -> pa.Schema:
        """Return the schema of an output for the user: ``encoded`` columns are text."""
        if tag is not None or not self.encoded:
            return self.output(tag)
        from dataflow.state.dictionaries import decoded_schema

        return decoded_schema(self.schema, self.encoded)

    @property
    def kind(self) -> str:
        """The name of the operator's kind, in checkpoints."""
        return self.spec.kind

    @property
    def changes(self) -> Changes:
        """The meaning of the rows of the main output; for a sink, of the rows that it takes."""
        return word_of(self.meaning)

    @property
    def stateful(self) -> bool:
        """Whether a checkpoint holds state of this node, so that its name must not change."""
        return self.spec.stateful

    @property
    def is_users(self) -> bool:
        """Whether a user wrote the operator's code: then its errors over restored state are passed on unchanged."""
        return self.spec.is_users

    @property
    def blocking(self) -> bool:
        """Whether a call may wait for something outside the engine."""
        return self.spec.blocking

    def describe(self, names: Sequence[str]) -> dict[str, Json]:
        """Return the node as JSON, as a checkpoint stores it; ``names`` has the names of the graph's nodes."""
        return {
            "name": self.name,
            "kind": self.kind,
            "stateful": self.stateful,
            "inputs": [names[edge.source] for edge in self.inputs],
            "keys": [list(edge.keys) for edge in self.inputs if edge.keys],
            "schema": schema_json(self.schema),
            "detail": self.spec.detail(),
        }


@dataclass(slots=True)
class Graph:
    """A growing directed acyclic graph; a node's inputs exist before it does, so ids are in topological order."""

    nodes: list[Node] = field(default_factory=list)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def add(
        self,
        spec: Spec,
        inputs: Sequence[Edge],
        schema: pa.Schema,
        *,
        label: str,
        name: str | None = None,
        parallelism: int | None = None,
        sides: Mapping[str, pa.Schema] | None = None,
        time: EventTime | None = None,
        method: str | None = None,
    ) -> Node:
        """Append a node.

        Args:
            label: the prefix of the automatic name: ``label``, ``label-2``, ...
            name: the name; None: an automatic one.
            method: the method of the stream, for messages; None: the label.

        Raises: GraphError for a name that is used already or cannot be used, a parallelism below 1, or an operator that
            would count updates or signed changes as rows.
        """
        for edge in inputs:
            assert 0 <= edge.source < len(self.nodes), f"edge from node {edge.source} of {len(self.nodes)}"
        taken = {node.name for node in self.nodes}
        if name is not None and not isinstance(name, str):
            raise GraphError(f"{label}(name=) must be text, the operator's name, got {name!r} ({type(name).__name__})")
        if name is not None and (not name or any(c in name for c in "/[]\\\0") or name.startswith(".")):
            raise GraphError(
                f"an operator's name becomes part of file names, so {name!r} cannot be used: it must not be empty, "
                "start with a dot, or contain / [ ] \\ or NUL"
            )
        if name in taken:
            raise GraphError(
                f"two operators are called {name!r}; checkpoints find state by name, so give each its own name"
            )
        if parallelism is not None and (not isinstance(parallelism, int) or parallelism < 1):
            raise GraphError(
                f"operator {name or label!r}: parallelism must be a whole number of at least 1, got {parallelism!r}"
            )
        unique, count = name or label, 1
        while unique in taken:
            count += 1
            unique = f"{label}-{count}"
        meanings = [self.meaning_of(edge) for edge in inputs]
        node = Node(
            len(self.nodes),
            unique,
            spec,
            tuple(inputs),
            schema,
            parallelism,
            named=name is not None,
            sides=sides or {},
            time=time,
            meaning=spec.changes(meanings, name=unique, word=method or label),
        )
        self.nodes.append(node)
        return node

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Remove the nodes that the block has added if it raises: a method that is refused leaves the graph as it was.

        A method that adds more than one node does so in such a block.

        >>> graph = Graph()
        >>> with graph.all_or_none():
        ...     graph.nodes.append("a node")
        ...     raise GraphError("refused")
        Traceback (most recent call last):
        dataflow.errors.GraphError: refused
        >>> len(graph)
        0
        """
        count = len(self.nodes)
        try:
            yield
        except BaseException:
            del self.nodes[count:]
            raise

    def schema_of(self, edge: Edge) -> pa.Schema:
        """Return the columns of the rows that ``edge`` carries."""
        return self.nodes[edge.source].output(edge.tag)

    def declared_of(self, edge: Edge) -> pa.Schema:
        """Return the columns of the rows that ``edge`` carries, as the user sees them."""
        return self.nodes[edge.source].declared(edge.tag)

    def meaning_of(self, edge: Edge) -> Meaning | None:
        """Return how the rows of ``edge`` count; None: each row counts."""
        return None if edge.as_rows or edge.tag is not None else self.nodes[edge.source].meaning

    def consumers(self, node: Node) -> list[Node]:
        """Return the nodes with an edge from ``node``."""
        return [n for n in self.nodes if any(edge.source == node.id for edge in n.inputs)]

    def batches_seen(self) -> Set[int]:
        """Return the ids of nodes whose batches reach an operator that ``sees_batches``."""
        found: set[int] = set()
        for node in reversed(self.nodes):
            if node.spec.sees_batches or (node.id in found and node.spec.keeps_batches):
                found.update(edge.source for edge in node.inputs)
        return found

    def upstream(self, node: Node) -> Graph:
        """Return the graph of ``node`` and of all nodes that it depends on, with the same names."""
        needed = {node.id}
        for candidate in reversed(self.nodes[: node.id + 1]):
            if candidate.id in needed:
                needed.update(edge.source for edge in candidate.inputs)
        renumber = {old: new for new, old in enumerate(sorted(needed))}
        part = Graph()
        for old in sorted(needed):
            n = self.nodes[old]
            edges = tuple(replace(edge, source=renumber[edge.source]) for edge in n.inputs)
            part.nodes.append(replace(n, id=renumber[old], inputs=edges))
        return part

    def with_sinks(self, sink_of: Callable[[Node], Sink]) -> Graph:
        """Return the same graph, with the sink of each writing node replaced by ``sink_of`` the node."""
        nodes = [replace(n, spec=Write(sink_of(n))) if isinstance(n.spec, Write) else n for n in self.nodes]
        return Graph(nodes)

    def validate(self) -> None:
        """Raise GraphError if the graph is empty, an output has no consumer, or two sinks share a target."""
        if not self.nodes:
            raise GraphError("the pipeline is empty; add a source with p.source(...)")
        for node in self.nodes:
            if not isinstance(node.spec, Write) and not self.consumers(node):
                raise GraphError(
                    f"{node.name!r} has no sink; end the stream with .sink(...), or get its rows with stream.collect()"
                )
        writers: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node.spec, Write) and (target := node.spec.sink.target) is not None:
                if target in writers:
                    raise GraphError(
                        f"sinks {writers[target]!r} and {node.name!r} both write to {target} and would damage each "
                        "other's output; give each its own target, or write the union() of the two streams"
                    )
                writers[target] = node.name

    @property
    def bounded(self) -> bool:
        """Whether all sources have an end."""
        return all(node.spec.source.bounded for node in self.nodes if isinstance(node.spec, Read))

    def guarantee(self, mode: Guarantee) -> Guarantee:
        """Return the end-to-end guarantee: the weakest of the sources, the checkpoint mode and the sinks."""
        guarantees = [mode]
        for node in self.nodes:
            match node.spec:
                case Read(source=source) if not source.replayable:
                    guarantees.append(Guarantee.AT_MOST_ONCE)
                case Write(sink=sink):
                    guarantees.append(sink.guarantee)
                case _:
                    pass
        return min(guarantees, key=list(Guarantee).index)

    def describe(self) -> list[dict[str, Json]]:
        """Return all nodes as JSON, as a checkpoint stores them."""
        names = [node.name for node in self.nodes]
        return [node.describe(names) for node in self.nodes]


class NamedGraph(Protocol):
    """A pipeline as runners see it: its graph, and its name in checkpoints and messages."""

    @property
    def name(self) -> str: ...

    @property
    def graph(self) -> Graph: ...


def has_dictionaries(schema: pa.Schema) -> bool:
    """Return whether a column is a dictionary, or has one inside."""
    return any("dictionary<" in str(type_) for type_ in schema.types)


def schema_json(schema: pa.Schema) -> list[Json]:
    """Return the names and types of columns as text, for descriptions."""
    return [[f.name, str(f.type)] for f in schema]
