"""A job on Spark in a process of its own, to be killed: ``python child.py DIRECTORY MASTER``.

Clicks out of order by up to three seconds go into windows, and windows into wider ones; both are written to Parquet.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col

ROWS = 60_000
LANES = 2


def clicks() -> pa.Table:
    """The same rows for everybody."""
    rng = np.random.default_rng(3)
    times = np.arange(ROWS) * 20 - rng.integers(0, 3_000, ROWS)
    user = pa.array([f"u{n}" for n in rng.integers(0, 200, ROWS)])
    return pa.table({"user": user, "value": rng.integers(0, 100, ROWS), "ts": pa.array(times, pa.timestamp("ms"))})


def pipeline(directory: Path) -> flow.Pipeline:
    """The job whose output is below ``directory``."""
    with flow.Pipeline("clicks") as p:
        source = p.source(op.from_arrow(clicks(), splits=4, batch_rows=1_000), name="clicks")
        source.filter(col("value") > 90).sink(op.write_parquet(directory / "high"), name="high")
        timed = source.with_watermark("ts", delay="3s").key_by("user").window(op.tumbling("10s"))
        counts = timed.agg(op.count().alias("n"), col("value").sum().alias("total"), name="counts")
        counts.sink(op.write_parquet(directory / "counts"), name="counts-out")
        wide = counts.key_by("n").window(op.tumbling("1min")).agg(op.count().alias("users"), name="wide")
        wide.sink(op.write_parquet(directory / "wide"), name="wide-out")
    return p


OUTPUTS = ("high", "counts", "wide")


def settings(directory: Path, master: str, partitions: int = 2) -> dict[str, str]:
    """Settings of a session on ``master`` that writes nothing outside of ``directory``; the environment is set, too."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return {
        "spark.master": master,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }


def main(directory: Path, master: str) -> None:
    runner = flow.SparkRunner(rows_per_trigger=12_000, conf=settings(directory, master))
    checkpoint = flow.Checkpointing(directory / "job")
    result = pipeline(directory).run(runner, parallelism=LANES, max_key_groups=4, checkpoint=checkpoint)
    print(f"done after {len(result.checkpoints)} micro-batches", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
