"""Jobs on Spark that fail, are stopped, or are given up, and what of them is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.spark.runner import SparkRunner

NUMBERS = pa.table({"x": range(100)})


class Locked(Exception):
    """Cannot be pickled, and says more than Spark's patterns bear."""

    def __init__(self) -> None:
        super().__init__("no room" * 5_000)
        self.lock = threading.Lock()


class Refusing(flow.Operator):
    """Takes every row, and fails when there are no more."""

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        pass

    def finish(self, out: flow.Out) -> None:
        raise LookupError("nowhere to put it")


class Refused(flow.Sink):
    idempotent = True

    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return Refusing()


class Counting(flow.Operator):
    """Writes at the end how many rows there were."""

    def __init__(self, context: flow.OperatorContext, path: Path) -> None:
        self.path = path
        self.rows: Any = context.restored.values["rows"] if context.restored else 0

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.rows += batch.num_rows

    def finish(self, out: flow.Out) -> None:
        with self.path.open("a") as file:
            file.write(f"{self.rows} rows\n")

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(values={"rows": self.rows})


class Counted(flow.Sink):
    idempotent = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return Counting(context, self.path)


def job(sink: flow.Sink, *more: flow.Sink) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        source = p.source(op.from_arrow(NUMBERS, batch_rows=10), name="numbers")
        for number, each in enumerate((sink, *more)):
            source.sink(each, name=f"out{number}")
    return p


def raising(error: BaseException) -> Callable[[pa.RecordBatch], None]:
    def call(batch: pa.RecordBatch) -> None:
        raise error

    return call


@pytest.mark.parametrize("error", [Locked(), SystemExit(3)], ids=["locked", "exit"])
def test_an_error_in_a_sink_of_the_driver_is_raised_as_it_is(spark: Any, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        job(op.upsert_batches(raising(error))).run(SparkRunner(spark), parallelism=1)
    assert caught.value is error


def test_an_error_of_a_sink_that_finishes_is_raised_as_it_was(spark: Any) -> None:
    with pytest.raises(LookupError, match="nowhere to put it") as caught:
        job(Refused()).run(SparkRunner(spark), parallelism=1)
    assert "in operator 'out0'" in caught.value.__notes__[0]


def test_a_job_cancelled_within_a_micro_batch_says_so_and_comes_to_the_same_end_later(
    spark: Any, tmp_path: Path
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waiting(batch: pa.RecordBatch) -> None:
        begun.set()
        assert go_on.wait(60)

    options: dict[str, Any] = {"parallelism": 1, "checkpoint": flow.Checkpointing(tmp_path / "job")}
    runner = SparkRunner(spark, rows_per_trigger=60)
    first = job(op.write_parquet(tmp_path / "out"), op.upsert_batches(waiting)).start(runner, **options)
    assert begun.wait(60)
    threading.Timer(0.3, go_on.set).start()
    first.cancel()
    with pytest.raises(flow.errors.JobCancelled):
        first.wait()
    job(op.write_parquet(tmp_path / "out"), op.upsert_batches(lambda batch: None)).run(runner, **options)
    assert sorted(op.read_committed(tmp_path / "out")["x"].to_pylist()) == NUMBERS["x"].to_pylist()


def test_a_job_that_runs_out_of_time_says_how_far_it_came(spark: Any) -> None:
    with pytest.raises(flow.errors.JobTimeout, match=r"\b0% done"):
        job(op.upsert_batches(lambda batch: None)).run(SparkRunner(spark), parallelism=1, timeout="1us")


def test_a_sink_that_writes_at_the_end_does_so_once_however_often_the_job_is_run(spark: Any, tmp_path: Path) -> None:
    for _ in range(2):
        job(Counted(tmp_path / "count")).run(
            SparkRunner(spark), parallelism=1, checkpoint=flow.Checkpointing(tmp_path / "job")
        )
    assert (tmp_path / "count").read_text() == "100 rows\n"


def test_an_operator_that_cannot_be_sent_to_workers_is_refused_by_name(spark: Any) -> None:
    lock = threading.Lock()

    def guarded(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    with flow.Pipeline("guarded") as p:
        source = p.source(op.from_arrow(NUMBERS), name="numbers")
        source.map_batches(guarded, schema=source.schema, name="guard").sink(op.collect(), name="out")
    with pytest.raises(flow.errors.UnsupportedOnRunner, match=r"operator 'guard'.*cannot pickle '_thread.lock'"):
        p.run(SparkRunner(spark), parallelism=1)
