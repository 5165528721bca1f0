"""One measurement in a process of its own: a warm-up, then the job once, on a Spark of two cores.

Reads a ``Task`` as JSON, prints ``Figures`` as JSON. CPU seconds are those of the driver, the JVM and all workers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.spark.engines import JOBS, Order
from benchmarks.spark.usage import cpu_seconds, watched

__all__ = ["Figures", "Task", "spark_of_two_cores"]

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_of_two_cores(folder: str | Path) -> Iterator[Any]:
    """A session of its own, with ``SETTINGS``, whose files are in ``folder``."""
    from dataflow.runners.spark.session import session_for

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = session_for(None, {**SETTINGS, "spark.local.dir": str(folder)})
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


@dataclass(frozen=True)
class Task:
    """What a child is to do; ``folder`` is an empty directory of its own."""

    engine: str
    job: str
    files: list[str]
    warm_up: list[str]
    rows_per_trigger: int
    folder: str


@dataclass(frozen=True)
class Figures:
    """Seconds and bytes; ``rows`` is the size of the answer, which lies in ``folder/answer.parquet``."""

    engine: str
    job: str
    wall: float
    cpu: float
    rows: int
    peak: int
    checkpoint: int


def run(task: Task) -> Figures:
    """Warm up, measure, leave the answer."""
    engine, folder = JOBS[task.job][task.engine], Path(task.folder)
    order = Order(task.job, task.files, task.rows_per_trigger, folder / "run")
    with spark_of_two_cores(folder) as session:
        engine(session, Order(task.job, task.warm_up, task.rows_per_trigger, folder / "warm-up"))
        with watched() as peak:
            before, started = cpu_seconds(), time.perf_counter()
            answer = engine(session, order)
            wall, cpu = time.perf_counter() - started, cpu_seconds() - before
        table = answer()
        pq.write_table(table, folder / "answer.parquet")
    kept = sum(file.stat().st_size for file in order.checkpoint.rglob("*") if file.is_file())
    return Figures(task.engine, task.job, wall, cpu, table.num_rows, peak.size, kept)


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
