"""What became of a job on Spark, whoever asks, how, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, JobCancelled, UnsupportedOnRunner
from dataflow.runners.spark.runner import SparkRunner
from dataflow.runtime.task.progress import JobState
from tests.runners.spark.events_of_runs import outcomes, rows_of_kind


def numbers(*, failing: bool = False) -> flow.Pipeline:
    def fail(batch: pa.RecordBatch) -> NoReturn:
        raise ZeroDivisionError("on purpose")

    with flow.Pipeline("numbers") as p:
        stream = p.source(op.from_arrow(pa.table({"x": range(10)})), name="numbers")
        stream = stream.map_batches(fail, schema=stream.schema, name="failing") if failing else stream
        stream.sink(op.collect(), name="out")
    return p


def test_a_job_that_failed_while_nobody_looked_says_so_to_everybody(spark: Any) -> None:
    with numbers(failing=True).start(SparkRunner(spark), parallelism=1) as job:
        while job.state is JobState.RUNNING:
            job.progress()
        for ask in (job.stop, job.wait, job.stop):
            with pytest.raises(ZeroDivisionError, match="on purpose"):
                ask()
        assert job.state is JobState.FAILED
        (error,) = rows_of_kind(job.events(), "error")
        assert (error["task"], error["operator"], error["detail"]) == ("numbers[0]", "failing", "ZeroDivisionError")
        assert outcomes(job.events()) == [(1, "triggered", 1), (1, "failed", 1)]


def test_a_job_that_came_to_its_end_while_nobody_looked_is_finished(spark: Any, tmp_path: Path) -> None:
    checkpoint = flow.Checkpointing(tmp_path)
    with numbers().start(SparkRunner(spark), parallelism=1, checkpoint=checkpoint) as job:
        job.query.awaitTermination()
        while job.state is JobState.RUNNING:
            job.progress()
        assert job.state is JobState.FINISHED
        assert job.stop() is job.wait()
        assert job.wait().table("out").num_rows == 10
        again = numbers().run(SparkRunner(spark), checkpoint=checkpoint)
        assert again.state is JobState.FINISHED


def test_a_job_that_was_cancelled_has_no_result(spark: Any) -> None:
    with numbers().start(SparkRunner(spark), parallelism=1) as job:
        job.cancel()
        for ask in (job.stop, job.wait):
            with pytest.raises(JobCancelled):
                ask()
        before = job.events()
        assert rows_of_kind(before, "state")[-1]["detail"] == "cancelled"
        assert (rows_of_kind(before, "failed"), len(job.events(since=before))) == ([], 0)


def test_what_is_refused_is_refused_before_a_session_is_looked_for(tmp_path: Path) -> None:
    with flow.Pipeline("twice") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.write_batches(print), name="out")
    with pytest.raises(UnsupportedOnRunner, match="sink 'out'"):
        p.run(SparkRunner(session="none"))
    for execution in ("streaming", "batch"):
        with pytest.raises(ConfigurationError, match="expected a file outside of the checkpoint directory"):
            numbers().run(
                SparkRunner(session="none"),
                checkpoint=flow.Checkpointing(tmp_path),
                record=tmp_path / "events.arrow",
                execution=execution,
            )
