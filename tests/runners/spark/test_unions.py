"""Unions of streams on Spark: the rows and counts of a local run, without a shuffle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, Out
from dataflow.contracts.sink import SparkBatch
from dataflow.runners.spark.placement import Placement, plan_for_spark

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64(), "at": pa.timestamp("us")})


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table([[n % 3 for n in numbers], list(numbers), [n * 100_000 for n in numbers]], schema=SCHEMA)


def source(p: flow.Pipeline, name: str, first: int, count: int) -> flow.Stream:
    return p.source(op.from_arrow(rows(first, count), batch_rows=7), name=name)


def mixed(out: Path) -> flow.Pipeline:
    """A union of unions and of two branches of one source, into every kind of sink."""
    with flow.Pipeline("mixed") as p:
        one, two, three = source(p, "one", 0, 40), source(p, "two", 100, 30), source(p, "three", 200, 5)
        inner = one.union(two, name="inner").filter(col("v") % 5 > 0, name="some")
        outer = inner.union(three, one.filter(col("v") < 9, name="few"), name="outer")
        outer.map(lambda row: {**row, "v": -row["v"]}, schema=SCHEMA, name="turned").sink(op.collect(), name="rows")
        outer.sink(op.write_parquet(out), name="files")
        outer.key_by("k").agg(n=op.count(), total=col("v").sum(), emit="final", name="totals").sink(
            op.collect(), name="sums"
        )
    return p


def counts(result: flow.RunResult) -> dict[str, tuple[int, int]]:
    """The rows in and out of each operator."""
    names = [node.name for node in mixed(Path()).graph if node.name != "totals"]  # which may get records of rows
    return {name: (result.operator(name).rows_in, result.operator(name).rows_out) for name in names}


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(map(str, table.to_pylist()))


def test_rows_files_and_counts_are_those_of_a_local_run(spark: Any, tmp_path: Path) -> None:
    local = mixed(tmp_path / "local").run(parallelism=2)
    ours = mixed(tmp_path / "spark").run(
        flow.SparkRunner(spark, rows_per_trigger=20), parallelism=2, max_key_groups=4,
        checkpoint=flow.Checkpointing(tmp_path / "job"),
    )  # fmt: skip
    for sink in ("rows", "sums"):
        assert multiset(ours.table(sink)) == multiset(local.table(sink))
    assert multiset(op.read_committed(tmp_path / "spark")) == multiset(op.read_committed(tmp_path / "local"))
    assert ours.rows_in == local.rows_in
    assert ours.rows_out == local.rows_out
    assert counts(ours) == counts(local)
    assert len(ours.checkpoints) > 1


def test_a_union_costs_no_shuffle_and_the_table_says_in_which_tasks_it_runs(tmp_path: Path) -> None:
    p = mixed(tmp_path)
    made = plan_for_spark(p.graph, parallelism=2, key_groups=4)
    assert made.depth == 1
    assert "outer" not in made.placements
    table = str(p.explain("spark", parallelism=2, max_key_groups=4))
    assert "in the tasks of 'one', 'two'\n" in table
    assert "in the tasks of 'one', 'two', 'three'\n" in table
    assert len([line for line in table.splitlines() if line.split()[:1] == ["outer"]]) == 1


def test_a_sink_gets_rows_from_before_and_after_a_shuffle(spark: Any, tmp_path: Path) -> None:
    def both(out: Path) -> flow.Pipeline:
        with flow.Pipeline("levels") as p:
            one, two = source(p, "one", 0, 40), source(p, "two", 100, 30)
            counts = one.key_by("k").agg(v=op.count(), emit="final", name="counts")
            doubled = counts.key_by("v").agg(k=op.count(), emit="final", name="again").select("k", "v")
            counts.union(two.select("k", "v"), doubled, name="both").sink(op.write_parquet(out), name="out")
        return p

    made = plan_for_spark(both(tmp_path).graph, parallelism=2, key_groups=4)
    assert sorted({made.levels[link.source] for link in made.plan.inputs("out")}) == [0, 1, 2]
    both(tmp_path / "local").run()
    runner = flow.SparkRunner(spark, rows_per_trigger=1_000)
    both(tmp_path / "spark").run(
        runner, parallelism=2, max_key_groups=4, checkpoint=flow.Checkpointing(tmp_path / "job")
    )
    assert multiset(op.read_committed(tmp_path / "spark")) == multiset(op.read_committed(tmp_path / "local"))


class Timed(Operator):
    stateless = True
    makes_time = True

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)


def test_an_operator_that_makes_time_keeps_tasks_of_its_own() -> None:
    with flow.Pipeline() as p:
        both = source(p, "one", 0, 1).union(source(p, "two", 0, 1), name="both")
        both.apply(Timed, schema=SCHEMA, name="timed").sink(op.collect(), name="out")
    assert plan_for_spark(p.graph, parallelism=1, key_groups=2).placements["both"] is Placement.KEYED_TASK


def late(p: flow.Pipeline) -> None:
    """Two sources with times of their own, a union, and windows that count what is late."""
    streams = [source(p, name, first, 60).with_watermark("at") for name, first in (("one", 0), ("two", 30))]
    windows = streams[0].union(streams[1], name="both").key_by("k").window(op.tumbling("1s"))
    windows.agg(n=op.count(), name="windows").sink(op.collect(), name="out")


def test_time_is_the_least_of_all_inputs(spark: Any, tmp_path: Path) -> None:
    with flow.Pipeline("timed") as p:
        late(p)
    local = p.run()
    ours = p.run(flow.SparkRunner(spark, rows_per_trigger=30), parallelism=1, max_key_groups=4)
    assert multiset(ours.table("out")) == multiset(local.table("out"))
    assert (ours.late, local.late) == (0, 0)


@pytest.mark.filterwarnings("ignore::dataflow.errors.NewSparkAppWarning")
def test_rows_of_all_links_reach_a_function_in_one_call(spark: Any, tmp_path: Path) -> None:
    calls: list[tuple[int, list[int]]] = []

    def keep(frame: Any, batch: SparkBatch) -> None:
        calls.append((batch.id, sorted(row.v for row in frame.collect())))

    with flow.Pipeline("frames") as p:
        one, two = source(p, "one", 0, 10), source(p, "two", 100, 10)
        one.union(two, name="both").sink(op.foreach_batch(keep), name="out")
    p.run(flow.SparkRunner(spark, rows_per_trigger=10), parallelism=1)
    assert [number for number, _ in calls] == list(range(len(calls)))
    assert sorted(v for _, values in calls for v in values) == [*range(10), *range(100, 110)]
    assert any(values[0] < 100 <= values[-1] for _, values in calls if values)


def test_a_function_after_a_union_is_named_with_the_task_of_its_input(spark: Any) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"not {row['v']}")

    with flow.Pipeline("fails") as p:
        one, two = source(p, "one", 0, 1), source(p, "two", 100, 0)
        one.union(two, name="both").map(fails, schema=SCHEMA, name="odd").sink(op.collect(), name="out")
    with pytest.raises(ValueError, match="not 0") as caught:
        p.run(flow.SparkRunner(spark), parallelism=1)
    assert "odd" in "".join(caught.value.__notes__)
