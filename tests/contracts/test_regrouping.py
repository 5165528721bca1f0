"""A checkpoint describes itself: its state is regrouped for other subtasks by its rules alone, without an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Snapshot
from dataflow.planning.graph import Node
from dataflow.planning.operator_table import make_operator
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.state_shares import NewSubtask, Share, merge_shares
from dataflow.state.hashing import key_group_range
from dataflow.state.partition import hash_partition
from tests.keeping_state import SCHEMA, STREAMS, Stream, sample
from tests.operators.operating import Emitted, context_of, drained, made

MAX_GROUPS = 128


# --- the rules, without an operator


def regrouped(snapshots: Sequence[Snapshot], subtask: int, width: int) -> Snapshot:
    """What a subtask restores of the snapshots of all former subtasks."""
    former = len(snapshots)
    shares = [Share(i, key_group_range(i, former, MAX_GROUPS), snapshot) for i, snapshot in enumerate(snapshots)]
    return merge_shares(
        shares, NewSubtask(subtask, width, key_group_range(subtask, width, MAX_GROUPS), MAX_GROUPS), "it"
    )


# --- operators


class Subtasks:
    """The subtasks of one operator, each with its part of the rows."""

    def __init__(self, node: Node, inputs: Sequence[pa.Schema], width: int, restored: Sequence[Snapshot] = ()) -> None:
        self.groups = [key_group_range(subtask, width, MAX_GROUPS) for subtask in range(width)]
        self.out = Emitted()
        self.operators = []
        self.parts: list[dict[str, list[Any]]] = [{} for _ in range(width)]
        for subtask, groups in enumerate(self.groups):
            snapshot = regrouped(restored, subtask, width) if restored else None
            context = context_of(inputs[0], node.schema, restored=snapshot, groups=groups)
            context = replace(context, subtask=subtask, parallelism=width, input_schemas=tuple(inputs))
            operator: Any = made(make_operator(node.spec, context), context)
            operator.open()
            self.operators.append(operator)

    def rows(self, port: int, batch: pa.RecordBatch) -> None:
        parts = hash_partition(batch, ["k"], len(self.operators), MAX_GROUPS)
        for operator, part in zip(self.operators, parts, strict=True):
            if part is not None:
                drained(operator.process(port, part, self.out))

    def advance(self, watermark: int) -> None:
        for operator in self.operators:
            drained(operator.advance(watermark, self.out))

    def finish(self) -> None:
        self.advance(MAX_WATERMARK)
        for operator in self.operators:
            drained(operator.finish(self.out))

    def checkpoint(self, number: int) -> list[Snapshot]:
        """Take a checkpoint: of each log a base the first time, and then a delta."""
        found = []
        for operator, parts in zip(self.operators, self.parts, strict=True):
            snapshot = operator.snapshot()
            for name, log in snapshot.logs.items():
                frozen = log.freeze(number, number - 1 if name in parts else None)
                parts.setdefault(name, []).append({n: reader.read_all() for n, reader in frozen.items()})
                log.durable(number)
            found.append(replace(snapshot, logs={name: list(parts[name]) for name in snapshot.logs}))
        return found


def node_of(stream: Stream) -> tuple[Node, list[pa.Schema]]:
    """The operator under test, and the columns of its inputs."""
    with flow.Pipeline() as p:
        rows, others = [
            p.source(op.from_arrow(SCHEMA.empty_table()), name=name).with_watermark("at").key_by("k")
            for name in ("in", "others")
        ]
        stream(rows, others, "it").sink(op.collect(), name="out")
        others.sink(op.collect(), name="rest")
    graph = make_plan(p.graph).graph
    (node,) = [node for node in graph if node.name == "it"]
    return node, [SCHEMA for _ in node.inputs]


def steps(ports: int) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """A batch for each port, with the watermark after them; a few rows are late."""
    rng = np.random.default_rng(7)
    for step in range(8):
        yield [sample(rng, 100 * step) for _ in range(ports)], 100 * step


def rows_of(out: Emitted) -> list[tuple[Any, ...]]:
    return sorted(out.take(), key=repr)


@pytest.mark.parametrize("name", STREAMS)
def test_state_that_is_regrouped_by_its_rules_continues_as_if_nothing_had_been(name: str) -> None:
    node, inputs = node_of(STREAMS[name])
    alone, several = Subtasks(node, inputs, 1), Subtasks(node, inputs, 2)
    emitted: list[tuple[Any, ...]] = []
    for number, (batches, watermark) in enumerate(steps(len(inputs))):
        if number == 2:
            several.checkpoint(1)
        if number == 4:
            emitted += rows_of(several.out)
            several = Subtasks(node, inputs, 3, restored=several.checkpoint(2))
        for subtasks in (alone, several):
            for port, batch in enumerate(batches):
                subtasks.rows(port, batch)
            subtasks.advance(watermark)
    alone.finish()
    several.finish()
    expected = rows_of(alone.out)
    assert expected
    assert sorted([*emitted, *rows_of(several.out)], key=repr) == expected
