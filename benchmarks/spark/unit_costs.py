"""``python -m benchmarks.spark.unit_costs``: what a micro-batch costs on Spark, by task, row, key and file.

Each cost is a difference of two jobs that differ in that number only, in CPU-seconds of driver, JVM and workers.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.spark import kept_keys, many_files
from benchmarks.spark.child import spark_of_two_cores

__all__ = ["costs"]

_LEVELS = 2
"""Shuffles of the job of ``kept_keys``: each has as many keyed tasks as there are key groups."""


def costs(session: Any, work: Path, scale: int = 1) -> dict[str, float]:
    """Return the costs by name, in CPU-seconds, and the bytes that a key takes in the job's directory.

    Args:
        session: a warm session of Spark.
        work: a directory.
        scale: divides the numbers of rows, keys and files.
    """

    def job(kept: int, hot: int, groups: int, **settings: Any) -> kept_keys.Figures:
        with TemporaryDirectory(dir=work) as folder:
            return kept_keys.measured(session, kept, hot, 5, Path(folder), groups, **settings)

    def job_over(files: int) -> many_files.Figures:
        with TemporaryDirectory(dir=work) as folder:
            return many_files.measured(session, files, 8, Path(folder))

    kept, few, many = 2_000_000 // scale, 100_000 // scale, 1_000_000 // scale
    one, tasks = job(0, 1_000, 1), job(0, 1_000, 257)
    less, more = job(0, few, 128), job(0, many, 128)
    warm, cold = job(kept, few, 128), job(kept, few, 128, state_memory=0)
    short, long = job_over(100), job_over(10_000 // scale)
    files = long.files - short.files
    return {
        "a micro-batch": median(one.cpu),
        "a keyed task": (median(tasks.cpu) - median(one.cpu)) / (_LEVELS * 256),
        "a row of a key": (median(more.cpu) - median(less.cpu)) / (many - few),
        "a kept key that is loaded": (median(cold.cpu) - median(warm.cpu)) / kept,
        "a file, at the start": (long.start - short.start) / files,
        "a file, in a micro-batch": (median(long.cpu) - median(short.cpu)) / files,
        "bytes stored of a key": (warm.stored - less.stored) / kept,
    }


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Each job once a round.")
@click.option("--scale", default=1, show_default=True, help="Divides the numbers of rows, keys and files.")
def main(rounds: int, scale: int) -> None:
    """Print each cost: the median, least and greatest of all rounds."""
    with TemporaryDirectory(prefix="barrierflow-costs-") as work, spark_of_two_cores(work) as session:
        warm_up = Path(work) / "warm-up"
        warm_up.mkdir()
        kept_keys.measured(session, 0, 1_000, 5, warm_up)
        found = [costs(session, Path(work), scale) for _ in range(rounds)]
    for name in found[0]:
        values = [each[name] for each in found]
        click.echo(f"{name}: {_told(median(values), name)}, {_told(min(values), name)} to {_told(max(values), name)}")


def _told(value: float, name: str) -> str:
    if name.startswith("bytes"):
        return f"{value:.0f}"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.2f} ms" if value >= 1e-4 else f"{value * 1e6:.2f} us"


if __name__ == "__main__":
    main()
