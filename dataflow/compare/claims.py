"""What can be claimed of a sink's rows, read off the graph: how they are compared, and what duplicates do to them.

A row-wise path (no state between source and sink) keeps every row, so outputs are compared as multisets. After a keyed
aggregate there is one last row per key. A changelog has as many rows as batches were cut, so if its updates count as
rows (``Stream.as_rows``), the output cannot be compared at all, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataflow.planning.graph import Edge, Graph, Node
from dataflow.planning.specs import Grouped, Write

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


def claims(graph: Graph) -> dict[str, Claim]:
    """The claim for each sink, by name."""
    found: list[Claim] = []
    for node in graph:
        found.append(_behind(node, [_over(edge, found[edge.source]) for edge in node.inputs]))
    return {node.name: claim for node, claim in zip(graph, found, strict=True) if isinstance(node.spec, Write)}


def _over(edge: Edge, claim: Claim) -> Claim:
    """Return the claim at the other end of an edge: updates that count as rows are as many as batches were cut."""
    if isinstance(claim, LastRows) and claim.updates and edge.as_rows:
        return Unsettled(
            f"the updates of {claim.aggregate!r} count as rows, and their number depends on how rows were cut into "
            "batches"
        )
    return claim


def _behind(node: Node, inputs: Sequence[Claim]) -> Claim:
    unsettled = [claim for claim in inputs if isinstance(claim, Unsettled)]
    if unsettled:
        return unsettled[0]
    spec = node.spec
    if not inputs:
        return Rows()
    if isinstance(spec, Grouped):
        first = not spec.windowed and all(isinstance(claim, Rows) for claim in inputs)
        keys = spec.row_keys
        return LastRows(keys, keys, node.name, node.changes == "updates", first, windowed=spec.windowed)
    if spec.row_wise and len(inputs) == 1:
        return _row_wise(node, inputs[0])
    stateless = not spec.stateful or spec.row_wise
    return Rows() if stateless and all(isinstance(claim, Rows) for claim in inputs) else AnyRows()


def _row_wise(node: Node, claim: Claim) -> Claim:
    """Follow keys through renaming; without them final rows are only rows, and updates always have them."""
    if not isinstance(claim, LastRows):
        return claim
    if claim.updates:
        assert node.updates is not None, f"{claim} has updates, and {node.name} has none"
        return replace(claim, keys=node.updates.keys[: len(claim.keys)])  # the end of a window follows from its start
    columns = {node.spec.origin_of(column): column for column in reversed(node.schema.names)}
    if all(key in columns for key in claim.keys):
        return replace(claim, keys=tuple(columns[key] for key in claim.keys))
    return AnyRows()
