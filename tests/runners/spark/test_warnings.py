"""Warnings of a run on Spark are given as those of a local run: once, by the thread that waits."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import (
    BarrierflowWarning,
    CleanupFailedWarning,
    EndlessInputWarning,
    InputMissingWarning,
    JobFailedWarning,
    RowsTakenBackWarning,
    SourceError,
)
from dataflow.runners.spark.runner import SparkRunner
from dataflow.runtime.task.progress import JobState

NUMBERS = pa.table({"x": range(100)})


class Telling(Source):
    """Numbers, and a notice for each reader that is opened."""

    schema = NUMBERS.schema
    inner = op.from_arrow(NUMBERS, batch_rows=10)

    def splits(self) -> Sequence[Split]:
        return self.inner.splits()

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        context.notify(InputMissingWarning, "the other half is gone")
        return self.inner.reader(split, offset, context)


class Unreadable(Telling):
    """Numbers that are gone."""

    def splits(self) -> Sequence[Split]:
        raise OSError("gone")


class BadlyClosed(flow.Operator):
    """Passes rows on and cannot be closed."""

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot()

    def close(self) -> None:
        raise OSError("still open")


class BadWriter(BadlyClosed):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None: ...


class BadSink(flow.Sink):
    idempotent = True

    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return BadWriter(context)


class Pausing(op.write_parquet("anywhere").__class__):  # type: ignore[misc, name-defined]
    """Commits, then waits for ``go_on``."""

    committed, go_on = threading.Event(), threading.Event()

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        super().commit(checkpoint, handles)
        self.committed.set()
        assert self.go_on.wait(60)


def numbers(sink: flow.Sink, source: Source | None = None) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        p.source(source or op.from_arrow(NUMBERS, batch_rows=10), name="numbers").sink(sink, name="out")
    return p


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ZeroDivisionError("on purpose")


def badly_closed(then: Callable[[flow.Stream], flow.Stream] = lambda stream: stream) -> flow.Pipeline:
    with flow.Pipeline("closing") as p:
        rows = p.source(op.from_arrow(NUMBERS, batch_rows=10), name="numbers").apply(BadlyClosed, name="first")
        keyed = rows.key_by("x").apply(BadlyClosed, name="keyed")
        then(keyed).sink(BadSink(), name="out")
    return p


def caught(run: Callable[[], Any]) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", BarrierflowWarning)
        return run(), [warning for warning in found if issubclass(warning.category, BarrierflowWarning)]


@pytest.mark.soak
def test_a_notice_of_a_source_reaches_the_user_as_it_does_locally(spark: Any) -> None:
    runner = SparkRunner(spark, rows_per_trigger=50)
    result, found = caught(lambda: numbers(op.collect(), Telling()).run(runner, parallelism=1))
    assert [(warning.category, warning.filename) for warning in found] == [(InputMissingWarning, __file__)]
    assert str(found[0].message) == "3 times: the other half is gone"
    assert [str(warning) for warning in result.warnings] == [str(found[0].message)]
    _, local = caught(lambda: numbers(op.collect(), Telling()).run())
    assert [(warning.category, str(warning.message)) for warning in local] == [
        (InputMissingWarning, "the other half is gone")
    ]


def test_an_operator_that_cannot_be_closed_is_warned_of_wherever_it_is(spark: Any) -> None:
    result, found = caught(lambda: badly_closed().run(SparkRunner(spark), parallelism=1, max_key_groups=2))
    assert [warning.category for warning in found] == [CleanupFailedWarning]
    assert str(found[0].message).startswith("4 times: closing ")
    assert "closing numbers[0] raised OSError('still open')" in str(found[0].message)
    assert all(f"operator '{name}'" in str(found[0].message) for name in ("first", "keyed", "out"))
    assert result.state is JobState.FINISHED


@pytest.mark.soak
def test_a_failing_job_whose_operators_cannot_be_closed_raises_what_it_failed_of(spark: Any) -> None:
    broken = badly_closed(lambda stream: stream.map_batches(failing, schema=stream.schema))
    with pytest.raises(ZeroDivisionError) as raised, pytest.warns(CleanupFailedWarning, match="closing out"):
        broken.run(SparkRunner(spark), parallelism=1, max_key_groups=2)
    assert [note for note in raised.value.__notes__ if "CleanupFailedWarning: closing keyed[" in note]


@pytest.mark.soak
def test_a_failed_job_that_is_left_without_wait_is_warned_of(spark: Any) -> None:
    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(NUMBERS), name="numbers")
        rows.map_batches(failing, schema=rows.schema).sink(op.collect(), name="out")

    def leave() -> JobState:
        with p.start(SparkRunner(spark), parallelism=1) as job:
            while job.state is JobState.RUNNING:
                job.progress()
        return job.state

    state, found = caught(leave)
    assert (state, [warning.category for warning in found]) == (JobState.FAILED, [JobFailedWarning])
    assert "job 'failing' failed, but its block ended without job.wait()" in str(found[0].message)
    assert "ZeroDivisionError('on purpose')" in str(found[0].message)


def test_rows_of_a_micro_batch_that_spark_had_not_counted_are_taken_back_with_a_warning(
    spark: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"parallelism": 1, "checkpoint": flow.Checkpointing(tmp_path / "job")}
    pipeline, runner = numbers(op.write_parquet(tmp_path / "out")), SparkRunner(spark, rows_per_trigger=60)
    pipeline.run(runner, **options)
    newest = max((tmp_path / "job" / "spark" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (newest, newest.with_name(f".{newest.name}.crc")):  # as if it had died before it counted this one
        file.unlink()
    result, found = caught(lambda: pipeline.run(runner, **options))
    assert [warning.category for warning in found] == [RowsTakenBackWarning]
    number = int(newest.name) + 1
    assert str(found[0].message) == (
        f"micro-batch {number} was cut short, so 40 rows in 1 file that sink 'out' had committed later were deleted; "
        "this run produces them again"
    )
    assert sorted(op.read_committed(tmp_path / "out")["x"].to_pylist()) == NUMBERS["x"].to_pylist()
    assert [str(warning) for warning in result.warnings] == [str(found[0].message)]


def test_results_that_never_come_are_warned_of_before_the_query_starts(spark: Any) -> None:
    with flow.Pipeline("endless") as p:
        rows = p.source(op.generate({"x": op.sequence()}), name="numbers").lookup(Unreadable(), on="x", name="names")
        rows.window(op.global_window()).agg(n=op.count(), name="all").sink(op.collect(), name="out")
    with (
        pytest.warns(EndlessInputWarning, match="the input of 'all' has no end, so its results never come"),
        pytest.raises(SourceError, match="'names': lookup cannot read its table"),
    ):
        p.start(SparkRunner(spark))


@pytest.mark.soak
def test_a_job_that_is_stopped_as_it_commits_leaves_nothing_to_take_back(spark: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"parallelism": 1, "checkpoint": flow.Checkpointing(tmp_path / "job")}
    sink, runner = op.write_parquet(tmp_path / "out"), SparkRunner(spark, rows_per_trigger=20)
    sink.__class__ = Pausing
    pipeline = numbers(sink)
    with pipeline.start(runner, **options) as job:
        assert Pausing.committed.wait(60)
        threading.Timer(0.5, Pausing.go_on.set).start()
        assert job.stop().state is JobState.STOPPED
    assert op.read_committed(tmp_path / "out").num_rows == 20
    _, found = caught(lambda: pipeline.run(runner, **options))
    assert found == []
    assert sorted(op.read_committed(tmp_path / "out")["x"].to_pylist()) == NUMBERS["x"].to_pylist()


def test_a_job_that_is_stopped_within_a_micro_batch_leaves_nothing_staged(spark: Any, tmp_path: Path) -> None:
    staging, released = tmp_path / "out" / "_staging", tmp_path / "released"

    def held(batch: pa.RecordBatch) -> pa.RecordBatch:
        while batch["x"][0].as_py() >= 50 and not released.exists():
            time.sleep(0.01)
        return batch

    with flow.Pipeline("one of two") as p:  # one source task stages its file, the other one is held
        rows = p.source(op.from_arrow(NUMBERS, splits=2), name="numbers")
        rows.map_batches(held, schema=rows.schema).sink(op.write_parquet(tmp_path / "out"), name="out")
    checkpoint = flow.Checkpointing(tmp_path / "job")
    with p.start(SparkRunner(spark), parallelism=2, checkpoint=checkpoint) as job:
        waiting, deadline = threading.Event(), time.monotonic() + 60
        while not list(staging.glob("*.staged")) and time.monotonic() < deadline:
            waiting.wait(0.01)
        assert list(staging.glob("*.staged"))
        assert job.stop().state is JobState.STOPPED
    assert list(staging.glob("*.staged")) == []
    assert list((tmp_path / "job").rglob("*.settling")) == []
    released.touch()  # for a worker that Spark did not kill


@pytest.mark.soak
def test_an_error_after_rows_were_taken_back_says_that_they_were(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError("no room")

    options: dict[str, Any] = {"parallelism": 1, "checkpoint": flow.Checkpointing(tmp_path / "job")}
    pipeline, runner = numbers(op.write_parquet(tmp_path / "out")), SparkRunner(spark, rows_per_trigger=60)
    pipeline.run(runner, **options)
    newest = max((tmp_path / "job" / "spark" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (newest, newest.with_name(f".{newest.name}.crc")):
        file.unlink()
    monkeypatch.setattr("dataflow.runners.spark.runner._query", fail)
    with pytest.raises(OSError, match="no room") as raised:
        pipeline.run(runner, **options)
    assert ["RowsTakenBackWarning: micro-batch" in note for note in raised.value.__notes__] == [True]
