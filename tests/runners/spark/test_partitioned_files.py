"""Files in partition folders, written by a job on Spark that fails once and is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

ROWS = pa.table({"k": [None if x % 7 == 0 else f"a/{x % 3}" for x in range(100)], "x": range(100)})


def run(spark: Any, folder: Path, *, failing: bool) -> None:
    def seen(batch: pa.RecordBatch) -> None:
        if failing and max(batch["x"].to_pylist()) >= 50:
            raise LookupError("no room")

    with flow.Pipeline("folders") as p:
        source = p.source(op.from_arrow(ROWS, batch_rows=10), name="rows")
        source.sink(op.write_parquet(folder / "out", partition_by="k"), name="out")
        source.sink(op.upsert_batches(seen), name="seen")
    runner = flow.SparkRunner(spark, rows_per_trigger=50)
    p.run(runner, parallelism=1, checkpoint=flow.Checkpointing(folder / "job"))


def test_rows_in_folders_are_there_once_after_a_failure(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no room"):
        run(spark, tmp_path, failing=True)
    run(spark, tmp_path, failing=False)
    assert op.read_committed(tmp_path / "out").sort_by("x").to_pylist() == ROWS.to_pylist()
    assert {file.parent.name for file in (tmp_path / "out").rglob("*.parquet")} == {
        "k=__HIVE_DEFAULT_PARTITION__",
        "k=a%2F0",
        "k=a%2F1",
        "k=a%2F2",
    }
