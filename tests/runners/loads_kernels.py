"""A fresh process that runs pipelines with kernels of many kinds; prints the kernels that a thread other than the
loading one imported."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col

ROWS = 6_000
imported: list[str] = []


class Watch:
    """Notes who imports kernels for the first time."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if ".kernels." in name and not name.endswith(".instructions"):
            imported.append(f"{name} by {threading.current_thread().name}")


def table() -> pa.Table:
    texts = [f"user {i % 50}" for i in range(ROWS)]
    return pa.table(
        {
            "text": texts,
            "code": pa.array(texts).dictionary_encode(),
            "number": range(ROWS),
            "real": [i / 7 for i in range(ROWS)],
            "money": pa.array(range(ROWS), pa.decimal128(12, 2)),
            "at": pa.array([i * 100 for i in range(ROWS)], pa.timestamp("ms")),
        }
    )


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("kernels") as p:
        source = op.from_arrow(table(), splits=2, batch_rows=ROWS // 2)
        rows = p.source(source, name="rows").with_watermark("at", delay="1s")
        hashed = rows.select("code", "text", "at", "number", "real", "money", h=col("text").hash())
        windows = hashed.key_by("code").window(op.tumbling("10s"), lateness="1s")
        windows.agg(op.count().alias("n"), col("real").variance().alias("v"), name="windows").sink(op.collect())
        rows.key_by("text", "number").agg(
            col("text").count_distinct().alias("d"), col("text").max().alias("most"),
            col("text").first("number").alias("first"), col("number").arg_max("real").alias("best"), name="texts",
        ).sink(op.collect())  # fmt: skip
        rows.key_by("number").agg(col("money").sum().alias("s"), name="sums").sink(op.collect())
    return p


if __name__ == "__main__":
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
    settings = flow.Checkpointing(flow.MemoryStore(), every="20ms")
    pipeline().run(parallelism=2, checkpoint=settings)
    assert imported, "no kernel was imported at all"
    print(*[line for line in imported if not line.endswith(" by dataflow-loading")], sep="\n", end="")
