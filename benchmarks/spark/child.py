"""One measurement in a process of its own: a warm-up, then the job once, on a Spark of two cores.

Reads a ``Task`` as JSON, prints ``Figures`` as JSON. CPU seconds are those of the driver, the JVM and all workers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ENGINES", "Figures", "Task"]

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


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
    """Seconds; ``rows`` is the size of the answer, which lies in ``folder/answer.parquet``."""

    engine: str
    job: str
    wall: float
    cpu: float
    rows: int


def run(task: Task) -> Figures:
    """Warm up, measure, leave the answer."""
    from dataflow.runners.spark.session import session_for

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = session_for(None, {**SETTINGS, "spark.local.dir": task.folder})
    session.sparkContext.setLogLevel("ERROR")
    job = ENGINES[task.engine]
    job(session, task, task.warm_up, Path(task.folder) / "warm-up")
    before, started = _cpu(), time.perf_counter()
    table = job(session, task, task.files, Path(task.folder) / "run")
    wall, cpu = time.perf_counter() - started, _cpu() - before
    pq.write_table(table, Path(task.folder) / "answer.parquet")
    session.stop()
    return Figures(task.engine, task.job, wall, cpu, table.num_rows)


def _ours(session: Any, task: Task, files: list[str], place: Path) -> pa.Table:
    import dataflow as flow
    import operators as op
    from benchmarks.jobs.ours import JOBS

    with flow.Pipeline(task.job) as p:
        JOBS[task.job].stream(p, [Path(file) for file in files]).sink(op.write_parquet(place / "out"), name="answer")
    runner = flow.SparkRunner(session, rows_per_trigger=task.rows_per_trigger)
    p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(place / "job"))
    return op.read_committed(place / "out")


def _native(session: Any, task: Task, files: list[str], place: Path) -> pa.Table:
    """Spark's own streaming aggregation, its state in RocksDB; windows with Spark's own watermark."""
    from pyspark.sql import functions as f

    folder = place / "in"
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        os.link(file, folder / f"{number:05d}.parquet")
    first = session.read.parquet(files[0])
    bids = session.readStream.schema(first.schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    if task.job == "J2":
        frame = bids.groupBy("auction").agg(
            f.count("*").alias("n"), f.sum("price").alias("total"), f.max("price").alias("top")
        )
        found: dict[Any, Any] = {}

        def keep(batch: Any, number: int) -> None:
            for row in zip(*batch.toArrow().to_pydict().values(), strict=True):
                found[row[0]] = row

        _finish(frame.writeStream.outputMode("update").foreachBatch(keep), place)
        columns = list(zip(*found.values(), strict=True))
        return pa.table(dict(zip(("auction", "n", "total", "top"), map(pa.array, columns), strict=True)))
    timed = bids.withColumn("event_time", f.col("event_time").cast("timestamp")).withWatermark(
        "event_time", "3 seconds"
    )
    frame = timed.groupBy(f.window("event_time", "10 seconds"), "auction").count()
    rows = frame.select("auction", f.col("window.start").alias("window_start"), f.col("count").alias("n"))
    _finish(rows.writeStream.outputMode("append").format("parquet").option("path", str(place / "out")), place)
    return pa.table(session.read.parquet(str(place / "out")).toArrow())


def _finish(writer: Any, place: Path) -> None:
    writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


ENGINES: dict[str, Callable[[Any, Task, list[str], Path], pa.Table]] = {"ours": _ours, "native": _native}


def _cpu() -> float:
    """CPU seconds of this process and everything below it, so far."""
    total, found = 0, [os.getpid()]
    for pid in found:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
