"""An operator whose aggregates change at a restore: its checkpoint is evolved as a restore does, without a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.contracts.evolution import OperatorDescription, PieceChanges
from dataflow.contracts.operator import Snapshot
from dataflow.planning.graph import Node
from dataflow.planning.operator_table import make_operator
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.watermarks import MAX_WATERMARK
from tests.operators.operating import Emitted, context_of, drained, made

__all__ = ["Evolving", "Keyed", "described", "evolved", "node_of"]

Keyed = Callable[[flow.KeyedStream, Sequence[Any]], flow.Stream]
"""Adds an aggregate named "it" to keyed rows."""


class Evolving:
    """An operator over rows of ``schema`` with the columns ``k`` and ``at``, perhaps restored."""

    def __init__(self, schema: pa.Schema, kind: Keyed, aggregations: Sequence[Any]) -> None:
        self._schema, self._kind = schema, kind
        self.node, self.inputs = node_of(schema, kind, aggregations)
        self.out = Emitted()
        self.parts: dict[str, list[Any]] = {}
        self.number = 0
        self._start(None)

    def start_with(self, aggregations: Sequence[Any]) -> None:
        """Start over without a checkpoint."""
        self.node, self.inputs = node_of(self._schema, self._kind, aggregations)
        self._start(None)

    def _start(self, restored: Snapshot | None) -> None:
        context = context_of(self.inputs[0], self.node.schema, restored=restored)
        self.operator: Any = made(make_operator(self.node.spec, context), context)
        self.operator.open()

    def feed(self, batch: pa.RecordBatch, watermark: int | None = None) -> None:
        drained(self.operator.process(0, batch.select(self.inputs[0].names), self.out))
        if watermark is not None:
            drained(self.operator.advance(watermark, self.out))

    def checkpoint(self) -> Snapshot:
        """A base the first time, and then a delta."""
        self.number += 1
        snapshot = self.operator.snapshot()
        for name, log in snapshot.logs.items():
            frozen = log.freeze(self.number, self.number - 1 if name in self.parts else None)
            self.parts.setdefault(name, []).append({n: reader.read_all() for n, reader in frozen.items()})
            log.durable(self.number)
        return replace(snapshot, logs={name: list(self.parts[name]) for name in snapshot.logs})

    def restore(self, aggregations: Sequence[Any], **changes: Any) -> list[str]:
        """Restore the checkpoint with other aggregates; return what was done. The next checkpoint is whole."""
        stored, before = self.checkpoint(), described(self.node)
        self.node, self.inputs = node_of(self._schema, self._kind, aggregations)
        stored, done = evolved(self.node, before, stored, PieceChanges(**changes))
        self.parts, self.number = {}, 0
        self._start(stored)
        return done

    def finish(self) -> list[dict[str, Any]]:
        """All rows that came out, since the last call."""
        drained(self.operator.advance(MAX_WATERMARK, self.out))
        drained(self.operator.finish(self.out))
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.out.batches.pop(None, []) for row in batch.to_pylist()]


def node_of(schema: pa.Schema, kind: Keyed, aggregations: Sequence[Any]) -> tuple[Node, list[pa.Schema]]:
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(schema.empty_table()), name="in").with_watermark("at").key_by("k")
        kind(rows, aggregations).sink(op.collect(), name="out")
    graph = make_plan(p.graph).graph
    (node,) = [node for node in graph if node.name == "it"]
    return node, [graph.schema_of(edge) for edge in node.inputs]


def described(node: Node) -> OperatorDescription:
    columns = [(field.name, str(field.type)) for field in node.schema]
    return OperatorDescription(node.name, node.kind, [["k"]], columns, [None], node.spec.detail())


def evolved(
    node: Node, before: OperatorDescription, stored: Snapshot, changes: PieceChanges
) -> tuple[Snapshot, list[str]]:
    now = described(node)
    adaptation = node.spec.evolve(before, now, changes)
    assert adaptation.stored == now, (adaptation.stored, now)
    done = []
    for change in adaptation.changes:
        keys: Any = ""
        if change.apply is not None:
            stored, keys = change.apply(stored)
        done.append(f"{change.piece}: {change.what} {keys}".strip())
    return stored, done
