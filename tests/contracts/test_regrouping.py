"""A checkpoint describes itself: its state is regrouped for other subtasks by its rules alone, without an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
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
from dataflow.state.hashing import key_group_range
from dataflow.state.partition import hash_partition
from dataflow.state.parts import counting, is_base, owned
from tests.keeping_state import SCHEMA, STREAMS, Stream, sample
from tests.operators.operating import Emitted, context_of, drained, made

MAX_GROUPS = 128


# --- the script: it reads rules, and knows no operator


def regrouped(snapshots: Sequence[Snapshot], groups: range) -> Snapshot:
    """What the subtask with the key groups ``groups`` restores of the snapshots of all former subtasks."""
    values: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    logs: dict[str, Any] = {}
    for name, rule in snapshots[0].rules.items():
        if rule.kind == "log":
            logs[name] = _log(name, snapshots[:1] if rule.shared else snapshots, groups)
        elif rule.kind == "table":
            rows = pa.concat_tables([snapshot.tables[name] for snapshot in snapshots])
            whole = rows if 0 in groups else rows.slice(0, 0)
            tables[name] = owned(rows, rule.keys, groups, MAX_GROUPS) if rule.keys else whole
        else:
            values[name] = _value(rule.how or rule.kind, [snapshot.values[name] for snapshot in snapshots])
    rules = {name: msgspec.structs.replace(rule, low=None) for name, rule in snapshots[0].rules.items()}
    return Snapshot(values, tables, logs, rules)


def _log(name: str, snapshots: Sequence[Snapshot], groups: range) -> list[Mapping[str, pa.Table]]:
    """One base of all bases, and then the deltas of each: the keys of subtasks differ.

    A table of a later part may be a base, too: then what came before it does not count.
    """
    bases: dict[str, list[pa.Table]] = {}
    deltas: list[Mapping[str, pa.Table]] = []
    for snapshot in snapshots:
        rule, parts = snapshot.rules[name], cast(Sequence[Mapping[str, pa.Table]], snapshot.logs[name])
        rows = [{n: _mine(table, rule, groups) for n, table in part.items()} for part in parts]
        last = {n: max(i for i, part in enumerate(rows) if n in part and is_base(part[n])) for n in rows[-1]}
        for n, at in last.items():
            bases.setdefault(n, []).append(rows[at][n])
        deltas += [{n: part[n] for n, at in last.items() if n in part and at < i} for i, part in enumerate(rows)]
    return [{n: pa.concat_tables(tables) for n, tables in bases.items()}, *[part for part in deltas if part]]


def _mine(table: pa.Table, rule: Any, groups: range) -> pa.Table:
    rows = table if rule.low is None else counting(table, *rule.low)
    if rule.keys:
        return owned(rows, rule.keys, groups, MAX_GROUPS)
    return rows if rule.shared or 0 in groups else rows.slice(0, 0)  # each row is kept in exactly one subtask


def _value(how: str, values: Sequence[Any]) -> Any:
    match how:
        case "greatest":
            return max(values)
        case "least" | "passed":
            return None if None in values else min(values)
        case "all":
            return np.all(np.array(values), axis=0).tolist()
        case "split":
            return {split: entry for value in values for split, entry in value.items()}
        case "equal" | "fixed":
            assert all(value == values[0] for value in values)
            return values[0]
    raise AssertionError(how)


# --- operators


class Subtasks:
    """The subtasks of one operator, each with its part of the rows."""

    def __init__(self, node: Node, inputs: Sequence[pa.Schema], width: int, restored: Sequence[Snapshot] = ()) -> None:
        self.groups = [key_group_range(subtask, width, MAX_GROUPS) for subtask in range(width)]
        self.out = Emitted()
        self.operators = []
        self.parts: list[dict[str, list[Any]]] = [{} for _ in range(width)]
        for subtask, groups in enumerate(self.groups):
            snapshot = regrouped(restored, groups) if restored else None
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
