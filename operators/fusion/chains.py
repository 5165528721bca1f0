"""Which operators of a chain are done by one loop, and how its rows get past them.

A run is a series of filters and projections in which each is the only consumer of the one before it. The chain stays
as it is: the first operator of a run is put into a ``Fused``, which has the loop, and rows that the loop has done leave
by the last one. Control elements, and rows for which there is no loop, go from operator to operator as ever, and all of
them keep their counters. Rows cannot pass each other: when the head of a run takes some, nothing is under way behind
it, for a chain works deepest first.

Where red rows are reported (mode ``unaligned``) each operator has to see its own, and where one is slowed down it has
to wait: there is no loop then. A hash edge right behind a run is part of it if the keys are words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataflow.planning.graph import Graph, Node
from dataflow.planning.specs import Filter, Project
from dataflow.runtime.task.outputs import HashOutput
from dataflow.state.dictionaries import decoded_schema
from operators.fusion.operator import Fused, Patience, Spread
from operators.fusion.runs import Run
from operators.fusion.source import fuses

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.background import Submit
    from dataflow.runtime.task.chain import ChainNode

__all__ = ["fuse"]

_WORTH_IT = 2
"""Operations a loop must save at least; a filter is one. Below that pyarrow is as fast as memory."""


def fuse(
    graph: Graph, nodes: Sequence[tuple[Node, ChainNode]], submit: Submit, *, patience: Patience | None = None
) -> None:
    """Put loops into a chain, whose nodes are wired and have their operators.

    ``submit`` runs compilations in the background; ``patience`` says when they begin.
    """
    schemas = [graph.schema_of(node.inputs[0]) if node.inputs else node.schema for node, _ in nodes]
    taken: set[int] = set()
    for first in range(len(nodes)):
        run = [] if first in taken else _run(nodes, schemas, first)
        taken.update(run)
        if run:
            put = [nodes[place] for place in run]
            if encoded := graph.nodes[put[0][0].inputs[0].source].encoded:  # rows may come with their text, too
                text = decoded_schema(schemas[first], encoded)
                _put(put, text, put[-1][0].declared(None), submit, patience)
            _put(put, schemas[first], put[-1][0].schema, submit, patience)


def _run(nodes: Sequence[tuple[Node, ChainNode]], schemas: Sequence[pa.Schema], first: int) -> list[int]:
    """The longest run from ``first`` on, by position."""
    places = {id(made): place for place, (_, made) in enumerate(nodes)}
    run: list[int] = []
    at: int | None = first
    while at is not None and _fuses(*nodes[at], schemas[at]):
        run.append(at)
        made = nodes[at][1]
        children = made.children.get(None, [])
        alone = len(children) == 1 and len(made.children) == 1 and not made.outputs
        at = places[id(children[0])] if alone else None
    return run


def _fuses(node: Node, made: ChainNode, schema: pa.Schema) -> bool:
    return made.delay is None and isinstance(node.spec, Filter | Project) and fuses(Run(schema, (node.spec,)))


def _put(
    run: Sequence[tuple[Node, ChainNode]],
    schema: pa.Schema,
    output: pa.Schema,
    submit: Submit,
    patience: Patience | None,
) -> None:
    """Put a loop for rows of ``schema`` before the first operator of ``run``, which gets all other rows."""
    steps = tuple(node.spec for node, _ in run if isinstance(node.spec, Filter | Project))
    head, last = run[0][1], run[-1][1]
    plan, spread, edge = Run(schema, steps), None, _hash_edge(last)
    if edge is not None and fuses(spreading := Run(schema, steps, edge.keys)):
        plan, spread = spreading, Spread(len(edge.channels), edge.max_key_groups)
    if plan.filters + plan.operations >= _WORTH_IT:
        beyond = _Beyond([made for _, made in run], edge)
        fused = Fused(plan, head.operator, beyond, submit, output=output, spread=spread, patience=patience)
        head.operator = fused
        head.tally.report(lambda: fused.choice)


def _hash_edge(last: ChainNode) -> HashOutput | None:
    """The edge over which all rows of ``last`` go, and nowhere else, if it spreads them by key."""
    outputs = last.outputs.get(None, [])
    if last.children or len(last.outputs) != 1 or len(outputs) != 1:
        return None
    (edge,) = outputs
    return edge if isinstance(edge, HashOutput) and len(edge.channels) > 1 else None


class _Beyond:
    """The chain behind a run: counts what the operators of the run would have counted, and sends for the last one."""

    def __init__(self, nodes: Sequence[ChainNode], output: HashOutput | None) -> None:
        self._nodes = nodes
        self._output = output

    def passed(self, rows: Sequence[int]) -> None:
        assert not any([node.inbox for node in self._nodes[1:]]), f"rows would pass those before {self._nodes[-1].name}"
        for before, node, count in zip(self._nodes, self._nodes[1:], rows, strict=False):
            before.tally.rows_out += count
            node.tally.rows_in += count
            node.epoch = before.epoch

    def emit(self, batch: pa.RecordBatch) -> None:
        self._nodes[-1].emit(batch)

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None]) -> None:
        assert self._output is not None, f"rows of {self._nodes[-1].name} are spread, and there is no hash edge"
        last = self._nodes[-1]
        last.tally.rows_out += sum(part.num_rows for part in parts if part is not None)
        self._output.emit_parts(parts, last.epoch)
