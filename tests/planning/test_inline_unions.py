"""Unions that run in the tasks of their inputs: which do, and what becomes of vertices and links."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, Out
from dataflow.planning.graph import Node
from dataflow.planning.inline_unions import inline_unions
from dataflow.planning.physical_plan import Plan, make_plan

ROWS = pa.table({"k": [1, 2, 3], "a": [1, 2, 3], "t": pa.array([1, 2, 3], pa.timestamp("us"))})


def source(p: flow.Pipeline, name: str, parallelism: int | None = None) -> flow.Stream:
    return p.source(op.from_arrow(ROWS), name=name, parallelism=parallelism)


def makes_time(node: Node) -> bool:
    return node.name == "w"


def inlined(p: flow.Pipeline, fixed: Iterable[str] = (), parallelism: int = 2) -> Plan:
    whole = make_plan(p.graph, parallelism=parallelism, combine=lambda node, schema: True)
    return inline_unions(whole, makes_time, frozenset(fixed))


def vertices(plan: Plan) -> dict[str, list[str]]:
    return {name: [node.name for node in vertex.nodes] for name, vertex in plan.vertices.items()}


def links(plan: Plan) -> list[str]:
    names = {node.id: node.name for node in plan.graph}
    return [f"{k.source}.{names[k.node]} -> {k.target}:{k.port} {k.partitioning.value}" for k in plan.links]


def paths(plan: Plan) -> list[list[str]]:
    """The operators before each link, from the head of its vertex on."""
    found = []
    for link in plan.links:
        head, node = plan.vertices[link.source].head.id, plan.graph.nodes[link.node]
        path = [node.name]
        while node.id != head:
            node = plan.graph.nodes[node.inputs[0].source]
            path.insert(0, node.name)
        found.append(path)
    return found


def keeps_its_vertex(p: flow.Pipeline, fixed: Iterable[str] = ()) -> bool:
    """Whether the union keeps a vertex of its own."""
    return "u" in inlined(p, fixed).vertices


def test_a_union_and_what_follows_it_is_copied_to_the_vertices_of_its_inputs() -> None:
    p = flow.Pipeline()
    both = (
        source(p, "one").union(source(p, "two").filter(col("a") > 1, name="f"), name="u").filter(col("a") > 0, name="g")
    )
    both.key_by("k").agg(n=op.count(), name="n").sink(op.collect(), name="out")
    plan = inlined(p)
    assert vertices(plan) == {
        "one": ["one", "u", "g", "n/combine"],
        "two": ["two", "f", "u", "g", "n/combine"],
        "n": ["n", "out"],
    }
    assert links(plan) == ["one.n/combine -> n:0 hash", "two.n/combine -> n:0 hash"]
    assert paths(plan) == [["one", "u", "g", "n/combine"], ["two", "f", "u", "g", "n/combine"]]
    assert all(plan.graph.nodes[node.id] is node for vertex in plan.vertices.values() for node in vertex.nodes)


def test_a_union_of_unions_and_of_branches_of_one_vertex_is_copied_once_for_each_input() -> None:
    p = flow.Pipeline()
    one, two, three = (source(p, name) for name in ("one", "two", "three"))
    inner = one.union(two, name="inner")
    outer = inner.union(three, one.filter(col("a") > 2, name="f"), name="outer")
    inner.key_by("k").agg(n=op.count(), name="n").sink(op.collect(), name="counts")
    outer.key_by("k").agg(n=op.count(), name="m").sink(op.collect(), name="all")
    plan = inlined(p)
    assert list(plan.vertices) == ["one", "two", "three", "n", "m"]
    assert [path for path, link in zip(paths(plan), plan.links, strict=True) if link.target == "m"] == [
        ["one", "inner", "outer", "m/combine"],
        ["two", "inner", "outer", "m/combine"],
        ["three", "outer", "m/combine"],
        ["one", "f", "outer", "m/combine"],
    ]
    assert [link.source for link in plan.links if link.target == "n"] == ["one", "two"]


def test_rows_are_spread_by_the_parallelism_of_each_input() -> None:
    p = flow.Pipeline()
    both = source(p, "one", 1).union(source(p, "two", 3), name="u")
    both.sink(op.collect(), name="out", parallelism=3)
    whole = make_plan(p.graph, apart=lambda node: node.name == "out")
    wide = whole.vertices["u"]
    wide.parallelism = 3
    assert links(inline_unions(whole, makes_time)) == ["one.u -> out:0 rebalance", "two.u -> out:0 forward"]


class Kept(Operator):
    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)


@pytest.mark.parametrize("how", ["time", "state", "rebalance", "broadcast", "fixed", "times"])
def test_a_union_keeps_its_tasks_where_a_copy_would_differ(how: str) -> None:
    p = flow.Pipeline()
    one, two = source(p, "one"), source(p, "two")
    if how == "rebalance":
        two = two.rebalance()
    if how == "broadcast":
        two = two.broadcast()
    if how == "times":  # two copies in one vertex would have different times under one name
        two = one.with_watermark("t", name="w")
    both = one.union(two, name="u")
    if how == "time":
        both = both.map_batches(lambda batch: batch, name="w")
    if how == "state":
        both = both.apply(Kept, schema=one.schema, name="m")
    both.key_by("k").agg(n=op.count(), name="n", emit="final").sink(op.collect(), name="out")
    assert keeps_its_vertex(p, ["u"] if how == "fixed" else ())


def test_time_of_both_branches_may_be_made_before_they_part() -> None:
    p = flow.Pipeline()
    one = source(p, "one").with_watermark("t", name="w")
    both = one.filter(col("a") > 1, name="f").union(one, name="u")
    both.key_by("k").agg(n=op.count(), name="n", emit="final").sink(op.collect(), name="out")
    assert not keeps_its_vertex(p)


def test_what_copies_read_at_the_start_of_a_job_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    p = flow.Pipeline()
    both = source(p, "one").union(source(p, "two"), name="u").filter(col("a") > 1, name="f")
    both.key_by("k").agg(n=op.count(), name="n").sink(op.collect(), name="out")
    plan = inlined(p)
    asked: list[str] = []
    for kind in {type(node.spec) for node in plan.graph}:
        monkeypatch.setattr(kind, "loaded", lambda spec, name, notify: (asked.append(name), spec)[1])
    plan.loaded(lambda kind, text: None)
    assert sorted(asked) == ["f", "n", "n/combine", "one", "out", "two", "u"]
