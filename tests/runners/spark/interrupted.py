"""A job on Spark that is interrupted from outside: ``python interrupted.py DIRECTORY``.

It prints the last number of every batch that a sink gets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op

ROWS = 4_000


def pipeline(directory: Path, told: Callable[[pa.RecordBatch], None]) -> flow.Pipeline:
    """Numbers, a few thousand a second, written below ``directory``."""
    with flow.Pipeline("interrupted") as p:
        numbers = op.paced(op.from_arrow(pa.table({"n": range(ROWS)}), batch_rows=250), 2_000)
        source = p.source(numbers, name="numbers")
        source.rebalance().sink(op.write_parquet(directory / "out"), name="out")
        source.sink(op.upsert_batches(told), name="told")
    return p


def options(directory: Path) -> dict[str, Any]:
    return {"parallelism": 1, "checkpoint": flow.Checkpointing(directory / "job")}


def tell(batch: pa.RecordBatch) -> None:
    print(batch["n"][-1].as_py(), flush=True)


def main(directory: Path) -> None:
    conf = {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    pipeline(directory, tell).run(flow.SparkRunner(rows_per_trigger=500, conf=conf), **options(directory))
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
