"""``op.foreach_batch`` and ``op.spark_table``: rows of a pipeline as DataFrames, in streams and in batches.

Kills of a job that writes to a database: ``pytest -m soak tests/runners/spark/test_frame_sinks.py``.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.sink import SparkBatch
from dataflow.errors import CheckpointDamaged, ConfigurationError, GraphError, NewSparkAppWarning, UnsupportedOnRunner
from dataflow.runners.spark.frame_sinks import App, app_of
from dataflow.runtime.task.notices import Notices
from tests.agreement.data import rows_of
from tests.needs import need_spark
from tests.runners.spark.child import clicks
from tests.runners.spark.child_of_databases import pipeline as windows
from tests.runners.spark.test_kills import survive
from tests.seeds import in_soak

ROWS = pa.table({"k": ["a", "b", "a", None] * 50, "x": range(200), "u": pa.array([7] * 200, pa.uint8())})
pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.NewSparkAppWarning")


class Kept:
    """A function that keeps what it was called with; ``broken``: how many of its calls fail after they have read."""

    def __init__(self, broken: int = 0) -> None:
        self.calls: list[tuple[SparkBatch, pa.Table]] = []
        self.broken = broken

    def __call__(self, frame: Any, batch: SparkBatch) -> None:
        self.calls.append((batch, frame.toArrow()))
        if len(self.calls) <= self.broken:
            raise OSError("the database is away")

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables([table for _, table in self.calls])


def pipeline(kept: Kept, raw: Kept | None = None, out: Path | None = None) -> flow.Pipeline:
    with flow.Pipeline("frames") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=20), name="rows")
        if raw is not None:
            rows.filter(col("x") % 2 == 0).sink(op.foreach_batch(raw), name="raw")
        totals = rows.key_by("k").agg(n=op.count(), u=col("u").max(), emit="final", name="totals")
        totals.sink(op.foreach_batch(kept), name="totals out")
        if out is not None:
            totals.sink(op.write_parquet(out), name="files")
    return p


def expected(tmp_path: Path) -> pa.Table:
    with flow.Pipeline("expected") as p:
        rows = p.source(op.from_arrow(ROWS))
        totals = rows.key_by("k").agg(n=op.count(), u=col("u").max(), emit="final")
        totals.sink(op.collect(), name="out")
    return p.run().table("out")


@pytest.mark.parametrize("execution", ["batch", "streaming"])
def test_the_function_gets_the_rows_as_a_dataframe(spark: Any, tmp_path: Path, execution: Any) -> None:
    kept, raw = Kept(), Kept()
    result = pipeline(kept, raw, tmp_path / "out").run(flow.SparkRunner(spark), execution=execution)
    assert rows_of(kept.rows) == rows_of(expected(tmp_path))
    assert sorted(raw.rows["x"].to_pylist()) == list(range(0, 200, 2))
    assert rows_of(pq.read_table(tmp_path / "out")) == rows_of(expected(tmp_path))
    assert result.rows_out == {"raw": 100, "totals out": 3, "files": 3}
    assert kept.calls[0][1].schema.field("u").type == pa.int16()  # Spark's type for it
    for calls, sink in ((kept.calls, "totals out"), (raw.calls, "raw")):
        assert [batch.id for batch, _ in calls] == list(range(len(calls)))
        (app,) = {batch.app for batch, _ in calls}
        job, _, name = app.partition("/")
        assert (str(uuid.UUID(job)), name) == (job, sink)


@pytest.mark.parametrize("execution", ["batch", "streaming"])
def test_a_call_that_failed_is_repeated_with_the_same_number_and_app(
    spark: Any, tmp_path: Path, execution: Any
) -> None:
    kept = Kept(broken=1)
    p, runner = pipeline(kept, out=tmp_path / "out"), flow.SparkRunner(spark, rows_per_trigger=40)
    checkpoint = flow.Checkpointing(tmp_path / "job")
    with pytest.raises(OSError, match="the database is away") as caught:
        p.run(runner, execution=execution, checkpoint=checkpoint, parallelism=1)
    assert "it is called again with the same rows and the same number" in "".join(caught.value.__notes__)
    p.run(runner, execution=execution, checkpoint=checkpoint, parallelism=1)
    (first, rows), (again, repeated), *_ = kept.calls
    assert (again, rows_of(repeated)) == (first, rows_of(rows))
    assert [batch.id for batch, _ in kept.calls[1:]] == list(range(len(kept.calls) - 1))
    after = [table for _, table in kept.calls[1:]]
    assert rows_of(pa.concat_tables(after)) == rows_of(expected(tmp_path))
    done = len(kept.calls)
    p.run(runner, execution=execution, checkpoint=checkpoint, parallelism=1)
    assert execution == "streaming" or len(kept.calls) == done  # a batch that is committed is not computed again


@pytest.mark.filterwarnings("default::dataflow.errors.NewSparkAppWarning")
@pytest.mark.parametrize("execution", ["batch", "streaming"])
def test_a_new_directory_is_a_new_app_and_says_so(spark: Any, tmp_path: Path, execution: Any) -> None:
    kept = Kept()
    for name in ("one", "two"):
        checkpoint = flow.Checkpointing(tmp_path / name)
        with pytest.warns(NewSparkAppWarning, match="'totals out' get a new batch.app, "):
            pipeline(kept).run(flow.SparkRunner(spark), execution=execution, checkpoint=checkpoint)
    assert len({batch.app for batch, _ in kept.calls}) == 2


@pytest.mark.filterwarnings("default::dataflow.errors.NewSparkAppWarning")
def test_a_copied_directory_is_a_new_app_and_says_so(tmp_path: Path) -> None:
    def found(name: str) -> tuple[App, list[str]]:
        notices = Notices()
        app = app_of(tmp_path / name, {"frames": op.foreach_batch(lambda frame, batch: None)}, notices)
        return app, [str(warning) for warning in notices.warnings()]

    first, said = found("one")
    assert f"in {tmp_path / 'one'} is new" in said[0]
    assert found("one") == (first, [])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    second, said = found("two")
    assert second.id != first.id
    assert f"was moved or copied from {tmp_path / 'one'}: rows that an earlier job has written" in said[0]
    assert [found(name) for name in ("one", "two")] == [(first, []), (second, [])]
    (tmp_path / "two" / "app.json").write_text(json.dumps({"app": second.id}))
    with pytest.raises(CheckpointDamaged, match="missing required field `directory`"):
        found("two")


def test_no_row_of_the_sink_passes_through_the_driver(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflow.runners.spark.batch.driver import BatchDriver

    seen: list[int] = []
    complete = BatchDriver.complete

    def noting(self: BatchDriver, rows: Any, for_sinks: Any) -> None:
        seen.append(sum(table.num_rows for table in rows))
        complete(self, rows, for_sinks)

    monkeypatch.setattr(BatchDriver, "complete", noting)
    counts: list[int] = []
    with flow.Pipeline("many") as p:
        rows = p.source(op.from_arrow(ROWS), name="rows").map_batches(lambda batch: [batch])
        rows.sink(op.foreach_batch(lambda frame, batch: counts.append(frame.count())), name="out")
    result = p.run(flow.SparkRunner(spark), execution="batch", parallelism=1)
    assert (counts, result.rows_out) == ([200], {"out": 200})
    assert seen == [1]  # the report of the one task


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_other_runners_refuse_both_before_anything_starts(runner: str) -> None:
    kept = Kept()
    with pytest.raises(
        UnsupportedOnRunner, match=r"sink 'totals out', foreach_batch\(Kept\): .* on the spark runner only"
    ):
        pipeline(kept).run(runner)
    with flow.Pipeline("tables") as p:
        p.source(op.spark_table(pa.schema({"x": pa.int64()})), name="rows").sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"source 'rows', spark_table\(x\): .* on the spark runner only"):
        p.run(runner)
    assert not kept.calls


def test_what_cannot_be_a_dataframe_or_a_function_is_refused(spark: Any) -> None:
    async def later(frame: Any, batch: Any) -> None: ...

    for wrong in (3, later):
        with pytest.raises(ConfigurationError, match=r"called as function\(frame, batch\), got .*<lambda>\(frame\)"):
            op.foreach_batch(lambda frame: None)  # type: ignore[arg-type, misc]
        with pytest.raises(ConfigurationError, match="foreach_batch: expected a plain function"):
            op.foreach_batch(wrong)  # type: ignore[arg-type]
    with flow.Pipeline("types") as p:
        rows = p.source(op.from_arrow(pa.table({"x": pa.array([1], pa.uint64())})), name="rows")
        rows.sink(op.foreach_batch(Kept()), name="out")
    for execution in ("batch", "streaming"):
        with pytest.raises(UnsupportedOnRunner, match=r"sink 'out': column 'x': .*Spark has no type"):
            p.run(flow.SparkRunner(spark), execution=execution)
    counts = flow.Pipeline("updates").source(op.from_arrow(ROWS)).key_by("k").agg(n=op.count(), emit="updates")
    with pytest.raises(GraphError, match="foreach_batch: the rows are updates"):
        counts.sink(op.foreach_batch(Kept()), name="out")


def test_a_table_that_exists_on_spark_only(spark: Any) -> None:
    with flow.Pipeline("tables") as p:
        rows = p.source(op.spark_table(pa.schema({"k": pa.string(), "x": pa.int32()})), name="rows")
        rows.key_by("k").agg(x=col("x").sum(), emit="final").sink(op.collect(), name="out")
    frame = spark.createDataFrame([("a", 1), ("a", 2), ("b", 5)], "k string, x bigint")
    found = p.run(flow.SparkRunner(spark, sources={"rows": frame}), execution="batch").table("out")
    assert rows_of(found) == rows_of(pa.table({"k": ["a", "b"], "x": [3, 5]}))
    for execution in ("batch", "streaming"):
        with pytest.raises(ConfigurationError, match=r"expected a DataFrame with its rows, found none: give one"):
            p.run(flow.SparkRunner(spark), execution=execution)
    with pytest.raises(TypeError, match=r"takes a pyarrow\.Schema, got dict"):
        op.spark_table({"x": pa.int64()})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", in_soak(*range(6)))
def test_a_database_has_each_window_once_after_two_kills(seed: int, tmp_path: Path) -> None:
    need_spark()
    work = tmp_path / "work"
    assert len(survive(work, "local[2]", kills=2, seed=seed, child="child_of_databases.py")) == 2
    found = pq.read_table(work / "counts.parquet")
    expected = windows(op.from_arrow(clicks()), op.collect()).run().table("out")
    times = pa.timestamp("us")
    found, expected = (t.set_column(1, "window_start", t["window_start"].cast(times)) for t in (found, expected))
    assert rows_of(found) == rows_of(expected)
