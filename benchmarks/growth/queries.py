"""The query: count and sum per key, by both engines, or in windows; then the number of keys and the totals, as one row.

The last step keeps the result small, so that memory is that of the state and not of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.growth.families import Shape
from benchmarks.growth.windows import QUERIES, TIME
from dataflow import col, lit

__all__ = ["by_duckdb", "by_ours", "expected"]

Answer = tuple[int, int, int]
"""The number of keys, the number of rows, and the sum of all values."""


def by_ours(shape: Shape, files: Sequence[Path], checkpoints: Path) -> Answer:
    """Run the query with aligned checkpoints every second."""
    with flow.Pipeline("growth") as p:
        rows = p.source(op.read_parquet(files, batch_rows=shape.batch_rows), name="rows")
        for number in range(shape.chain):
            rows = rows.map_batches(_same, schema=rows.schema, name=f"step {number}")
        if shape.query:
            groups = QUERIES[shape.query].build(rows.with_watermark(TIME))
            groups, keys = groups.select("key", "n", "total"), col("key").count_distinct()
        else:
            groups = rows.key_by("key").agg(
                op.count().alias("n"), col("value").sum().alias("total"), emit="final", name="keys"
            )
            groups, keys = groups.select("n", "total"), op.count()
        totals = (
            groups.with_columns(all=lit(1))
            .key_by("all")
            .agg(
                keys.alias("keys"),
                col("n").sum().alias("rows"),
                col("total").sum().alias("total"),
                emit="final",
                name="totals",
            )
        )
        totals.select("keys", "rows", "total").sink(op.collect(), name="out")
    settings = flow.Checkpointing(checkpoints, every="1s")
    return _answer(p.run(parallelism=shape.parallelism, checkpoint=settings).table("out"))


def by_duckdb(shape: Shape, files: Sequence[Path]) -> Answer:
    """Run the query in DuckDB, with as many threads."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"set threads = {shape.parallelism}")
        connection.read_parquet([str(file) for file in files]).create_view("rows")
        return _answer(
            connection.sql(
                "select count(*) as keys, sum(n)::bigint as rows, sum(total)::bigint as total from "
                "(select key, count(*) as n, sum(value) as total from rows group by key)"
            ).to_arrow_table()
        )


def expected(shape: Shape, files: Sequence[Path]) -> Answer:
    """Return the answer, computed from the rule of the input."""
    each = shape.rows // len(files)
    whole, rest = divmod(each, 1_000)
    often = QUERIES[shape.query].times if shape.query else 1
    total = len(files) * (whole * 499_500 + rest * (rest - 1) // 2)
    return min(shape.keys, each), often * shape.rows, often * total


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _answer(table: pa.Table) -> Answer:
    (row,) = table.select(["keys", "rows", "total"]).to_pylist()
    return row["keys"], row["rows"], row["total"]
