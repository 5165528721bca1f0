"""Derive from the graph how the rows of a sink can be compared, and how repeated deliveries change them.

A row-wise path (no state between source and sink) keeps every row, so outputs are compared as multisets. After a keyed
aggregate there is one last row per key. The number of updates in a changelog depends on how rows were cut into batches.
So if its updates count as rows (``Stream.as_rows``), the output cannot be compared, and the report says so. Of signed
changes the net is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataflow.contracts.updates import Updates
from dataflow.planning.graph import Edge, Graph, Node
from dataflow.planning.specs import Write

__all__ = ["AnyRows", "Claim", "LastRowsOfKeys", "Rows", "Unsettled", "claims"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a path without state: a repeated delivery to the sink adds one row."""


@dataclass(frozen=True, slots=True)
class AnyRows:
    """Rows of an operator with state: the same in each run, but the effect of a repeated delivery is not known."""


@dataclass(frozen=True, slots=True)
class LastRowsOfKeys:
    """One last row per key, downstream of an aggregate.

    Attributes:
        keys: the names of the key columns at the sink.
        origin: the names of the key columns at the aggregate.
        aggregate: the name of the aggregate.
        updates: keys have earlier rows, too.
        first: no other state is upstream of the aggregate, so exactly the reported rows are delivered to it twice.
        windowed: the claim holds only if no row was late.
    """

    keys: tuple[str, ...]
    origin: tuple[str, ...]
    aggregate: str
    updates: bool
    first: bool
    windowed: bool = False


@dataclass(frozen=True, slots=True)
class Unsettled:
    """No claim, because two runs without a kill may differ."""

    reason: str


Claim = Rows | AnyRows | LastRowsOfKeys | Unsettled


def claims(graph: Graph) -> dict[str, Claim]:
    """Return the claim for each sink, by name."""
    by_node: list[Claim] = []
    for node in graph:
        by_node.append(_after_node(node, [_after_edge(graph, edge, by_node[edge.source]) for edge in node.inputs]))
    return {node.name: claim for node, claim in zip(graph, by_node, strict=True) if isinstance(node.spec, Write)}


def _after_edge(graph: Graph, edge: Edge, claim: Claim) -> Claim:
    """Return the claim at the other end of an edge: the number of updates that count as rows depends on batches."""
    if edge.as_rows and (meaning := graph.nodes[edge.source].meaning) is not None:
        return Unsettled(
            f"the {'updates' if isinstance(meaning, Updates) else 'signed changes'} of {meaning.aggregate!r} count as "
            "rows, and their number depends on how rows were cut into batches; remove .as_rows() to compare them"
        )
    return claim


def _after_node(node: Node, inputs: Sequence[Claim]) -> Claim:
    """Return the claim for the output of ``node``, given the claims for its inputs."""
    unsettled = [claim for claim in inputs if isinstance(claim, Unsettled)]
    if unsettled:
        return unsettled[0]
    spec = node.spec
    if not inputs:
        return Rows()
    if spec.depends_on_cuts:
        return Unsettled(
            f"the panes of {node.name!r} depend on how rows were cut into batches; use emit='changes' to compare the "
            "net"
        )
    if (keys := spec.row_keys) is not None:
        first = not spec.windowed and all(isinstance(claim, Rows) for claim in inputs)
        return LastRowsOfKeys(keys, keys, node.name, node.changes == "updates", first, windowed=spec.windowed)
    if spec.row_wise and len(inputs) == 1:
        return _after_row_wise(node, inputs[0])
    stateless = not spec.stateful or spec.row_wise
    return Rows() if stateless and all(isinstance(claim, Rows) for claim in inputs) else AnyRows()


def _after_row_wise(node: Node, claim: Claim) -> Claim:
    """Follow the keys through renaming. Updates always have their keys; final rows without keys are just rows."""
    if not isinstance(claim, LastRowsOfKeys):
        return claim
    if claim.updates:
        assert isinstance(node.meaning, Updates), f"{claim} has updates, and {node.name} has none"
        return replace(claim, keys=node.meaning.keys[: len(claim.keys)])  # the end of a window follows from its start
    columns = {node.spec.origin_of(column): column for column in reversed(node.schema.names)}
    if all(key in columns for key in claim.keys):
        return replace(claim, keys=tuple(columns[key] for key in claim.keys))
    return AnyRows()
