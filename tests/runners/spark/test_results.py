"""What a run on Spark says of itself: where the time went, and where it stands meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import UnsupportedOnRunner
from dataflow.runners.spark.runner import SparkRunner

NUMBERS = pa.table({"x": range(400)})
RETAINED = "spark.sql.streaming.numRecentProgressUpdates"


@pytest.fixture
def forgetful(spark: Any) -> Iterator[Any]:
    """The session, which keeps no more than two reports of Spark's."""
    spark.conf.set(RETAINED, "3")
    yield spark
    spark.conf.unset(RETAINED)


def test_no_micro_batch_is_missing_from_the_times_and_progress_is_true_meanwhile(
    forgetful: Any, tmp_path: Path
) -> None:
    started, job, seen = threading.Event(), None, []

    def look(batch: pa.RecordBatch) -> None:
        assert started.wait(60)
        seen.append(job.progress().rows_out)

    with flow.Pipeline("numbers") as p:
        source = p.source(op.from_arrow(NUMBERS, batch_rows=20), name="numbers")
        source.sink(op.upsert_batches(look), name="looking")
        source.key_by("x").agg(op.count().alias("n"), emit="final", name="counts").sink(op.collect(), name="out")
    checkpoint = flow.Checkpointing(tmp_path)
    job = p.start(SparkRunner(forgetful, rows_per_trigger=100), parallelism=1, max_key_groups=2, checkpoint=checkpoint)
    started.set()
    result = job.wait()
    batches = result.micro_batches
    assert batches is not None
    assert [batch.number + 1 for batch in batches.batches] == [record.checkpoint for record in result.checkpoints]
    assert len(batches.batches) >= 4
    assert all(0 < batch.phases["addBatch"] <= batch.duration for batch in batches.batches)
    assert sum(batches.phases.values()) == batches.duration < result.duration
    ((pieces, written),) = [(state.pieces, state.written) for state in batches.states]
    assert 4 <= pieces <= written
    assert written >= 2 * 2 * len(batches.batches)  # an index and the small state of each of two tasks
    assert result.to_dict()["micro_batches"]["phases_us"]["addBatch"] == batches.phases["addBatch"]
    assert f"  {batches.headline}\n" in str(result)
    assert "addBatch" in str(result)
    assert "addBatch" in result._repr_html_()
    busy = {task.task: task.meter.busy for task in result.metrics}
    assert busy["counts"] > result.operator("counts").busy > 0
    assert seen == sorted(seen)
    assert seen[-1] == 400
    with pytest.raises(UnsupportedOnRunner, match=r"job\.on_checkpoint: not on the spark runner: .* LocalRunner"):
        job.on_checkpoint(lambda state: True)
    over = job.progress()
    assert (over.state, over.rows_in, over.done) == (result.state, 400, 1.0)


def test_the_net_rows_of_keys_reach_a_function_on_spark(spark: Any, tmp_path: Path) -> None:
    shown: dict[int, int] = {}

    def show(rows: pa.RecordBatch, gone: pa.RecordBatch) -> None:
        shown.update(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))
        for key in gone["k"].to_pylist():
            del shown[key]

    table = pa.table({"k": [x % 7 for x in range(60)]})
    with flow.Pipeline("net") as p:
        rows = p.source(op.from_arrow(table, batch_rows=10), name="rows")
        counts = rows.key_by("k").agg(n=op.count(), emit="changes")
        counts.filter(flow.col("n") < 9).sink(op.upsert_batches(show, keys="k"), name="shown")
    p.run(SparkRunner(spark, rows_per_trigger=30), parallelism=1, checkpoint=flow.Checkpointing(tmp_path))
    assert shown == {4: 8, 5: 8, 6: 8}


def test_a_run_on_spark_prunes_the_same_rows_and_says_how(spark: Any, tmp_path: Path) -> None:
    pq.write_table(NUMBERS, tmp_path / "x.parquet", row_group_size=100)
    with flow.Pipeline("numbers") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"), name="numbers").filter(flow.col("x") >= 200)
        rows.sink(op.collect(), name="out")
    local, result = p.run(), p.run(SparkRunner(spark), parallelism=1)
    assert result.table("out") == local.table("out")
    assert result.rows_pruned == local.rows_pruned == {"numbers": 200}
    tuning = result.tuning
    assert {choice.kind for choice in tuning} == {"batch", "splits", "pruning"}
    assert tuning.of("splits", "numbers")[0].values["row_groups"] == 4
