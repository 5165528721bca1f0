"""A job on Spark that kills an executor of its own: ``python child_of_losses.py DIRECTORY MASTER``.

The executor is killed in the stages for which the directory has a file, once in each: ``lose-source``, ``lose-first``,
``lose-second``, while a batch of rows is there in a task of this stage. With a file ``batch`` the job is a batch.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.session import session_for
from tests.runners.spark.child import LANES, clicks, settings

STAGES = ("source", "first", "second")


def losing(directory: Path, stage: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that returns its rows; it first kills the executor that it runs in, if it is the first to be asked."""

    def lose(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            (directory / f"lose-{stage}").unlink()
        except FileNotFoundError:
            return batch
        pid = os.getpid()
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        (directory / f"lost-{stage}").touch()
        os.kill(pid, signal.SIGKILL)
        threading.Event().wait(30)  # the worker is killed with it, or its socket is closed
        return batch

    return lose


def pipeline(directory: Path) -> flow.Pipeline:
    """The job whose output is below ``directory``, with a stage of source tasks and two of keyed tasks."""

    def through(stage: str, stream: flow.Stream) -> flow.Stream:
        return stream.map_batches(losing(directory, stage), schema=stream.schema, name=stage)

    with flow.Pipeline("losses") as p:
        rows = p.source(op.from_arrow(clicks(), splits=4, batch_rows=1_000), name="clicks")
        timed = through("source", rows.with_watermark("ts", delay="3s"))
        timed.filter(col("value") > 90).sink(op.write_parquet(directory / "high"), name="high")
        counts = timed.key_by("user").window(op.tumbling("10s"))
        counted = through("first", counts.agg(op.count().alias("n"), col("value").sum().alias("total"), name="counts"))
        counted.sink(op.write_parquet(directory / "counts"), name="counts-out")
        wide = counted.key_by("n").window(op.tumbling("1min")).agg(op.count().alias("users"), name="wide")
        through("second", wide).sink(op.write_parquet(directory / "wide"), name="wide-out")
    return p


def main(directory: Path, master: str) -> None:
    runner = flow.SparkRunner(session_for(None, settings(directory, master)), rows_per_trigger=12_000)
    checkpoint = flow.Checkpointing(directory / "job")
    options = {"execution": "batch"} if (directory / "batch").exists() else {"max_key_groups": 4}
    result = pipeline(directory).run(runner, parallelism=LANES, checkpoint=checkpoint, **options)
    print(f"done after {len(result.checkpoints)} checkpoints and {result.restarts} restarts", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
