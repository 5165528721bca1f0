"""A batch on Spark in a process of its own, to be killed: ``python child_of_batches.py DIRECTORY MASTER``.

It prints a line when its session has started. Source tasks and the tasks after the first shuffle take about a second.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.session import session_for
from tests.runners.spark.child import LANES, clicks, settings


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, after a moment."""
    threading.Event().wait(0.03)
    return batch


def pipeline(directory: Path) -> flow.Pipeline:
    """The job whose output is below ``directory``."""
    schema = clicks().schema
    with flow.Pipeline("clicks") as p:
        rows = p.source(op.from_arrow(clicks(), splits=4, batch_rows=1_000), name="clicks")
        rows = rows.map_batches(slowly, schema=schema, name="slowly")
        rows.filter(col("value") > 90).sink(op.write_parquet(directory / "high"), name="high")
        moved = rows.with_watermark("ts").rebalance().map_batches(slowly, schema=schema, name="moved")
        timed = moved.key_by("user").window(op.tumbling("10s"))
        counts = timed.agg(op.count().alias("n"), col("value").sum().alias("total"), name="counts")
        counts.sink(op.write_parquet(directory / "counts"), name="counts-out")
        wide = counts.key_by("n").window(op.tumbling("1min")).agg(op.count().alias("users"), name="wide")
        wide.sink(op.write_parquet(directory / "wide"), name="wide-out")
    return p


def main(directory: Path, master: str) -> None:
    runner = flow.SparkRunner(session_for(None, settings(directory, master, partitions=3)))
    print("begins", flush=True)
    checkpoint = flow.Checkpointing(directory / "job")
    result = pipeline(directory).run(runner, execution="batch", parallelism=LANES, checkpoint=checkpoint)
    print(f"done: {result.rows_in}, {[str(warning) for warning in result.warnings]}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
