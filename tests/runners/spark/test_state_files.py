"""Files of state: those that an attempt left that never counted as done, and those of the one that did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.session import _OURS

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
NUMBERS = pa.table({"k": [x % 7 for x in range(100)], "x": range(100)})


def nothing(batch: pa.RecordBatch) -> None:
    """Takes all."""


def fail_at_fifty(batch: pa.RecordBatch) -> None:
    if max(batch["x"].to_pylist()) >= 50:
        raise LookupError("no room")


def run(spark: Any, version: str, directory: Path, seen: Callable[[pa.RecordBatch], None]) -> None:
    """A life of the job, in two micro-batches, with state files of that version."""
    session = spark.newSession()
    for key, value in {FORMAT: version, CHANGELOG: "true"}.items():
        session.conf.set(key, value)
    with flow.Pipeline("sums") as p:
        source = p.source(op.from_arrow(NUMBERS, batch_rows=10), name="numbers")
        totals = source.key_by("k").agg(col("x").sum().alias("total"), emit="final", name="totals")
        totals.sink(op.write_parquet(directory / "out"), name="out")
        source.sink(op.upsert_batches(seen), name="seen")
    runner = flow.SparkRunner(session, rows_per_trigger=50)
    p.run(runner, parallelism=1, max_key_groups=2, checkpoint=flow.Checkpointing(directory / "job"))


def second(directory: Path) -> list[Path]:
    """The files of state behind the second micro-batch."""
    return [path for path in (directory / "job" / "spark" / "state").glob("**/*.changelog") if path.stem[0] == "2"]


def check(directory: Path) -> None:
    found = op.read_committed(directory / "out").sort_by("k")
    assert found["total"].to_pylist() == [sum(range(k, 100, 7)) for k in range(7)]


@pytest.mark.parametrize(
    ("begun", "later", "written"), [("2", "1", 2), pytest.param("1", "2", 1, marks=pytest.mark.soak)]
)
def test_a_job_that_began_with_ids_never_writes_a_state_file_twice_whatever_the_session_says_later(
    spark: Any, tmp_path: Path, begun: str, later: str, written: int
) -> None:
    with pytest.raises(LookupError, match="no room"):
        run(spark, begun, tmp_path, fail_at_fifty)
    left = second(tmp_path)
    run(spark, later, tmp_path, nothing)
    check(tmp_path)
    assert left
    assert len(second(tmp_path)) == written * len(left)


def test_a_session_that_is_started_gives_files_of_state_ids() -> None:
    assert _OURS[FORMAT] == "2"
