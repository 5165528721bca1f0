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
    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return Refusing()


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
        job(op.write_batches(raising(error))).run(SparkRunner(spark), parallelism=1)
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
    first = job(op.write_parquet(tmp_path / "out"), op.write_batches(waiting)).start(runner, **options)
    assert begun.wait(60)
    threading.Timer(0.3, go_on.set).start()
    first.cancel()
    with pytest.raises(flow.errors.JobCancelled):
        first.wait()
    job(op.write_parquet(tmp_path / "out"), op.write_batches(lambda batch: None)).run(runner, **options)
    assert sorted(op.read_committed(tmp_path / "out")["x"].to_pylist()) == NUMBERS["x"].to_pylist()


def test_a_job_that_runs_out_of_time_says_how_far_it_came(spark: Any) -> None:
    with pytest.raises(flow.errors.JobTimeout, match=r"\b0% done"):
        job(op.write_batches(lambda batch: None)).run(SparkRunner(spark), parallelism=1, timeout="1us")
