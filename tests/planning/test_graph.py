"""The logical graph: names that stay, parts of it, and what a guarantee adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import Guarantee, col
from dataflow.planning.graph import Graph
from operators.sinks.collect import CollectSink

ROWS = pa.table({"k": [1, 2], "x": [3, 4]})


class Flaky(flow.Source):
    """A source that cannot be read again."""

    replayable = False
    accepts_loss = True

    @property
    def schema(self) -> pa.Schema:
        return ROWS.schema

    def splits(self) -> Sequence[flow.Split]:
        return []

    def reader(self, split: flow.Split, offset: Any, context: Any) -> flow.SplitReader:
        raise NotImplementedError("never run")


class Careless(CollectSink):
    """A sink that may write a row twice."""

    guarantee = Guarantee.AT_LEAST_ONCE


def rows(p: flow.Pipeline, **options: Any) -> flow.Stream:
    return p.source(op.from_arrow(ROWS), **options)


def graph(*steps: str) -> Graph:
    """A chain of filters and aggregates between a source and a sink, without names."""
    p = flow.Pipeline()
    stream = rows(p)
    for step in steps:
        if step == "filter":
            stream = stream.filter(col("k") > 0)
        else:
            stream = stream.key_by("k").agg(col("k").count().alias("n"))
    stream.sink(op.collect())
    return p.graph


def names(found: Graph, *, stateful: bool) -> list[str]:
    return [node.name for node in found if node.stateful is stateful]


# --- names


def test_automatic_names_do_not_shift_when_a_filter_is_put_in() -> None:
    before, after = graph("agg", "agg"), graph("filter", "agg", "filter", "agg", "filter")
    assert names(before, stateful=True) == names(after, stateful=True) == ["source", "agg", "agg-2", "sink"]
    assert names(after, stateful=False) == ["filter", "filter-2", "filter-3"]


def test_an_automatic_name_steps_aside_for_one_that_is_taken() -> None:
    p = flow.Pipeline()
    rows(p, name="source")
    assert [rows(p).name, rows(p).name] == ["source-2", "source-3"]


def test_a_node_knows_whether_its_name_was_chosen() -> None:
    p = flow.Pipeline()
    rows(p, name="mine").filter(col("k") > 0)
    assert [node.named for node in p.graph] == [True, False]


# --- parts


def test_upstream_is_what_a_stream_depends_on_under_the_same_names() -> None:
    p = flow.Pipeline()
    left, right = rows(p, name="left"), rows(p, name="right")
    right.filter(col("k") > 0, name="beside")
    union = left.union(right, name="both")
    part = p.graph.upstream(union._node)
    assert [node.name for node in part] == ["left", "right", "both"]
    assert [edge.source for edge in part.nodes[-1].inputs] == [0, 1]


def test_consumers_are_all_branches() -> None:
    p = flow.Pipeline()
    stream = rows(p)
    stream.filter(col("k") > 0, name="a")
    stream.filter(col("k") > 1, name="b")
    assert [node.name for node in p.graph.consumers(p.graph.nodes[0])] == ["a", "b"]


# --- guarantees


@pytest.mark.parametrize(
    ("source", "mode", "sink", "total"),
    [
        (op.from_arrow(ROWS), Guarantee.EXACTLY_ONCE, op.collect(), Guarantee.EXACTLY_ONCE),
        (op.from_arrow(ROWS), Guarantee.AT_LEAST_ONCE, op.collect(), Guarantee.AT_LEAST_ONCE),
        (op.from_arrow(ROWS), Guarantee.AT_MOST_ONCE, op.collect(), Guarantee.AT_MOST_ONCE),
        (op.from_arrow(ROWS), Guarantee.EXACTLY_ONCE, Careless(limit=None), Guarantee.AT_LEAST_ONCE),
        (Flaky(), Guarantee.EXACTLY_ONCE, op.collect(), Guarantee.AT_MOST_ONCE),
        (Flaky(), Guarantee.AT_LEAST_ONCE, Careless(limit=None), Guarantee.AT_MOST_ONCE),
    ],
    ids=lambda value: value.name if isinstance(value, Guarantee) else type(value).__name__,
)
def test_the_weakest_of_source_mode_and_sink_counts(
    source: flow.Source, mode: Guarantee, sink: flow.Sink, total: Guarantee
) -> None:
    p = flow.Pipeline()
    p.source(source).sink(sink)
    assert p.graph.guarantee(mode) is total


def test_one_weak_sink_of_several_is_enough() -> None:
    p = flow.Pipeline()
    stream = rows(p)
    stream.sink(op.collect())
    stream.sink(Careless(limit=None))
    assert p.graph.guarantee(Guarantee.EXACTLY_ONCE) is Guarantee.AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("options", "guarantee"),
    [
        ({}, "at most once"),
        ({"checkpoint": flow.Checkpointing(flow.MemoryStore())}, "exactly once"),
        ({"checkpoint": flow.Checkpointing(flow.MemoryStore(), mode="unaligned")}, "at least once"),
    ],
    ids=["no checkpoints", "aligned", "unaligned"],
)
def test_a_result_says_its_guarantee(options: dict[str, Any], guarantee: str) -> None:
    with flow.Pipeline() as p:
        rows(p, name="rows").sink(op.collect(), name="out")
    result = p.run(**options)
    assert result.guarantee.value == guarantee
    assert f"end to end {guarantee}" in str(result)


# --- descriptions


def test_a_description_is_plain_json_and_the_same_every_time() -> None:
    import json

    one, two = (json.dumps(graph("filter", "agg").describe()) for _ in range(2))
    assert one == two
    assert '"name": "agg"' in one


def test_a_graph_is_bounded_if_all_its_sources_are() -> None:
    endless = Flaky()
    endless.bounded = False
    p = flow.Pipeline()
    rows(p)
    assert p.graph.bounded
    p.source(endless)
    assert not p.graph.bounded
