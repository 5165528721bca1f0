"""What can be claimed of a sink's rows, read off the graph: how they are compared, and what duplicates do to them.

A row-wise path (no state between source and sink) keeps every row, so outputs are compared as multisets. Behind a keyed
aggregate there is one last row per key. A changelog has as many rows as batches were cut, so whatever
depends on their number, or mixes up their order, cannot be compared at all, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataflow.expressions.nodes import Alias, Column, Expr
from dataflow.graph import Edge, Graph, Node, Partitioning
from dataflow.specs import (
    Aggregate,
    Apply,
    Combine,
    Emit,
    Filter,
    FlatMapRows,
    MapBatches,
    MapRows,
    Project,
    Read,
    Union,
    Watermarks,
    WindowAggregate,
    Write,
)

__all__ = ["AnyRows", "Claim", "LastRows", "Rows", "Unsettled", "claims"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row of the input, or what became of it: a duplicate delivered to the sink is a row more."""


@dataclass(frozen=True, slots=True)
class AnyRows:
    """Rows that came out of state: the same ones every time, but what a duplicate does to them is not known."""


@dataclass(frozen=True, slots=True)
class LastRows:
    """One last row per key. ``keys`` are its columns at the sink, ``origin`` what ``aggregate`` calls them.

    ``updates``: there are earlier rows, too. ``first``: no other state lies before the aggregate, so the rows that are
    delivered to it twice are exactly those reported. ``windowed``: all that only where no row came late.
    """

    keys: tuple[str, ...]
    origin: tuple[str, ...]
    aggregate: str
    updates: bool
    first: bool
    windowed: bool = False


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Nothing: two undisturbed runs may differ."""

    reason: str


Claim = Rows | AnyRows | LastRows | Unsettled


def claims(graph: Graph, parallelism: int) -> dict[str, Claim]:
    """The claim for each sink, by name."""
    found: list[Claim] = []
    for node in graph:
        width = node.parallelism or parallelism
        inputs = [_over(edge, found[edge.source], graph.nodes[edge.source], parallelism, width) for edge in node.inputs]
        found.append(_behind(node, inputs))
    return {node.name: claim for node, claim in zip(graph, found, strict=True) if isinstance(node.spec, Write)}


def _over(edge: Edge, claim: Claim, source: Node, parallelism: int, width: int) -> Claim:
    """The claim at the other end of an edge: an order that matters may be lost on the way."""
    if not (isinstance(claim, LastRows) and claim.updates) or width == 1:
        return claim
    match edge.partitioning:
        case Partitioning.FORWARD:
            return claim
        case Partitioning.HASH if set(edge.keys) <= set(claim.keys):
            return claim
        case None if (source.parallelism or parallelism) == width:
            return claim
        case _:
            return Unsettled(f"the updates of {claim.aggregate!r} are spread over subtasks and lose their order")


def _behind(node: Node, inputs: Sequence[Claim]) -> Claim:
    unsettled = [claim for claim in inputs if isinstance(claim, Unsettled)]
    if unsettled:
        return unsettled[0]
    changelogs = [claim for claim in inputs if isinstance(claim, LastRows) and claim.updates]
    match node.spec:
        case Read():
            return Rows()
        case Write():
            return inputs[0]
        case Filter(predicate=predicate):
            return _filtered(node, inputs[0], predicate)
        case Project(columns=columns):
            return _projected(node, inputs[0], columns)
        case _ if changelogs:
            return Unsettled(
                f"{node.name!r} works on the updates of {changelogs[0].aggregate!r}, whose number depends on how rows "
                "were cut into batches"
            )
        case Aggregate(keys=keys, emit=emit):
            first = all(isinstance(claim, Rows) for claim in inputs)
            return LastRows(keys, keys, node.name, emit is Emit.UPDATES, first)
        case WindowAggregate(keys=keys, lateness=lateness):
            key = (*keys, "window_start")
            return LastRows(key, key, node.name, lateness > 0, first=False, windowed=True)
        case Apply(stateless=False):
            return AnyRows()
        case MapBatches() | MapRows() | FlatMapRows() | Watermarks() | Combine() | Apply() | Union():
            return Rows() if all(isinstance(claim, Rows) for claim in inputs) else AnyRows()


def _filtered(node: Node, claim: Claim, predicate: Expr) -> Claim:
    if isinstance(claim, LastRows) and claim.updates and not set(predicate.columns()) <= set(claim.keys):
        return Unsettled(
            f"{node.name!r} lets some updates of {claim.aggregate!r} pass, and which there are depends on how rows "
            "were cut into batches"
        )
    return claim


def _projected(node: Node, claim: Claim, columns: Sequence[Expr]) -> Claim:
    """Keys are followed through renaming."""
    if not isinstance(claim, LastRows):
        return claim
    names = {plain: column.name for column in reversed(columns) if (plain := _plain(column)) is not None}
    if all(key in names for key in claim.keys):
        return replace(claim, keys=tuple(names[key] for key in claim.keys))
    if claim.updates:
        return Unsettled(f"{node.name!r} drops a key column of {claim.aggregate!r}, so its last rows cannot be told")
    return AnyRows()


def _plain(column: Expr) -> str | None:
    """The column that ``column`` is, under whatever name."""
    match column:
        case Column(label=label):
            return label
        case Alias(operand=operand):
            return _plain(operand)
        case _:
            return None
