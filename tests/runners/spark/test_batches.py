"""A batch on Spark: the results of a local one, one checkpoint at its end, and errors before anything is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import (
    CheckpointMismatch,
    ConfigurationError,
    JobCancelled,
    JobTimeout,
    SparkFailed,
    UnsupportedOnRunner,
)
from dataflow.runners.run_result import RunResult
from dataflow.runners.spark.batch.attempts import mixed_attempts
from dataflow.runners.spark.batch.driver import BatchDriver, MixedAttempts
from dataflow.runners.spark.batch.start import batch_plan
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.task_report import TaskReport
from tests.agreement.data import rows_of
from tests.runners.spark.events_of_runs import check_events, outcomes, rows_of_kind

KEYS = 23
ROWS = pa.table(
    {"k": [n % KEYS for n in range(2_000)], "at": pa.array(range(2_000, 0, -1), pa.timestamp("s")), "x": range(2_000)}
)


def totals(out: Path, source: flow.Source | None = None) -> flow.Pipeline:
    """Files from source tasks, from tasks after a shuffle, from tasks after two; and rows that are collected."""
    with flow.Pipeline("totals") as p:
        rows = p.source(source or op.from_arrow(ROWS, batch_rows=90, splits=5), name="rows").with_watermark("at")
        rows.filter(col("x") % 2 == 0).sink(op.write_parquet(out / "even"), name="even")
        sums = rows.key_by("k").window(op.tumbling("100s")).agg(n=op.count(), x=col("x").first(), name="sums")
        sums.sink(op.write_parquet(out / "sums"), name="sums-out")
        wide = (
            sums.key_by("n")
            .window(op.tumbling("300s"))
            .agg(keys=op.count(), middle=col("x").quantile(0.5), name="wide")
        )
        wide.sink(op.write_parquet(out / "wide"), name="wide-out")
        rows.key_by("k").agg(last=col("x").last(), name="ends").sink(op.collect(), name="collected")
    return p


def read(out: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, pq.read_table(out / name).to_pylist())) for name in ("even", "sums", "wide")}


def on_spark(spark: Any, p: flow.Pipeline, checkpoint: Path | None = None, **options: Any) -> RunResult:
    settings = None if checkpoint is None else flow.Checkpointing(checkpoint)
    runner = flow.SparkRunner(spark)
    return p.run(runner, execution="batch", parallelism=2, max_key_groups=3, checkpoint=settings, **options)


def collected(result: RunResult) -> list[str]:
    return sorted(map(repr, result.table("collected").to_pylist()))


@pytest.mark.parametrize("adaptive", [True, False])
def test_files_and_tables_are_those_of_a_local_batch(spark: Any, tmp_path: Path, *, adaptive: bool) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        found = on_spark(spark, totals(tmp_path / "spark"), record=tmp_path / "events.arrow")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    expected = totals(tmp_path / "local").run(execution="batch")
    assert read(tmp_path / "spark") == read(tmp_path / "local")
    assert collected(found) == collected(expected)
    assert (found.rows_in, found.rows_out, found.late) == (expected.rows_in, expected.rows_out, 0)
    assert (found.state.value, found.micro_batches) == ("finished", None)
    check_events(found)
    assert outcomes(found.events) == [(1, "triggered", 1), (1, "durable", 1), (1, "committed", 1)]
    assert rows_of_kind(found.events, "durable")[0]["bytes"] > 0
    assert outcomes(flow.read_events(tmp_path / "events.arrow")) == outcomes(found.events)


def test_a_batch_that_has_finished_is_not_run_again(spark: Any, tmp_path: Path) -> None:
    first = on_spark(spark, totals(tmp_path / "out"), tmp_path / "job")
    before = read(tmp_path / "out")
    again = on_spark(spark, totals(tmp_path / "out"), tmp_path / "job")
    assert (again.rows_in, again.state.value) == ({"rows": 0}, "finished")
    assert read(tmp_path / "out") == before
    assert collected(again) == collected(first)
    assert outcomes(again.events) == [(1, "restored", 1)]
    assert again.job_id == again.events.recorded.job == first.job_id


def test_a_commit_that_fails_is_finished_by_the_next_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = totals(tmp_path / "out")

    def fail(self: Any, checkpoint: int, handles: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(type(op.write_parquet(tmp_path)), "commit", fail)
        with pytest.raises(OSError, match="the disk is full") as caught:
            on_spark(spark, p, tmp_path / "job")
    assert "its rows are staged" in str(caught.value.__notes__)
    assert list((tmp_path / "out").rglob("*.parquet")) == []
    again = on_spark(spark, totals(tmp_path / "out"), tmp_path / "job")
    assert again.rows_in == {"rows": 0}
    totals(tmp_path / "local").run(execution="batch")
    assert read(tmp_path / "out") == read(tmp_path / "local")


def test_a_function_that_fails_leaves_nothing_in_the_output(spark: Any, tmp_path: Path) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["x"] == 1_500:
            raise ValueError("fifteen hundred")
        return row

    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=90, splits=5), name="rows")
        rows.sink(op.write_parquet(tmp_path / "out"), name="out")
        rows.key_by("k").agg(x=col("x").max(), name="sums").map(fail, name="fails").sink(op.collect(), name="sums-out")
        rows.map(fail, name="maps").sink(op.collect(), name="mapped")
    with pytest.raises(ValueError, match="fifteen hundred") as caught:
        on_spark(spark, p, tmp_path / "job")
    assert "in operator 'maps' of rows[" in str(caught.value.__notes__)
    assert list((tmp_path / "out").glob("*.parquet")) == []
    assert list((tmp_path / "job").glob("chk-*")) == []


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
@pytest.mark.parametrize(("first", "second"), [("streaming", "batch"), ("batch", "streaming")])
def test_streams_and_batches_do_not_continue_each_other(spark: Any, first: str, second: str, tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "job")
    with flow.Pipeline("copy") as p:
        p.source(op.from_arrow(ROWS), name="rows").sink(op.write_parquet(tmp_path / "out"), name="out")
    p.run(flow.SparkRunner(spark), execution=first, checkpoint=settings, parallelism=1)
    with pytest.raises((CheckpointMismatch, ConfigurationError), match="use another directory"):
        p.run(flow.SparkRunner(spark), execution=second, checkpoint=settings, parallelism=1)
    for execution in ("streaming", "batch") if first == "streaming" else ("streaming",):
        with pytest.raises(CheckpointMismatch, match=r"use another .*directory"):
            p.run(execution=execution, checkpoint=settings)
    assert pq.read_table(tmp_path / "out").num_rows == ROWS.num_rows


def test_a_local_batch_is_not_repeated_on_spark(spark: Any, tmp_path: Path) -> None:
    totals(tmp_path / "out").run(execution="batch", checkpoint=flow.Checkpointing(tmp_path / "job"))
    before = read(tmp_path / "out")
    with pytest.raises(CheckpointMismatch):
        on_spark(spark, totals(tmp_path / "out"), tmp_path / "job")
    assert read(tmp_path / "out") == before


def test_without_rows_the_results_are_those_of_no_rows(spark: Any, tmp_path: Path) -> None:
    with flow.Pipeline("empty") as p:
        rows = p.source(op.from_arrow(ROWS.slice(0, 0)), name="rows")
        rows.key_by("k").agg(n=op.count(), name="sums").sink(op.collect(), name="sums-out")
        rows.agg(n=op.count(), name="all").sink(op.collect(), name="all-out")
    found, expected = on_spark(spark, p), p.run(execution="batch")
    assert found.table("sums-out").equals(expected.table("sums-out"))
    assert found.table("all-out").equals(expected.table("all-out"))


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(2)
    return batch


def stuck(out: Path) -> flow.Pipeline:
    with flow.Pipeline("stuck") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=90), name="rows").map_batches(slow, schema=ROWS.schema)
        rows.sink(op.write_parquet(out), name="out")
    return p


def test_a_batch_is_cancelled_and_has_no_result_then(spark: Any, tmp_path: Path) -> None:
    with stuck(tmp_path / "out").start(flow.SparkRunner(spark), execution="batch", parallelism=1) as job:
        assert job.state.value == "running"
        with pytest.raises(JobCancelled, match="before the end of a batch there is nothing to resume from"):
            job.stop()
        assert job.state.value == "cancelled"
    with pytest.raises(JobTimeout):
        on_spark(spark, stuck(tmp_path / "other"), timeout="1s")
    assert list(tmp_path.rglob("*.parquet")) == []


class Once(flow.Source):
    """Rows that cannot be read again."""

    schema = pa.schema({"x": pa.int64()})
    replayable = False

    def splits(self) -> list[flow.Split]:
        return [flow.Split("all")]

    def reader(self, split: flow.Split, offset: Any, context: Any) -> Any:
        raise AssertionError("never opened")


def test_what_a_batch_on_spark_cannot_read_is_refused(tmp_path: Path) -> None:
    with flow.Pipeline("once") as p:
        p.source(Once(), name="rows").sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"source 'rows': .* its rows cannot be read again"):
        p.run("spark", execution="batch")


def test_explain_names_the_shuffles(tmp_path: Path) -> None:
    table = str(totals(tmp_path).explain("spark", execution="batch", parallelism=2, max_key_groups=3))
    assert "totals on Spark, as a batch" in table
    for line in ("rows", "mapInArrow, 2 source tasks"), ("sums", "shuffle 1: mapInArrow, 3 partitions"):
        assert any(line[0] in row and line[1] in row for row in table.splitlines()), line
    assert any(row.split()[0] == "wide" and "shuffle 2" in row for row in table.splitlines())
    assert "a crash after the checkpoint only repeats the commit" in table


def test_attempts_at_a_task_that_may_differ_are_not_mixed(tmp_path: Path) -> None:
    plan = batch_plan(totals(tmp_path), 2, 3, None, "run", NativeReaders({})).plan
    (to_wide,) = [number for number, link in enumerate(plan.links) if link.target == "wide"]
    (to_sums,) = [number for number, link in enumerate(plan.links) if link.target == "sums"]
    reports = [(TaskReport("sums[0]", []), 7), (TaskReport("wide[0]", [], taken=[(to_wide, 0, 7), (to_sums, 1, 2)]), 9)]
    assert mixed_attempts(plan, reports, []) == []
    other = TaskReport("wide[1]", [], taken=[(to_wide, 0, 8), (to_sums, 1, 3)])
    assert mixed_attempts(plan, [*reports, (other, 10)], []) == ["sums[0]"]
    assert mixed_attempts(plan, reports[:1], [(to_wide, 0, 8)]) == ["sums[0]"]


def test_a_batch_whose_attempts_were_mixed_begins_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, left = BatchDriver.complete, [1]

    def mixed(self: BatchDriver, rows: Sequence[pa.Table], for_sinks: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise MixedAttempts(["sums[0]"])
        complete(self, rows, for_sinks)

    monkeypatch.setattr(BatchDriver, "complete", mixed)
    with pytest.warns(flow.errors.BatchRepeatedWarning, match=r"lost an executor .* \(sums\[0\]\)"):
        on_spark(spark, totals(tmp_path / "out"), tmp_path / "job")
    totals(tmp_path / "local").run(execution="batch")
    assert read(tmp_path / "out") == read(tmp_path / "local")
    assert list(tmp_path.rglob("*.staged")) == []
    left[0] = 99
    with pytest.raises(SparkFailed, match="when the cluster is stable"), pytest.warns(flow.errors.BatchRepeatedWarning):
        on_spark(spark, totals(tmp_path / "never"))
    assert list((tmp_path / "never").rglob("*.parquet")) == []


@pytest.mark.filterwarnings("ignore::dataflow.errors.NewSparkAppWarning")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Checkpoint block rdd_7_1 not found!", "lost an executor with rows that tasks had computed"),
        ("Python worker failed to connect back.", "did not start in time"),
    ],
)
def test_a_batch_is_computed_again_after_failures_that_pass(spark: Any, text: str, why: str) -> None:
    """Spark's own error, in the function of a sink: rows that were delivered before are not there twice."""
    left = [1]

    def fails_once(frame: Any, batch: flow.SparkBatch) -> None:
        frame.count()
        if left[0]:
            left[0] -= 1
            raise Py4JError(text)

    with flow.Pipeline("transient") as p:
        rows = p.source(op.from_arrow(ROWS), name="rows").map_batches(lambda batch: [batch])
        rows.sink(op.collect(), name="out")
        rows.sink(op.foreach_batch(fails_once), name="frames")
    with pytest.warns(flow.errors.BatchRepeatedWarning, match=why):
        found = on_spark(spark, p)
    assert found.table("out").num_rows == ROWS.num_rows
    assert found.rows_out == {"out": ROWS.num_rows, "frames": ROWS.num_rows}
    check_events(found)
    assert outcomes(found.events)[:2] == [(1, "triggered", 1), (1, "failed", 1)]
    (failed,) = rows_of_kind(found.events, "failed")
    assert why in failed["detail"]


