"""From a graph to vertices and links: what is fused, what goes over channels, and which columns are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col, lit
from dataflow.errors import ConfigurationError
from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.planning.prune_columns import prune_columns

WIDE = pa.table({name: [1, 2, 3] for name in ("k", "a", "b", "c", "d")})


def source(p: flow.Pipeline, **options: Any) -> flow.Stream:
    return p.source(op.from_arrow(WIDE), **options)


def echo(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def vertices(plan: Plan) -> dict[str, list[str]]:
    return {name: [node.name for node in vertex.nodes] for name, vertex in plan.vertices.items()}


def links(plan: Plan) -> list[str]:
    return [f"{link.source} -> {link.target}:{link.port} {link.partitioning.value}" for link in plan.links]


def linear() -> flow.Pipeline:
    with flow.Pipeline() as p:
        source(p).filter(col("a") > 0).key_by("k").agg(n=op.count()).select("n").sink(op.collect())
    return p


# --- chaining


def test_operators_are_fused_up_to_the_next_exchange() -> None:
    plan = make_plan(linear().graph, parallelism=2)
    assert vertices(plan) == {"source": ["source", "filter"], "agg": ["agg", "select", "sink"]}
    assert links(plan) == ["source -> agg:0 hash"]


def test_branches_stay_in_the_chain() -> None:
    p = flow.Pipeline()
    stream = source(p)
    stream.filter(col("a") > 0).sink(op.collect())
    stream.sink(op.collect())
    assert vertices(make_plan(p.graph)) == {"source": ["source", "filter", "sink", "sink-2"]}


def test_an_operator_with_two_inputs_heads_a_chain_of_its_own() -> None:
    p = flow.Pipeline()
    source(p).union(source(p)).sink(op.collect())
    plan = make_plan(p.graph)
    assert vertices(plan) == {"source": ["source"], "source-2": ["source-2"], "union": ["union", "sink"]}
    assert links(plan) == ["source -> union:0 forward", "source-2 -> union:1 forward"]


def test_another_parallelism_ends_the_chain_and_rebalances() -> None:
    p = flow.Pipeline()
    source(p).filter(col("a") > 0, parallelism=3).sink(op.collect(), parallelism=1)
    plan = make_plan(p.graph, parallelism=2)
    assert [(v.name, v.parallelism) for v in plan.vertices.values()] == [("source", 2), ("filter", 3), ("sink", 1)]
    assert links(plan) == ["source -> filter:0 rebalance", "filter -> sink:0 rebalance"]


@pytest.mark.parametrize("how", ["rebalance", "broadcast"])
def test_an_exchange_that_was_asked_for_ends_the_chain(how: str) -> None:
    p = flow.Pipeline()
    getattr(source(p), how)().sink(op.collect())
    assert links(make_plan(p.graph)) == [f"source -> sink:0 {how}"]


def test_a_side_output_is_chained_like_the_main_one() -> None:
    p = flow.Pipeline()
    stream = source(p).apply(flow.Operator, sides={"late": None})
    stream.side("late").sink(op.collect(), name="late")
    stream.sink(op.collect(), name="out")
    plan = make_plan(p.graph)
    assert vertices(plan) == {"source": ["source", "apply", "late", "out"]}


# --- channels and tasks


@pytest.mark.parametrize(
    ("how", "pairs"),
    [
        (Partitioning.FORWARD, [(0, 0), (1, 1)]),
        (Partitioning.HASH, [(0, 0), (1, 0), (0, 1), (1, 1)]),
        (Partitioning.REBALANCE, [(0, 0), (1, 0), (0, 1), (1, 1)]),
        (Partitioning.BROADCAST, [(0, 0), (1, 0), (0, 1), (1, 1)]),
    ],
)
def test_a_link_has_a_channel_for_each_pair_that_may_exchange_rows(
    how: Partitioning, pairs: list[tuple[int, int]]
) -> None:
    p = flow.Pipeline()
    one = source(p)
    changed = {
        Partitioning.FORWARD: lambda: one,
        Partitioning.HASH: lambda: one.key_by("k"),
        Partitioning.REBALANCE: one.rebalance,
        Partitioning.BROADCAST: one.broadcast,
    }[how]()
    changed.union(source(p)).sink(op.collect())
    plan = make_plan(p.graph, parallelism=2)
    assert plan.links[0].partitioning is how
    assert plan.channels(plan.links[0]) == pairs


def test_tasks_are_named_after_vertex_and_subtask() -> None:
    plan = make_plan(linear().graph, parallelism=2)
    assert [task for _, _, task in plan.tasks()] == ["source[0]", "source[1]", "agg[0]", "agg[1]"]


def test_predecessors_are_the_tasks_that_send_rows() -> None:
    plan = make_plan(linear().graph, parallelism=2)
    assert dict(plan.predecessors()) == {
        "source[0]": (),
        "source[1]": (),
        "agg[0]": ("source[0]", "source[1]"),
        "agg[1]": ("source[0]", "source[1]"),
    }


def test_a_task_that_sends_rows_on_two_ports_is_one_predecessor() -> None:
    p = flow.Pipeline()
    stream = source(p)
    stream.union(stream).sink(op.collect())
    assert dict(make_plan(p.graph).predecessors()) == {"source[0]": (), "union[0]": ("source[0]",)}


def test_a_plan_describes_what_the_user_wrote_and_how_wide() -> None:
    described = make_plan(linear().graph, parallelism=2).describe()
    assert [(node["name"], node["parallelism"]) for node in described] == [
        ("source", 2),
        ("filter", 2),
        ("agg", 2),
        ("select", 2),
        ("sink", 2),
    ]
    assert described[0]["schema"] == [[name, "int64"] for name in WIDE.schema.names]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parallelism": 0}, "at least 1, got 0"),
        ({"parallelism": 129}, "'source': parallelism 129 is above max_key_groups=128"),
        ({"parallelism": 3, "max_key_groups": 2}, "lower the parallelism, or raise max_key_groups"),
    ],
)
def test_a_parallelism_out_of_range_is_refused(options: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        make_plan(linear().graph, **options)


def test_planning_changes_nothing_of_the_graph() -> None:
    p = linear()
    before = repr(p)
    make_plan(p.graph, parallelism=2)
    assert repr(p) == before


# --- pruning


def read(stream: flow.Stream) -> list[str]:
    """The columns that the only source of the stream's pipeline reads."""
    names: list[str] = prune_columns(stream._pipeline.graph).nodes[0].schema.names
    return names


