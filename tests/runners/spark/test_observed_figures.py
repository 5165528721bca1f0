"""Figures for dashboards in Spark's progress: their sums are the counts of the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.errors import LateRowsWarning
from dataflow.runners.spark.metrics import merged_reports, read_report, report_envelope
from dataflow.runners.spark.task_report import TaskReport
from tests.runners.spark.events_of_runs import check_events, rows_of_kind

TIMES = pa.array([1_000_000 * (number if number % 50 else 0) for number in range(1_000)], pa.timestamp("us"))
ROWS = pa.table({"k": [number % 5 for number in range(1_000)], "ts": TIMES})


def test_the_figures_of_micro_batches_add_up_to_the_counts_of_the_result(spark: Any, tmp_path: Path) -> None:
    with flow.Pipeline("counts") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=100), name="rows").with_watermark("ts", delay="1s")
        windows = rows.key_by("k").window(op.tumbling("10s"))
        counts = windows.agg(n=op.count(), name="counts")
        counts.sink(op.write_parquet(tmp_path / "out"), name="files")
        again = counts.rebalance().key_by("n").agg(col("k").max().alias("most"), emit="updates", name="most")
        again.sink(op.collect(), name="tables")
        rows.sink(op.upsert_batches(lambda batch: None), name="driver")
    runner = flow.SparkRunner(spark, rows_per_trigger=200)
    checkpoint = flow.Checkpointing(tmp_path / "job")
    job = p.start(runner, parallelism=1, max_key_groups=3, checkpoint=checkpoint)
    with job, pytest.warns(LateRowsWarning, match="18 rows"):
        result = job.wait()
    figures = [each["observedMetrics"]["barrierflow"] for each in job.query.recentProgress]
    assert len(figures) == len(result.checkpoints)
    assert sum(each["rowsIn"] for each in figures) == sum(result.rows_in.values()) == 1_000
    assert sum(each["rowsOut"] for each in figures) == sum(result.rows_out.values())
    assert sum(each["rowsLate"] for each in figures) == result.late > 0
    assert all(each["stateBytes"] > 0 for each in figures)
    # a window of ten seconds has five keys; "most" has a key for each count
    assert figures[0]["stateRows"] > 5
    assert figures[-1]["stateRows"] == len(set(result.table("tables")["n"].to_pylist()))
    assert figures[0]["watermarkLagMs"] > 1_000_000_000_000  # the rows are of 1970
    assert figures[-1]["watermarkLagMs"] is None  # the input has ended
    check_events(result)
    assert [row["bytes"] for row in rows_of_kind(result.events, "durable")] == [None] * len(figures)
    times = rows_of_kind(job.events(), "watermark")
    assert {(row["task"], row["operator"]) for row in times} >= {("rows[0]", "with_watermark"), ("most[2]", None)}


def report(task: str, rows: int, lag: int | None) -> TaskReport:
    operators = [OperatorMetrics("sums", rows, 1, 2, busy=5)]
    handles = {"out": [{"file": task}]}
    return TaskReport(task, operators, handles, 10, [], [], rows, 1, 2, 100, lag, 3)


def test_reports_of_a_vertex_are_added_up() -> None:
    reports = [report("sums[0]", 3, 5), report("others[0]", 7, None), report("sums[1]", 4, 9)]
    others, sums = sorted(merged_reports(reports), key=lambda each: each.task)
    assert others == reports[1]
    assert (sums.read, sums.written, sums.late, sums.state, sums.lag, sums.busy) == (7, 2, 4, 200, 9, 20)
    assert sums.state_rows == 6
    assert sums.operators == [OperatorMetrics("sums", 7, 2, 4, busy=10)]
    assert sums.handles == {"out": [{"file": "sums[0]"}, {"file": "sums[1]"}]}
    assert read_report(report_envelope(sums, 3).payload).task == "sums[0]"
