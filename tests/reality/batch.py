"""A process that runs a batch: sums of windows and a function of keys over generated rows, into two folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col

ROWS = 60_000


class Numbered(flow.KeyedProcess):
    """Numbers the rows of a key in order of their time."""

    seen = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        for row in rows.to_pylist():
            self.seen.set(self.seen.get(0) + 1)
            ctx.emit({"k": key, "x": row["x"], "number": self.seen.get()})


def pipeline(out: Path) -> flow.Pipeline:
    numbers = pa.array(range(ROWS))
    at = pa.array([n * 7919 % ROWS for n in range(ROWS)], pa.timestamp("ms"))
    table = pa.table({"k": pa.array([n % 997 for n in range(ROWS)]), "at": at, "x": numbers})
    with flow.Pipeline("killed") as p:
        rows = p.source(op.from_arrow(table, batch_rows=2_000, splits=4), name="rows").with_watermark("at")
        schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "number": pa.int64()})
        numbered = rows.key_by("k").process(Numbered, schema=schema, name="numbered")
        numbered.sink(op.write_parquet(out / "numbered"), name="numbers")
        windows = rows.key_by("k").window(op.tumbling("5s")).agg(x=col("x").sum(), name="windows")
        windows.sink(op.write_parquet(out / "windows"), name="sums")
    return p


def main(work: Path) -> None:
    settings = flow.Checkpointing(work / "checkpoints")
    runner = flow.LocalRunner(spill=work)
    print("begins", flush=True)
    result = pipeline(work / "out").run(runner, execution="batch", parallelism=2, checkpoint=settings)
    print("ended", result.rows_in["rows"], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