def in_a_function(frame: Any) -> None:
    raise ValueError("indeterminate output")


def in_a_value(frame: Any) -> None:
    frame.selectExpr("raise_error('indeterminate output')").collect()


def in_a_plan(frame: Any) -> None:
    frame.selectExpr("1 AS `indeterminate output`").selectExpr("nothing")


@pytest.mark.filterwarnings("ignore::dataflow.errors.NewSparkAppWarning")
@pytest.mark.parametrize(
    ("fails", "error"),
    [(in_a_function, ValueError), (in_a_value, PySparkException), (in_a_plan, PySparkException)],
    ids=["function", "value", "plan"],
)
def test_words_of_a_users_error_are_no_failure_of_sparks(
    spark: Any, fails: Callable[[Any], None], error: type[Exception]
) -> None:
    calls: list[int] = []

    def function(frame: Any, batch: flow.SparkBatch) -> None:
        calls.append(batch.id)
        fails(frame)

    with flow.Pipeline("user") as p:
        p.source(op.from_arrow(ROWS), name="rows").sink(op.foreach_batch(function), name="out")
    with pytest.raises(error, match="indeterminate output"):
        on_spark(spark, p)
    assert calls == [0]


def test_a_stream_cut_by_top_has_other_branches(spark: Any) -> None:
    with flow.Pipeline("branches") as p:
        timed = p.source(op.from_arrow(ROWS), name="rows").with_watermark("at", name="time")
        timed.key_by("k").top(1, by="x", name="top").sink(op.collect(), name="greatest")
        timed.key_by("k").agg(n=op.count(), emit="final", name="counts").sink(op.collect(), name="numbers")
        timed.filter(col("x") > 2, name="large").sink(op.collect(), name="some")
    assert "time/rows" in str(p.explain(flow.SparkRunner(spark), execution="batch"))
    found, expected = on_spark(spark, p), p.run(execution="batch")
    for name in ("greatest", "numbers", "some"):
        assert rows_of(found.table(name)) == rows_of(expected.table(name)), name
