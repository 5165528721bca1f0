"""A fresh process that runs pipelines with kernels of many kinds; prints the kernels that a thread other than the
loading one imported.

``python loads_kernels.py DIRECTORY``: stops in the middle the first time, restores that the second time.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col

ROWS = 6_000
PLAIN = 20_000
"""Rows of CSV before the first quote: more than is looked at while the pipeline is built."""
imported: list[str] = []


class Watch:
    """Notes who imports kernels for the first time."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if ".kernels." in name and not name.endswith("instructions"):
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


def text(directory: Path) -> Path:
    path = directory / "quoted.csv"
    path.write_text("n,t\n" + "1,abcdefg\n" * PLAIN + '2,"x"\n')
    return path


def pipeline(directory: Path) -> flow.Pipeline:
    with flow.Pipeline("kernels") as p:
        quoted = op.read_csv(text(directory), block_bytes=1 << 14)
        p.source(quoted, name="quoted").sink(op.collect(), name="read")
        source = op.paced(op.from_arrow(table(), splits=2, batch_rows=500), ROWS / 2)
        rows = p.source(source, name="rows").with_watermark("at", delay="1s", name="times")
        hashed = rows.select("code", "text", "at", "number", "real", "money", h=col("text").hash())
        windows = hashed.key_by("code").window(op.tumbling("10s"), lateness="1s")
        windows.agg(op.count().alias("n"), col("real").variance().alias("v"), name="windows").sink(
            op.collect(), name="w"
        )
        rows.key_by("text", "number").agg(
            col("text").count_distinct().alias("d"), col("text").max().alias("most"),
            col("text").first("number").alias("first"), col("number").arg_max("real").alias("best"), name="texts",
        ).sink(op.collect(), name="out-texts")  # fmt: skip
        rows.key_by("number").agg(col("money").sum().alias("s"), name="sums").sink(op.collect(), name="out-sums")
    return p


def main(directory: Path) -> None:
    settings = flow.Checkpointing(directory / "checkpoints", every="20ms")
    with pipeline(directory).start(parallelism=2, checkpoint=settings) as job:
        if job.restore_report is None:
            while job.progress().rows_in < PLAIN + ROWS // 2:
                pass
            job.stop()
        else:
            job.wait()


if __name__ == "__main__":
    sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
    main(Path(sys.argv[1]))
    assert imported, "no kernel was imported at all"
    print(*[line for line in imported if not line.endswith(" by dataflow-loading")], sep="\n", end="")
