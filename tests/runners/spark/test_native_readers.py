"""Spark's own readers in the place of sources: the rows of a local run, restarts that go on, and what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, ConfigurationError, SchemaMismatch, SparkFailed, UnsupportedOnRunner
from tests.needs import need_spark
from tests.runners.spark import child_of_readers as child
from tests.runners.spark.events_of_runs import check_events, outcomes
from tests.runners.spark.test_kills import rows as rows_of
from tests.runners.spark.test_kills import survive
from tests.seeds import seeds

ROWS = 600


def orders(first: int = 0) -> pa.Table:
    """Types that Spark has none of, or others for."""
    ids = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.uint32()),
            "shop": pa.array([f"shop {n % 7}" for n in ids]).dictionary_encode(),
            "price": pa.array([None if n % 50 == 0 else n % 100 for n in ids], pa.int16()),
            "at": pa.array([n * 1_000 for n in ids], pa.timestamp("ms", "Europe/Paris")),
            "tags": pa.array([[{"tag": f"t{n % 3}", "weight": n}] for n in ids]),
        }
    )


def write(folder: Path, *firsts: int) -> Path:
    folder.mkdir(exist_ok=True)
    for first in firsts:
        pq.write_table(orders(first), folder / f"{first:06}.parquet")
    return folder


def pipeline(folder: Path, out: Path) -> flow.Pipeline:
    """Several sinks of both kinds behind one source."""
    with flow.Pipeline("orders") as p:
        read = p.source(op.read_parquet(folder), name="orders")
        kept = read.filter(col("price") > 20).with_columns(double=col("price") * 2)
        kept.sink(op.write_parquet(out / "kept"), name="kept")
        kept.filter(col("double") > 190).select("id", "shop", "at", "tags").sink(op.collect(), name="top")
        read.filter(col("price").is_null()).sink(op.write_parquet(out / "free"), name="free")
    return p


def streamed(spark: Any, folder: Path) -> Any:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def committed(out: Path, name: str) -> list[str]:
    return rows(op.read_committed(out / name))


def test_the_rows_are_those_of_a_local_run_and_a_later_run_takes_what_is_new(spark: Any, tmp_path: Path) -> None:
    folder, file = write(tmp_path / "in", 0, ROWS), tmp_path / "events.arrow"
    there, here, job = tmp_path / "there", tmp_path / "here", flow.Checkpointing(tmp_path / "job")
    first = pipeline(folder, there).run(
        flow.SparkRunner(spark, sources={"orders": streamed(spark, folder)}), checkpoint=job, record=file
    )
    assert (first.rows_in, len(first.checkpoints)) == ({"orders": 2 * ROWS}, 2)
    write(folder, 2 * ROWS)
    again = pipeline(folder, there).run(
        flow.SparkRunner(sources={"orders": streamed(spark, folder)}), checkpoint=job, record=file
    )
    local = pipeline(folder, here).run()
    assert again.rows_in == {"orders": ROWS}
    assert again.job_id == first.job_id
    assert again.restore_report is not None
    assert (again.restore_report.checkpoint, again.restore_report.offsets) == (2, {"orders/0": {"logOffset": 1}})
    assert [committed(there, name) for name in ("kept", "free")] == [committed(here, name) for name in ("kept", "free")]
    assert again.table("top").schema == local.table("top").schema
    assert rows(again.table("top")) == rows(local.table("top"))
    for run in (first, again):
        check_events(run)
    assert again.events.recorded.job == first.events.recorded.job
    assert outcomes(again.events)[:2] == [(2, "restored", 2), (2, "triggered", 3)]
    assert outcomes(flow.read_events(file)) == [*outcomes(first.events), *outcomes(again.events)]


def on_reader(p: flow.Pipeline, spark: Any, **sources: Any) -> str:
    return str(p.explain(flow.SparkRunner(spark, sources=sources), parallelism=1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("orders") / "in", 0)


def test_it_is_told_what_spark_reads_and_which_settings_do_not_count(spark: Any, folder: Path, tmp_path: Path) -> None:
    told = on_reader(pipeline(folder, tmp_path), spark, orders=streamed(spark, folder))
    assert f"read by Spark: FileSource[{folder}]" in told
    assert "rows_per_trigger= is ignored" in told


class Counting(flow.Operator):
    """Remembers."""


def keyed(read: flow.Stream) -> flow.Stream:
    return read.key_by("shop").agg(op.count().alias("n"), emit="final", name="counts")


def timed(read: flow.Stream) -> flow.Stream:
    return read.with_watermark("at", max_drift="1s", name="clock")


def clocked(read: flow.Stream) -> flow.Stream:
    return read.with_processing_time("seen", name="clock")


def remembering(read: flow.Stream) -> flow.Stream:
    return read.apply(lambda context: Counting(), schema=read.schema, name="own")


def whole(read: flow.Stream) -> flow.Stream:
    return read.key_by("shop").window(op.global_window()).agg(n=op.count(), name="all")


def ranked(read: flow.Stream) -> flow.Stream:
    return read.key_by("shop").top(2, by="id", emit="final", name="first")


def joined(read: flow.Stream) -> flow.Stream:
    return read.join(read.select("id"), on="id", how="left", emit="final", name="pairs")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (keyed, "operator 'counts'.*end of the input.*give emit='changes'.*use SparkRunner without sources="),
        (timed, "operator 'clock'.*max_drift stops the tasks of a source"),
        (clocked, "operator 'clock'.*sets time by the clock"),
        (whole, r"operator 'all'.*its results come at the end of the input.*give window\(early=...\) a trigger"),
        (ranked, "operator 'first'.*its results come at the end of the input"),
        (joined, "operator 'pairs'.*rows without a counterpart come at the end of the input"),
        (remembering, r"operator 'own'.*set stateless = True in its class and pass the class to apply"),
    ],
)
def test_what_needs_an_end_or_splits_is_refused(spark: Any, folder: Path, build: Any, said: str) -> None:
    with flow.Pipeline("refused") as p:
        build(p.source(op.read_parquet(folder), name="orders")).sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=said):
        on_reader(p, spark, orders=streamed(spark, folder))


def test_what_cannot_stand_for_a_source_is_refused(spark: Any, folder: Path, tmp_path: Path) -> None:
    p, frame = pipeline(folder, tmp_path), streamed(spark, folder)
    with pytest.raises(ConfigurationError, match=r"no source 'order' \(did you mean 'orders'\?\)"):
        on_reader(p, spark, order=frame)
    with pytest.raises(ConfigurationError, match=r"spark.readStream instead of spark.read"):
        on_reader(p, spark, orders=spark.read.parquet(str(folder)))
    with pytest.raises(
        ConfigurationError, match=r"expected a streaming DataFrame of Spark.s, found .* pyarrow\.lib\.Table"
    ):
        on_reader(p, spark, orders=orders())
    with pytest.raises(UnsupportedOnRunner, match=r"source 'orders'.*column 'shop' is missing.*it needs id: uint32"):
        on_reader(p, spark, orders=frame.drop("shop"))
    with pytest.raises(ConfigurationError, match=r"to another session: create them with session.readStream"):
        p.run(flow.SparkRunner(spark.newSession(), sources={"orders": frame}))


def test_either_all_sources_are_read_by_spark_or_none(spark: Any, folder: Path) -> None:
    with flow.Pipeline("two") as p:
        for name in ("orders", "more"):
            p.source(op.read_parquet(folder), name=name).sink(op.collect(), name=f"{name}-out")
    frame = streamed(spark, folder)
    with pytest.raises(UnsupportedOnRunner, match=r"source 'more'.*a DataFrame for 'more', too, or for no source"):
        on_reader(p, spark, orders=frame)
    found = p.run(flow.SparkRunner(spark, sources={"orders": frame, "more": frame}))
    assert [rows(found.table(f"{name}-out")) for name in ("orders", "more")] == [rows(orders())] * 2


def test_a_job_goes_on_with_the_reader_it_began_with_and_a_value_that_does_not_fit_is_named(
    spark: Any, folder: Path, tmp_path: Path
) -> None:
    p, job = pipeline(folder, tmp_path / "out"), flow.Checkpointing(tmp_path / "job")
    negative = streamed(spark, folder).selectExpr("-1 as id", "* except (id)")
    with pytest.raises(SchemaMismatch, match="source 'orders', read by Spark: column 'id' is declared as uint32"):
        p.run(flow.SparkRunner(spark, sources={"orders": negative}), checkpoint=job)
    with pytest.raises(CheckpointMismatch, match=r"sources=\) for \['orders'\], found \[\]"):
        p.run(flow.SparkRunner(spark), checkpoint=job)


def die(batch: pa.RecordBatch) -> pa.RecordBatch:
    os.kill(os.getpid(), signal.SIGKILL)
    return batch


def test_the_death_of_a_worker_is_told_with_its_operators(spark: Any, folder: Path) -> None:
    with flow.Pipeline("dying") as p:
        read = p.source(op.read_parquet(folder), name="orders")
        read.map_batches(die, schema=read.schema, name="dying").sink(op.collect(), name="out")
    with pytest.raises(SparkFailed, match=r"without an error at orders\[\d\] \(operators 'orders', 'dying'\)"):
        p.run(flow.SparkRunner(spark, sources={"orders": streamed(spark, folder)}))


def check_kills(tmp_path: Path, kills: int, seed: int, master: str) -> None:
    child.pipeline(tmp_path).run()
    work = tmp_path / f"work-{seed}"
    assert survive(work, master, kills, seed, "child_of_readers.py")
    for output in child.OUTPUTS:
        assert rows_of(work / output) == rows_of(tmp_path / output)


@pytest.mark.soak
def test_a_job_that_is_killed_on_a_reader_of_sparks_loses_and_repeats_nothing(tmp_path: Path) -> None:
    need_spark()
    check_kills(tmp_path, kills=1, seed=3, master="local[2]")


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_many_kills_on_a_reader_of_sparks_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=4, seed=seed, master="local-cluster[2,1,1024]" if seed % 2 else "local[2]")
