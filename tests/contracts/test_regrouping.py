"""A checkpoint describes itself: its state is regrouped for other subtasks by its rules alone, without an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Snapshot
from dataflow.planning.graph import Node
from dataflow.planning.operator_table import make_operator
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.hashing import key_group_range
from dataflow.state.partition import hash_partition
from dataflow.state.parts import counting, owned
from tests.operators.operating import Emitted, context_of, drained, made

MAX_GROUPS = 128
SCHEMA = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "x": pa.int64()})


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
            tables[name] = owned(rows, rule.keys, groups, MAX_GROUPS) if rule.keys else rows
        else:
            values[name] = _value(rule.how or rule.kind, [snapshot.values[name] for snapshot in snapshots])
    rules = {name: replace_low(rule) for name, rule in snapshots[0].rules.items()}
    return Snapshot(values, tables, logs, rules)


def replace_low(rule: Any) -> Any:
    """The rule of a log whose rows all count."""
    return type(rule)(rule.kind, rule.keys, rule.shared, None, rule.how, rule.waiting)


def _log(name: str, snapshots: Sequence[Snapshot], groups: range) -> list[Mapping[str, pa.Table]]:
    """One base of all bases, and then the deltas of each: the keys of subtasks differ."""
    bases, deltas = [], []
    for snapshot in snapshots:
        rule, parts = snapshot.rules[name], cast(Sequence[Mapping[str, pa.Table]], snapshot.logs[name])
        for part in parts:
            rows = part if rule.low is None else {n: counting(table, *rule.low) for n, table in part.items()}
            if rule.keys:
                rows = {n: owned(table, rule.keys, groups, MAX_GROUPS) for n, table in rows.items()}
            (bases if part is parts[0] else deltas).append(rows)
    return [{n: pa.concat_tables([base[n] for base in bases]) for n in bases[0]}, *deltas]


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


Stream = Callable[[flow.KeyedStream, flow.KeyedStream], flow.Stream]
"""Adds the operator to rows of two inputs, of which most take the first."""
NAME = "it"
SUM, MIN = col("x").sum().alias("sum"), col("x").min().alias("min")


class Totals(flow.KeyedProcess):
    """Emits the sum of a key, and how many rows it had, when its timer rings."""

    total = flow.value_state(pa.int64())
    seen = flow.list_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        for row in rows.to_pylist():
            self.total.set((self.total.get() or 0) + row["x"])
            self.seen.append(row["x"])
            ctx.timers.event(row["at"] + timedelta(microseconds=250))

    def on_timer(self, key: Any, due: Any, ctx: Any) -> None:
        ctx.emit({"k": key, "x": self.total.get() + 1000 * len(self.seen.get())})


STREAMS: dict[str, Stream] = {
    "aggregate": lambda rows, others: rows.agg(SUM, MIN, emit="final", name=NAME),
    "aggregate with changes": lambda rows, others: rows.agg(SUM, emit="changes", name=NAME),
    "aggregate that expires": lambda rows, others: rows.agg(SUM, emit="updates", ttl="1s", name=NAME),
    "windows": lambda rows, others: rows.window(op.tumbling("200us")).agg(SUM, name=NAME),
    "overlapping windows": lambda rows, others: rows.window(op.hopping("300us", every="100us")).agg(SUM, name=NAME),
    "windows with lateness": lambda rows, others: rows.window(op.tumbling("200us"), lateness="400us").agg(
        SUM, emit="changes", name=NAME
    ),
    "triggered windows": lambda rows, others: rows.window(op.tumbling("400us"), early=op.after_rows(2)).agg(
        SUM, name=NAME
    ),
    "sessions": lambda rows, others: rows.window(op.session("20us")).agg(SUM, name=NAME),
    "sliding windows": lambda rows, others: rows.window(op.sliding("200us")).agg(SUM, name=NAME),
    "windows of rows": lambda rows, others: rows.window(op.count_window(3)).agg(SUM, name=NAME),
    "first rows": lambda rows, others: rows.unique("k", name=NAME),
    "best rows": lambda rows, others: rows.top(2, by="x", name=NAME),
    "best rows of windows": lambda rows, others: rows.window(op.tumbling("200us")).top(2, by="x", name=NAME),
    "join": lambda rows, others: rows.join(others, on="k", how="full", name=NAME),
    "join that expires": lambda rows, others: rows.join(others, on="k", ttl="1s", name=NAME),
    "join of windows": lambda rows, others: rows.join(others, on="k", window=op.tumbling("100us"), name=NAME),
    "join within": lambda rows, others: rows.join(others, on="k", within=("-50us", "20us"), how="left", name=NAME),
    "join as of": lambda rows, others: rows.join_asof(others, by="k", name=NAME),
    "join as of a time after": lambda rows, others: rows.join_asof(
        others, by="k", strategy="forward", tolerance="30us", name=NAME
    ),
    "process function": lambda rows, others: rows.process(
        Totals, schema=pa.schema({"k": pa.string(), "x": pa.int64()}), name=NAME
    ),
}


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
        stream(rows, others).sink(op.collect(), name="out")
        others.sink(op.collect(), name="rest")
    graph = make_plan(p.graph).graph
    (node,) = [node for node in graph if node.name == NAME]
    return node, [SCHEMA for _ in node.inputs]


def steps(ports: int) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """A batch for each port, with the watermark after them; a few rows are late."""
    rng = np.random.default_rng(7)
    for step in range(8):
        yield [_batch(rng, step) for _ in range(ports)], 100 * step


def _batch(rng: np.random.Generator, step: int) -> pa.RecordBatch:
    at = rng.integers(100 * step - 60, 100 * step + 100, 40)
    names = [f"key {k}" for k in rng.integers(0, 20, 40)]
    columns = [pa.array(names), pa.array(at, pa.timestamp("us")), pa.array(rng.integers(0, 9, 40))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


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
