"""Spark's own readers in the place of sources: the rows of a local run, restarts that go on, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col

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
    folder = write(tmp_path / "in", 0, ROWS)
    there, here, job = tmp_path / "there", tmp_path / "here", flow.Checkpointing(tmp_path / "job")
    first = pipeline(folder, there).run(
        flow.SparkRunner(spark, sources={"orders": streamed(spark, folder)}), checkpoint=job
    )
    assert (first.rows_in, len(first.checkpoints)) == ({"orders": 2 * ROWS}, 2)
    write(folder, 2 * ROWS)
    again = pipeline(folder, there).run(flow.SparkRunner(sources={"orders": streamed(spark, folder)}), checkpoint=job)
    local = pipeline(folder, here).run()
    assert again.rows_in == {"orders": ROWS}
    assert [committed(there, name) for name in ("kept", "free")] == [committed(here, name) for name in ("kept", "free")]
    assert again.table("top").schema == local.table("top").schema
    assert rows(again.table("top")) == rows(local.table("top"))
