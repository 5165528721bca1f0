"""A job on a reader of Spark's in a process of its own, to be killed: ``python child_of_readers.py DIRECTORY MASTER``.

Files of numbers go through a filter and a projection into two Parquet sinks, one of them behind a rebalance.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col

FILES = 8
ROWS = 20_000
OUTPUTS = ("even", "rest")


def written(directory: Path) -> Path:
    """The same rows for everybody, below ``directory``."""
    folder = directory / "in"
    if not folder.exists():
        unfinished = directory / "unfinished"
        unfinished.mkdir(exist_ok=True)
        for number in range(FILES):
            rows = range(number * ROWS, (number + 1) * ROWS)
            pq.write_table(pa.table({"n": rows, "text": map(str, rows)}), unfinished / f"{number}.parquet")
        unfinished.rename(folder)
    return folder


def pipeline(directory: Path) -> flow.Pipeline:
    """The job whose output is below ``directory``."""
    with flow.Pipeline("numbers") as p:
        numbers = p.source(op.read_parquet(written(directory)), name="numbers")
        even = numbers.filter(col("n") % 2 == 0).with_columns(half=col("n") // 2)
        even.sink(op.write_parquet(directory / "even"), name="even")
        numbers.filter(col("n") % 2 != 0).rebalance().sink(op.write_parquet(directory / "rest"), name="rest")
    return p


def main(directory: Path, master: str) -> None:
    from dataflow.runners.spark.session import session_for

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.files.maxPartitionBytes": "100k",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    session = session_for(None, conf)
    frame = session.readStream.schema("n bigint, text string").option("maxFilesPerTrigger", 1)
    runner = flow.SparkRunner(session, sources={"numbers": frame.parquet(str(written(directory)))})
    result = pipeline(directory).run(runner, checkpoint=flow.Checkpointing(directory / "job"))
    print(f"done after {len(result.checkpoints)} micro-batches", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