def test_an_aggregate_reads_keys_and_arguments() -> None:
    assert read(source(flow.Pipeline()).key_by("k").agg(col("b").sum(), op.count())) == ["k", "b"]


def test_what_a_filter_and_a_projection_need_is_read() -> None:
    assert read(source(flow.Pipeline()).filter(col("d") > 0).select((col("a") + col("b")).alias("x"))) == [
        "a",
        "b",
        "d",
    ]


def test_a_column_that_is_computed_and_dropped_again_costs_its_arguments_only_once_projected() -> None:
    assert read(source(flow.Pipeline()).select("a", "b").select("a")) == ["a", "b"]


def test_what_sees_whole_batches_reads_all() -> None:
    assert read(source(flow.Pipeline()).map_batches(echo).select("a")) == WIDE.schema.names


def test_branches_read_what_either_needs() -> None:
    p = flow.Pipeline()
    stream = source(p)
    stream.select("a")
    assert read(stream.select("c")) == ["a", "c"]


def test_counting_rows_reads_one_column() -> None:
    assert read(source(flow.Pipeline()).map_batches(echo)) == WIDE.schema.names
    assert read(source(flow.Pipeline()).key_by("d").agg(op.count())) == ["d"]


def test_a_key_of_an_exchange_is_read_even_if_nobody_uses_it_behind() -> None:
    p = flow.Pipeline()
    keyed = source(p).key_by("d")
    assert read(keyed.filter(col("a") > 0).select("a")) == ["a", "d"]


def test_a_union_keeps_what_all_inputs_have_left() -> None:
    p = flow.Pipeline()
    union = source(p).union(source(p).filter(col("d") > 0))
    summed = union.key_by("k").agg(col("a").sum())
    pruned = prune_columns(p.graph)
    assert [node.schema.names for node in pruned][:4] == [["k", "a"], ["k", "a", "d"], ["k", "a", "d"], ["k", "a"]]
    assert sorted(summed.collect(parallelism=2).to_pylist(), key=str) == [{"k": n, "a_sum": 2 * n} for n in (1, 2, 3)]


def test_if_no_column_is_used_the_narrowest_one_is_read_to_count_the_rows() -> None:
    wide = pa.table({"text": ["a", "b"], "n": [1, 2], "flag": [True, False], "m": [3, 4]})
    ones = flow.Pipeline().source(op.from_arrow(wide)).select(lit(1).alias("one"))
    assert read(ones) == ["flag"]
    assert ones.collect().to_pylist() == [{"one": 1}, {"one": 1}]


def test_only_the_columns_that_are_used_are_read_from_the_file(tmp_path: Path) -> None:
    """The pages of a column nobody uses are overwritten with nonsense, and nobody notices."""
    path = tmp_path / "wide.parquet"
    pq.write_table(WIDE, path, use_dictionary=False, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(4)
    data = bytearray(path.read_bytes())
    start, size = chunk.data_page_offset, chunk.total_compressed_size
    data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    stream = flow.Pipeline().source(op.read_parquet(path))
    assert stream.select("k", "a").collect() == WIDE.select(["k", "a"])
    with pytest.raises(flow.errors.SourceError):
        stream.collect()
