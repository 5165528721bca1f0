"""The same pipeline, the same rows: Spark against the local engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.runner import SparkRunner

ROWS = 2_000


def clicks() -> pa.Table:
    """Rows out of order by up to 6 s, with nulls, of a few users."""
    rng = np.random.default_rng(7)
    seconds = np.arange(ROWS) / 50 - rng.random(ROWS) * 6
    times = pa.array(np.floor(seconds * 1000).astype(np.int64), pa.timestamp("ms"))
    user = pa.array([f"u{n}" for n in rng.integers(0, 30, ROWS)]).dictionary_encode()
    value = pa.array(rng.integers(-9, 9, ROWS), mask=rng.random(ROWS) < 0.1)
    return pa.table({"user": user, "value": value, "ts": times})


def read(p: flow.Pipeline, **options: Any) -> flow.Stream:
    return p.source(op.from_arrow(clicks(), batch_rows=250, **options), name="clicks")


def totals(p: flow.Pipeline) -> None:
    """An aggregate that emits at the end."""
    kept = read(p, splits=2).filter(col("value").is_null() | (col("value") > -5))
    found = kept.key_by("user").agg(op.count().alias("n"), col("value").sum().alias("s"), emit="final", name="totals")
    found.select("user", "n", twice=col("s") * 2).sink(op.collect(), name="out")


def late(p: flow.Pipeline) -> None:
    """Windows, and the rows that come too late for them."""
    timed = read(p).with_watermark("ts", delay="2s")
    windows = timed.key_by("user").window(op.tumbling("5s"), lateness="1s").agg(op.count().alias("n"), name="counts")
    windows.sink(op.collect(), name="out")
    windows.side("late").sink(op.collect(), name="late")


def unread(p: flow.Pipeline) -> None:
    """Windows whose late rows are not read."""
    timed = read(p).with_watermark("ts", delay="2s")
    windows = timed.key_by("user").window(op.tumbling("5s")).agg(op.count().alias("n"), name="counts")
    windows.sink(op.collect(), name="out")


def chained(p: flow.Pipeline) -> None:
    """Windows over windows, by other keys."""
    timed = read(p).with_watermark("ts", delay="6s")
    counts = timed.key_by("user").window(op.tumbling("5s")).agg(op.count().alias("n"), name="counts")
    busiest = counts.key_by("n").window(op.tumbling("20s")).agg(op.count().alias("users"), name="busiest")
    busiest.sink(op.collect(), name="out")


def joined(p: flow.Pipeline) -> None:
    """Two sources in one aggregate, and two sinks."""
    first = read(p)
    second = p.source(op.from_arrow(clicks().slice(0, 700), batch_rows=90), name="more")
    both = first.union(second)
    both.key_by("user").agg(op.count().alias("n"), emit="final", name="counts").sink(op.collect(), name="out")
    both.filter(col("value") == 8).rebalance().sink(op.collect(), name="eights")


def failing(p: flow.Pipeline) -> None:
    """A function that cannot take some rows, which are set aside."""

    def halved(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == 3:
            raise ValueError("three")
        return {"half": None if row["value"] is None else row["value"] / 2}

    halves = read(p, splits=2).map(halved, schema=pa.schema({"half": pa.float64()}), on_error="side", name="halved")
    halves.sink(op.collect(), name="out")
    halves.side("errors").sink(op.collect(), name="wrong")


def ordered(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


SHAPED_ALIKE = [
    pytest.param(build, parallelism, marks=pytest.mark.soak, id=build.__name__)
    for build, parallelism in [(totals, 2), (late, 1), (unread, 1), (chained, 2), (joined, 2), (failing, 2)]
]
"""The default run has such as these in one query, in ``test_operators``."""


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
@pytest.mark.parametrize(("build", "parallelism"), SHAPED_ALIKE)
def test_tables_and_counters_are_those_of_the_local_engine(
    spark: Any, build: Callable[[flow.Pipeline], None], parallelism: int
) -> None:
    with flow.Pipeline(build.__name__) as p:
        build(p)
    local = p.run(parallelism=parallelism)
    there = p.run(SparkRunner(spark, rows_per_trigger=1_000), parallelism=parallelism, max_key_groups=4)
    assert {name: ordered(table) for name, table in there.tables.items()} == {
        name: ordered(table) for name, table in local.tables.items()
    }
    assert (there.rows_in, there.rows_out) == (local.rows_in, local.rows_out)
    assert (there.late, there.skipped) == (local.late, local.skipped)
    assert list(map(str, there.warnings)) == list(map(str, local.warnings))
    assert bool(there.warnings) is (build is unread)


@pytest.mark.soak  # test_partitioned_files does so with a failure in between
def test_files_are_committed_once_a_micro_batch_and_read_as_if_the_local_engine_had_written_them(
    spark: Any, tmp_path: Path
) -> None:
    with flow.Pipeline("files") as p:
        source = read(p, splits=2)
        source.filter(col("value") > 0).sink(op.write_parquet(tmp_path / "rows"), name="rows")
        source.key_by("user").agg(op.count().alias("n"), emit="updates", name="counts").sink(
            op.write_csv(tmp_path / "counts"), name="counts-out"
        )
    p.run(SparkRunner(spark, rows_per_trigger=1_000), parallelism=2, max_key_groups=4)
    positive = [row for row in clicks().to_pylist() if (row["value"] or 0) > 0]
    assert ordered(op.read_committed(tmp_path / "rows")) == sorted(map(repr, positive))
    assert len(list((tmp_path / "rows" / "_commits").glob("*.json"))) >= 2


@pytest.mark.soak  # test_user_errors has an exit and an error that cannot be pickled
def test_an_error_of_a_users_function_is_raised_as_it_was_with_the_operators_name(spark: Any) -> None:
    def wrong(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise LookupError("no such thing")

    with flow.Pipeline("wrong") as p:
        source = read(p)
        source.map_batches(wrong, schema=source.schema, name="thing").sink(op.collect(), name="out")
    with pytest.raises(LookupError, match="no such thing") as caught:
        p.run(SparkRunner(spark), parallelism=1)
    assert "in operator 'thing' of clicks[0]" in caught.value.__notes__[0]


def test_a_finished_job_is_not_run_again_and_a_changed_one_is_refused(spark: Any, tmp_path: Path) -> None:
    def job(total: str) -> flow.Pipeline:
        with flow.Pipeline("again") as p:
            counts = read(p).key_by("user").agg(op.count().alias(total), emit="final", name="counts")
            counts.sink(op.collect(), name="out")
        return p

    options: dict[str, Any] = {
        "parallelism": 1,
        "max_key_groups": 4,
        "checkpoint": flow.Checkpointing(tmp_path / "job"),
    }
    first = job("n").run(SparkRunner(spark), **options)
    second = job("n").run(SparkRunner(spark), **options)
    assert ordered(second.table("out")) == ordered(first.table("out"))
    assert second.rows_in == {"clicks": 0}
    with pytest.raises(flow.errors.CheckpointMismatch, match="counts"):
        job("m").run(SparkRunner(spark), **options)
    with pytest.raises(flow.errors.CheckpointsExist, match="another directory"):
        job("n").run(SparkRunner(spark), restore="never", **options)


def test_a_restart_refuses_a_file_that_changed_and_takes_one_that_was_copied(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with ipc.new_file(str(path), pa.schema({"x": pa.int64()})) as out:
        out.write_table(pa.table({"x": range(200_000)}))

    def run(**settings: Any) -> flow.RunResult:
        with flow.Pipeline("files") as p:
            p.source(op.read_ipc(path), name="rows").sink(op.collect(), name="out")
        checkpoint = flow.Checkpointing(tmp_path / "job", **settings)
        return p.run(SparkRunner(spark), parallelism=1, max_key_groups=4, checkpoint=checkpoint)

    run()
    os.utime(path, (1, 1))
    with pytest.raises(flow.errors.InputChanged, match="last modified"):
        run()
    assert run(input_identity="content").rows_in == {"rows": 0}
