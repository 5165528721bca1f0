"""A job on Spark that watches a directory, with executors in processes of their own: ``python watching.py DIRECTORY``.

Behind the shuffle every subtask says in which executor it is, and waits until somebody lets it ``go``. The job stops
when there is a file ``stop``.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op

LANES = 2


def appears(path: Path) -> None:
    """Wait for a file."""
    while not path.exists():
        threading.Event().wait(0.02)


def executor() -> int:
    """The process id of the JVM that this Python worker works for."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")[2].split()[1])


class Noted:
    """Notes down which rows were read, as often as they are."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with (self.directory / "read").open("a") as file:
            file.write(f"{batch['x'][0]}\n")
        return batch


class Held:
    """Waits behind the shuffle."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        (self.directory / f"executor-{executor()}").touch()
        appears(self.directory / "go")
        return batch


def main(directory: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
        "spark.sql.shuffle.partitions": "4",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
    }
    with flow.Pipeline("watching") as p:
        source = p.source(op.watch(directory / "in", op.read_csv, every="1us", splits=6), name="in")
        noted = source.map_batches(Noted(directory), schema=source.schema, name="noted").rebalance()
        held = noted.map_batches(Held(directory), schema=source.schema, parallelism=4, name="held")
        held.sink(op.write_parquet(directory / "out"), name="out")
    checkpoint = flow.Checkpointing(directory / "job")
    with p.start(flow.SparkRunner(conf=conf), parallelism=LANES, checkpoint=checkpoint) as job:
        while job.query.isActive and not (directory / "stop").exists():
            threading.Event().wait(0.02)
        if not job.query.isActive:
            job.wait()
        job.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
