"""Transient failures of Spark: a stream restarts by itself, and its rows, files and counts are those of one run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator
from dataflow.errors import DirectoryInUse, NewSparkAppWarning, SparkFailed, StreamRestartedWarning
from dataflow.runners.spark.driver import Driver
from tests.agreement.data import rows_of
from tests.runners.spark.events_of_runs import check_events, outcomes, rows_of_kind
from tests.seeds import some_by_default

ROWS = pa.table({"k": ["a", "b", "a", None] * 50, "x": range(200)})
NOT_STARTED = "Python worker failed to connect back."
pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.NewSparkAppWarning")


class Frames:
    """The function of a sink, which keeps the rows of each micro-batch; ``fails(number)``: Spark fails in the call."""

    def __init__(self, fails: Callable[[int], bool] = lambda number: False, text: str = NOT_STARTED) -> None:
        self.fails = fails
        self.text = text
        self.rows: dict[int, pa.Table] = {}

    def __call__(self, frame: Any, batch: flow.SparkBatch) -> None:
        self.rows[batch.id] = frame.toArrow()
        if self.fails(batch.id):
            raise Py4JError(self.text)


class Dying(Operator):
    """Passes rows on; the process exits at a row with ``x`` = 150, as often as files can be made in a directory."""

    def __init__(self, context: Any, *, deaths: Path, times: int) -> None:
        self.deaths = deaths
        self.times = times

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        died = len(list(self.deaths.iterdir()))
        if died < self.times and 150 in batch["x"].to_pylist():
            (self.deaths / str(died)).touch()
            os._exit(9)
        out.emit(batch)


def pipeline(
    out: Path, frames: Frames, dies: Callable[[Any], Operator] | None = None, *, keyed: bool = False
) -> flow.Pipeline:
    with flow.Pipeline("restarted") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=20), name="rows")
        if dies is not None:
            before = rows.key_by("k") if keyed else rows
            rows = before.apply(dies, schema=rows.schema, name="dying")
        totals = rows.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final", name="totals")
        totals.sink(op.write_parquet(out), name="files")
        totals.sink(op.collect(), name="totals out")
        rows.sink(op.collect(), name="all")
        totals.sink(op.foreach_batch(frames), name="frames")
    return p


def run(spark: Any, p: flow.Pipeline, directory: Path | None = None, **options: Any) -> flow.RunResult:
    checkpoint = None if directory is None else flow.Checkpointing(directory)
    runner = flow.SparkRunner(spark, rows_per_trigger=80)
    return p.run(runner, parallelism=1, max_key_groups=2, checkpoint=checkpoint, **options)


def check(result: flow.RunResult, out: Path, frames: Frames, restarts: int) -> None:
    """Each row once, and the counts of a run without failures."""
    totals = {("a", 100, sum(range(0, 200, 2))), ("b", 50, sum(range(1, 200, 4))), (None, 50, sum(range(3, 200, 4)))}
    found = [result.table("totals out"), pq.read_table(out), pa.concat_tables(frames.rows.values())]
    for table in found:
        assert {tuple(row.values()) for row in table.to_pylist()} == totals
        assert table.num_rows == 3
    assert result.table("all")["x"].to_pylist() == list(range(200))
    assert (result.rows_in, result.restarts) == ({"rows": 200}, restarts)
    assert result.rows_out == {"files": 3, "totals out": 3, "all": 200, "frames": 3}
    assert (result.operator("totals").rows_in, result.operator("totals").rows_out) == (200, 3)
    assert [record.checkpoint for record in result.checkpoints] in ([], list(range(1, len(result.checkpoints) + 1)))
    assert result.events.table["attempt"].to_pylist()[-1] == restarts + 1


def failing_once(at: int) -> Callable[[int], bool]:
    left = [at]
    return lambda number: left == [number] and left.pop() == number


@pytest.mark.parametrize(("at", "kept"), some_by_default([(2, True)], [0, 2], [True, False]))
def test_a_worker_that_does_not_connect_restarts_the_stream(spark: Any, tmp_path: Path, at: int, kept: bool) -> None:  # noqa: FBT001
    frames, file = Frames(failing_once(at)), tmp_path / "events.arrow"
    with pytest.warns(StreamRestartedWarning, match=rf"did not start in time.* after {at} micro-batches") as caught:
        result = run(spark, pipeline(tmp_path / "out", frames), tmp_path / "job" if kept else None, record=file)
    check(result, tmp_path / "out", frames, restarts=1)
    assert [type(w.message) for w in caught if w.category is not NewSparkAppWarning] == [StreamRestartedWarning]
    assert "restarts: 1" in str(result)
    assert result.to_dict()["restarts"] == 1
    before = [(1, kind, n) for n in range(1, at + 1) for kind in ("triggered", "durable", "committed")]
    restored = [(2, "restored", at)] if at else []
    failed = [*before, (1, "triggered", at + 1), (1, "failed", at + 1), *restored, (2, "triggered", at + 1)]
    assert outcomes(result.events)[: len(failed)] == failed
    check_events(result)
    assert outcomes(flow.read_events(file)) == outcomes(result.events)
    (row,) = rows_of_kind(result.events, "failed")
    assert "did not start in time" in row["detail"]


@pytest.mark.soak
def test_the_bound_is_for_one_micro_batch_and_not_for_the_stream(spark: Any, tmp_path: Path) -> None:
    failed: set[tuple[int, int]] = set()

    def twice(number: int) -> bool:
        tries = {(number, n) for n in range(2)} - failed
        failed.update(sorted(tries)[:1])
        return bool(tries)

    frames = Frames(twice)
    with pytest.warns(StreamRestartedWarning):
        result = run(spark, pipeline(tmp_path / "out", frames))
    check(result, tmp_path / "out", frames, restarts=2 * len(frames.rows))


def test_a_failure_that_does_not_pass_ends_the_stream_after_three_tries(spark: Any, tmp_path: Path) -> None:
    tried: list[int] = []

    def third(number: int) -> bool:
        tried.append(number)
        return number == 2

    frames = Frames(third)
    with (
        pytest.warns(StreamRestartedWarning),
        pytest.raises(SparkFailed, match=r"failed 3 times .* after 2 micro-batches: .*failed to connect back"),
    ):
        run(spark, pipeline(tmp_path / "out", frames), tmp_path / "job")
    assert tried == [0, 1, 2, 2, 2]
    frames.fails = lambda number: False
    result = run(spark, pipeline(tmp_path / "out", frames), tmp_path / "job")
    assert result.rows_in == {"rows": 200 - 2 * 80}
    assert {row["n"] for row in pq.read_table(tmp_path / "out").to_pylist()} == {50, 100}


def test_words_of_a_users_error_restart_nothing(spark: Any, tmp_path: Path) -> None:
    calls: list[int] = []

    def broken(frame: Any, batch: flow.SparkBatch) -> None:
        calls.append(batch.id)
        raise ValueError(NOT_STARTED)

    with flow.Pipeline("user") as p:
        p.source(op.from_arrow(ROWS), name="rows").sink(op.foreach_batch(broken), name="out")
    with pytest.raises(ValueError, match="connect back"):
        run(spark, p)
    assert calls == [0]


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_worker_that_dies_restarts_the_stream(spark: Any, tmp_path: Path, keyed: bool) -> None:  # noqa: FBT001
    (tmp_path / "deaths").mkdir()
    frames = Frames()

    def dies(context: Any) -> Operator:
        return Dying(context, deaths=tmp_path / "deaths", times=2)

    with pytest.warns(StreamRestartedWarning, match="a Python worker of Spark's died"):
        result = run(spark, pipeline(tmp_path / "out", frames, dies, keyed=keyed), tmp_path / "job")
    assert sorted(result.table("all")["x"].to_pylist()) == list(range(200))
    assert rows_of(pq.read_table(tmp_path / "out")) == rows_of(result.table("totals out"))
    assert result.rows_out == {"files": 3, "totals out": 3, "all": 200, "frames": 3}
    assert (result.rows_in, result.restarts) == ({"rows": 200}, 2)


def test_a_micro_batch_that_was_committed_and_not_counted_is_taken_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import PySparkException

    batch, fails = Driver._batch, failing_once(1)

    def uncounted(self: Driver, frame: Any, number: int) -> None:
        batch(self, frame, number)
        if fails(number):
            raise PySparkException(f"ExecutorLostFailure: {NOT_STARTED}")

    monkeypatch.setattr(Driver, "_batch", uncounted)
    frames = Frames()
    with pytest.warns(StreamRestartedWarning, match="after 1 micro-batches"):
        result = run(spark, pipeline(tmp_path / "out", frames), tmp_path / "job")
    check(result, tmp_path / "out", frames, restarts=1)
    assert outcomes(result.events)[4:8] == [
        (1, "durable", 2),
        (1, "committed", 2),
        (2, "restored", 1),
        (2, "triggered", 2),
    ]


def test_a_run_that_was_replaced_calls_no_function(spark: Any, tmp_path: Path) -> None:
    """Another run takes the directory while workers compute a micro-batch, whose rows would go to a database."""
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in" / "rows.parquet")
    fence = tmp_path / "job" / "FENCE"

    def take_over(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        fence.write_text(json.dumps({**json.loads(fence.read_text()), "run": "another"}))
        yield batch

    frames = Frames()
    with flow.Pipeline("replaced") as p:
        rows = p.source(op.spark_table(ROWS.schema), name="rows")
        rows.map_batches(take_over, schema=rows.schema).sink(op.foreach_batch(frames), name="out")
    stream = spark.readStream.schema("k string, x bigint").parquet(str(tmp_path / "in"))
    runner = flow.SparkRunner(spark, sources={"rows": stream})
    with pytest.raises(DirectoryInUse, match="taken over by process"):
        p.run(runner, checkpoint=flow.Checkpointing(tmp_path / "job"))
    assert frames.rows == {}
