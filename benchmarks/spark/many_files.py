"""``python -m benchmarks.spark.many_files``: what files cost that have been read, or wait, on Spark of two cores.

Jobs over few and many Parquet files of the same rows read the same number of rows in each micro-batch. Compared are the
CPU-seconds of driver, JVM and workers from one micro-batch to the next, and those before the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark.child import spark_of_two_cores
from benchmarks.spark.usage import cpu_seconds

__all__ = ["Figures", "measured"]

_ROWS = 50
"""Rows of each file."""


@dataclass(frozen=True)
class Figures:
    """CPU seconds before the first micro-batch and of each later one; rows of the answer."""

    files: int
    start: float
    cpu: Sequence[float]
    rows: int


def _write(folder: Path, files: int) -> None:
    folder.mkdir()
    for number in range(files):
        at = np.arange(number * _ROWS, (number + 1) * _ROWS)
        times = pa.array(at * 1_000_000, pa.timestamp("us"))
        table = pa.table({"key": at % 10, "at": times, "first": at % _ROWS == 0})
        pq.write_table(table, folder / f"part-{number:06}.parquet")


def measured(session: Any, files: int, micro_batches: int, folder: Path) -> Figures:
    """Count the rows of windows in about so many micro-batches. Raises: ClickException if the counts are wrong."""
    import dataflow as flow
    import operators as op
    from dataflow import col

    _write(folder / "in", files)
    marks, begun = list[float](), cpu_seconds()
    with flow.Pipeline("many files") as p:
        rows = p.source(op.read_parquet(folder / "in"), name="files")
        timed = rows.with_watermark("at", delay="1s")
        windows = timed.key_by("key").window(op.tumbling("1000s"))
        windows.agg(n=op.count(), name="counts").sink(op.write_parquet(folder / "out"), name="out")
        timed.filter(col("first"), name="first").sink(op.upsert_batches(_mark(marks)), name="marks")
    runner = flow.SparkRunner(session, rows_per_trigger=max(1, files * _ROWS // micro_batches))
    checkpoint = flow.Checkpointing(folder / "job")
    p.run(runner, parallelism=2, max_key_groups=4, checkpoint=checkpoint)
    answer = op.read_committed(folder / "out")
    if sum(answer["n"].to_pylist()) != files * _ROWS:
        raise click.ClickException(f"expected {files * _ROWS} rows in windows, found {sum(answer['n'].to_pylist())}")
    return Figures(files, marks[0] - begun, [after - before for before, after in pairwise(marks)], answer.num_rows)


def _mark(marks: list[float]) -> Any:
    """Return a function that notes the CPU time once a micro-batch: it may be called for several batches of one."""
    last = [0.0]

    def mark(batch: pa.RecordBatch) -> None:
        now = cpu_seconds()
        if now - last[0] > 0.1:
            marks.append(now)
        last[0] = now

    return mark


@click.command()
@click.option("--few", default=100, show_default=True, help="Files of the first job.")
@click.option("--many", default=10_000, show_default=True, help="Files of the second job.")
@click.option("--micro-batches", default=10, show_default=True, help="Micro-batches of each job.")
@click.option("--rounds", default=3, show_default=True, help="Each job once a round.")
def main(few: int, many: int, micro_batches: int, rounds: int) -> None:
    """Compare micro-batches of jobs over FEW and MANY files."""
    with tempfile.TemporaryDirectory(prefix="barrierflow-files-") as work, spark_of_two_cores(work) as session:
        for number in range(rounds):
            for files in (few, many) if number % 2 == 0 else (many, few):
                with tempfile.TemporaryDirectory(dir=work) as folder:
                    found = measured(session, files, micro_batches, Path(folder))
                half = len(found.cpu) // 2
                click.echo(
                    f"round {number + 1}: {files:,} files: {found.start:.2f} CPU-s before the first micro-batch, then "
                    f"{median(found.cpu[:half]):.2f} in the first half and {median(found.cpu[half:]):.2f} in the second"
                )


if __name__ == "__main__":
    main()
