"""Batches in a session of Spark Connect, in a process of its own: ``python child_of_connect.py DIRECTORY``.

It prints a line of JSON. The server is one that the session starts in this process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, JobCancelled
from tests.runners.spark.child import LANES, OUTPUTS
from tests.runners.spark.child_of_batches import pipeline


def ids() -> flow.Pipeline:
    """A source of Spark's, whose rows pass through a Python worker to an aggregate."""
    with flow.Pipeline("ids") as p:
        rows = p.source(op.spark_table(pa.schema({"id": pa.int64()})), name="ids")
        same = rows.map_batches(lambda batch: batch, schema=rows.schema, name="same")
        counts = same.key_by("id").agg(n=op.count(), emit="final", name="counts")
        counts.sink(op.collect(), name="out")
    return p


def even(seen: list[Any]) -> flow.Pipeline:
    """A source and a sink of Spark's."""
    with flow.Pipeline("even") as p:
        rows = p.source(op.spark_table(pa.schema({"id": pa.int64()})), name="ids").filter(
            col("id") % 2 == 0, name="even"
        )
        rows.sink(op.foreach_batch(lambda frame, batch: seen.append([frame.count(), batch.id])), name="out")
    return p


def failing() -> flow.Pipeline:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("no such shop")

    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="rows")
        rows.map_batches(fail, schema=rows.schema, name="failing").sink(op.collect(), name="out")
    return p


def waiting(directory: Path) -> flow.Pipeline:
    def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        (directory / "waits").touch()
        threading.Event().wait(600)
        return batch

    with flow.Pipeline("waiting") as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="rows")
        rows.map_batches(wait, schema=rows.schema, name="waiting").sink(op.collect(), name="out")
    return p


def error_of(call: Any) -> list[str]:
    try:
        call()
    except (KeyError, ConfigurationError, JobCancelled) as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
    return []


def cancelled(runner: flow.SparkRunner, directory: Path) -> list[str]:
    with waiting(directory).start(runner, parallelism=1, execution="batch") as job:
        while not (directory / "waits").exists():
            threading.Event().wait(0.02)
        job.cancel()
        return error_of(job.wait)


def main(directory: Path) -> None:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[2]").getOrCreate()
    runner = flow.SparkRunner(session)
    checkpoint = flow.Checkpointing(directory / "job")
    whole = pipeline(directory).run(runner, execution="batch", parallelism=LANES, checkpoint=checkpoint)
    given = flow.SparkRunner(session, sources={"ids": session.range(100)})
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a new directory is a new app
        written = even(seen).run(given, execution="batch").rows_out
    counted = ids().run(given, execution="batch")
    found = {
        "rows": {name: whole.rows_out[f"{name}-out" if name != "high" else name] for name in OUTPUTS},
        "given": [counted.rows_in["ids"], counted.tables["out"].num_rows],
        "frame": [written, seen],
        "dataframe": runner.dataframe(pipeline(directory), "wide").count(),
        "stream": error_of(lambda: ids().run(given)),
        "metrics": error_of(lambda: ids().run(flow.SparkRunner(session, metrics="full"), execution="batch")),
        "user": error_of(lambda: failing().run(runner, execution="batch")),
        "cancelled": cancelled(runner, directory),
    }
    session.stop()
    print(json.dumps({**found, "stopped": error_of(lambda: failing().run(runner, execution="batch"))}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
