"""Where the vertices of a pipeline go on Spark, and what is refused before anything starts. No Spark is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, IgnoredSettingWarning, UnsupportedOnRunner
from dataflow.runners.spark.placement import Placement, SparkPlan, plan_for_spark

TABLE = pa.table({"k": [1, 2], "x": [3, 4]})


def spark_plan(p: flow.Pipeline, parallelism: int = 2) -> SparkPlan:
    return plan_for_spark(p.graph, parallelism=parallelism, key_groups=8)


def source(p: flow.Pipeline, name: str = "in", **options: Any) -> flow.Stream:
    return p.source(op.from_arrow(TABLE), name=name, **options)


def test_a_file_sink_behind_a_source_is_in_its_source_tasks(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        source(p).filter(col("x") > 3).sink(op.write_parquet(tmp_path), name="out")
    made = spark_plan(p)
    assert dict(made.placements) == {"in": Placement.SOURCE_TASK}
    assert (len(made.source_tasks), made.depth) == (2, 0)


def test_a_keyed_operator_has_a_slot_for_each_key_group_and_its_sink_a_place_in_each_partition(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        counts = source(p).key_by("k").agg(op.count().alias("n"), name="counts").select("n", name="only")
        counts.sink(op.write_parquet(tmp_path), name="out")
    made = spark_plan(p)
    assert dict(made.placements) == {
        "in": Placement.SOURCE_TASK,
        "counts": Placement.KEYED_TASK,
        "out": Placement.PARTITION,
    }
    assert [node.name for node in made.plan.vertices["counts"].nodes] == ["counts", "only"]
    assert (len(made.keyed_tasks), made.depth, made.levels["out"]) == (8, 1, 1)


def test_each_shuffle_is_a_level_and_all_slots_of_a_vertex_speak_with_one_voice() -> None:
    with flow.Pipeline() as p:
        first = source(p).key_by("k").agg(op.count().alias("n"), name="first")
        first.key_by("n").agg(op.count().alias("m"), name="second").sink(op.collect(), name="out")
    made = spark_plan(p)
    assert dict(made.levels) == {"in": 0, "first": 1, "second": 2, "out": 2}
    assert made.channels("first", 3) == [(0, 0), (0, 1)]
    assert made.channels("second", 3) == [(1, 0)]


def test_other_sinks_are_in_the_driver() -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.collect(), name="rows")
        source(p, "more").sink(op.upsert_batches(print), name="calls")
    assert [spark_plan(p).placements[name] for name in ("rows", "calls")] == [Placement.DRIVER, Placement.DRIVER]


def test_a_sink_that_would_count_a_row_twice_is_refused() -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.write_batches(print), name="calls")
    with pytest.raises(UnsupportedOnRunner, match=r"sink 'calls', write_batches\(print\): .*use op.upsert_batches"):
        spark_plan(p)


def test_tables_are_printed_again_without_harm() -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.console(), name="shown")
    assert spark_plan(p).placements["shown"] is Placement.DRIVER


def test_a_sink_behind_broadcast_is_refused(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        source(p).broadcast().sink(op.write_parquet(tmp_path), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"sink 'out'.*remove broadcast\(\)"):
        spark_plan(p)


def test_a_source_that_cannot_be_read_again_is_refused() -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches())
    with flow.Pipeline() as p:
        p.source(op.from_arrow(reader, replayable=False), name="once").sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"source 'once'.*write the rows to files first"):
        p.explain(runner="spark", parallelism=1)


@pytest.mark.parametrize("mode", ["unaligned", "unaligned-persisted", "aligned-timeout"])
def test_modes_in_which_barriers_overtake_are_refused(mode: str, tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match='use mode="aligned", or the local runner'):
        p.run("spark", checkpoint=flow.Checkpointing(tmp_path, mode=mode))


def test_only_the_last_micro_batch_can_be_restored(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"restore=7.*only resume after its last"):
        p.run("spark", checkpoint=flow.Checkpointing(tmp_path), restore=7)


def test_the_last_micro_batch_of_a_job_without_a_directory_cannot_be_restored() -> None:
    with pytest.raises(ConfigurationError, match=r"restore='latest' needs checkpoint=Checkpointing\(\.\.\.\)"):
        source(flow.Pipeline()).collect(runner="spark", restore="latest")


def test_a_trigger_takes_at_least_a_row() -> None:
    with pytest.raises(ConfigurationError, match="at least 1, got 0"):
        flow.SparkRunner(rows_per_trigger=0)


def test_explaining_starts_no_spark() -> None:
    program = """
import sys, pyarrow as pa, dataflow as flow, operators as op
with flow.Pipeline("orders") as p:
    p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
assert "orders on Spark" in str(p.explain(runner="spark")) and "orders on threads" in str(p.explain())
assert not [name for name in sys.modules if name.startswith(("pyspark", "py4j"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("conf", [{"spark.master": "local[7]"}, {"spark.default.parallelism": "7"}], ids=str)
def test_explaining_without_a_session_counts_the_partitions_of_the_one_that_a_run_would_start(
    conf: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow.runners.spark.runner.active_session", lambda: None)
    with flow.Pipeline() as p:
        source(p).sink(op.collect(), name="out")
    assert "a streaming source of 7 partitions" in str(p.explain(flow.SparkRunner(conf=conf)))


def test_settings_of_checkpoints_that_do_not_count_are_named(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        source(p).sink(op.collect(), name="out")
    with (
        pytest.warns(IgnoredSettingWarning, match=r"is an exactly-once checkpoint.*\(every=, keep=\) is ignored"),
        pytest.raises(UnsupportedOnRunner, match="restore=7"),
    ):
        p.run("spark", checkpoint=flow.Checkpointing(tmp_path, every="1s", keep=9), restore=7)
