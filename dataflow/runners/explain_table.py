"""The table that Pipeline.explain() returns: how a runner would run each operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.execution import Execution
from dataflow.contracts.sink import Guarantee
from dataflow.planning.graph import Node, Partitioning
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    from dataflow.planning.physical_plan import Link, Plan, Vertex

__all__ = ["Explanation", "explain_plan"]


_PLANNED = ("pruning", "dictionary")
"""The kinds of a source's choices that a plan shows; the others follow from the files alone."""


@dataclass(frozen=True)
class Explanation:
    """A table with one row per operator, below the headings ``heads``. ``print`` it; notebooks show it as HTML."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        everything = (self.heads, *self.rows)
        widths = [max(len(row[i]) for row in everything) for i in range(len(self.heads))]
        cells = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in everything]
        return "\n".join([self.title, *("  " + line for line in cells), *(f"* {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(cell)}" for cell in self.heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<table><tr>{head}</tr>{body}</table><ul>{notes}</ul>"


def explain_plan(pipeline: str, plan: Plan, checkpoint: Checkpointing | None) -> Explanation:
    """Return how ``plan`` runs on threads: its vertices, its chains, and the edges between them."""
    mode = None if checkpoint is None else checkpoint.mode
    guarantee = plan.graph.guarantee(Guarantee.AT_MOST_ONCE if mode is None else mode.guarantee)
    rows = [
        (node.name, node.kind, vertex.name, str(vertex.parallelism), _input(plan, vertex, node))
        for vertex in plan.vertices.values()
        for node in vertex.nodes
    ]
    return Explanation(
        f"{pipeline} on threads of this process{', as a batch' if plan.execution is Execution.BATCH else ''}",
        ("operator", "kind", "vertex", "subtasks", "rows come"),
        tuple(rows),
        tuple(_notes(plan, mode, guarantee)),
    )


def _input(plan: Plan, vertex: Vertex, node: Node) -> str:
    if node is not vertex.head:
        return _chained(node)
    links = plan.inputs(vertex.name)
    return "; ".join(_edge(plan, link) for link in links) if links else "from the source"


def _chained(node: Node) -> str:
    return "chained, folded per key" if node.spec.folds_rows else "chained"


def _edge(plan: Plan, link: Link) -> str:
    side = "" if link.tag is None else f".side({link.tag!r})"
    keys = f" by {', '.join(link.keys)}" if link.partitioning is Partitioning.HASH else ""
    sources, targets = plan.vertices[link.source].parallelism, plan.vertices[link.target].parallelism
    name = plan.graph.nodes[link.node].name
    if link.partitioning is Partitioning.FORWARD:
        return f"forward from {name}{side}, {targets} channels"
    return f"{link.partitioning.value}{keys} from {name}{side}, {sources} x {targets} channels"


def _notes(plan: Plan, mode: Mode | None, guarantee: Guarantee) -> Iterator[str]:
    yield f"{'no checkpoints' if mode is None else f'mode {mode}'}; end to end {guarantee.value}"
    yield "operators of a vertex are chained: each of its subtasks is one task, in which rows pass without a queue"
    if plan.execution is Execution.BATCH:
        yield from _batch_notes(plan, checkpointed=mode is not None)
    for node in plan.graph:
        choices = node.spec.source.choices() if isinstance(node.spec, Read) else ()
        for choice in choices:
            if choice.kind in _PLANNED:
                yield f"{choice.kind}: {node.name} {choice.part} {choice.chosen}, because {choice.why}"
    if mode is Mode.UNALIGNED:
        yield "rows are not folded before a shuffle: the report of a restore names them as they were"


def _batch_notes(plan: Plan, *, checkpointed: bool) -> Iterator[str]:
    """Yield what is special about a batch."""
    yield "a batch: results come at the end of the input, where its only checkpoint is taken, and no row is late"
    if checkpointed:
        yield (
            "a crash before that checkpoint: the next run begins from nothing, and deletes what was staged; after that "
            "checkpoint a crash leaves only the commit to do, which the next run finishes"
        )
    else:
        yield "without checkpoint= a crash leaves nothing to resume: the next run begins from nothing"
    for node in plan.graph:
        if node.spec.row_order is not None:
            yield f"{node.name}: rows sorted by {node.spec.row_order}"
