"""``python -m benchmarks.spark.batches``: batches of ours beside Spark SQL written by hand, compared in CPU-seconds.

Both run in one warm session, in turn, and write their answers to Parquet. The answers are compared.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import duckdb

from benchmarks.jobs.bids import Bids
from benchmarks.spark.child import spark_of_two_cores
from benchmarks.spark.usage import cpu_seconds

__all__ = ["HAND_WRITTEN", "Figures", "compared"]


@dataclass(frozen=True)
class Figures:
    """One run: seconds of the clock, and of all processors of driver, JVM and workers together."""

    job: str
    engine: str
    wall: float
    cpu: float


# --- Spark SQL, as a user would write it


def _checksum(bids: Any) -> Any:
    return bids.where("auction % 123 = 0").selectExpr("count(*) as n", "sum(price * 0.908D) as total")


def _totals(bids: Any) -> Any:
    from pyspark.sql import functions as f

    return bids.groupBy("auction").agg(
        f.count("*").alias("n"), f.sum("price").alias("total"), f.max("price").alias("top")
    )


def _windows(bids: Any) -> Any:
    from pyspark.sql import functions as f

    counts = bids.groupBy(f.window("event_time", "10 seconds"), "auction").count()
    return counts.select("auction", f.col("window.start").alias("window_start"), f.col("count").alias("n"))


def _counts(bids: Any) -> Any:
    return bids.groupBy("channel").count().withColumnRenamed("count", "n")


def _copy(bids: Any) -> Any:
    return bids


HAND_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    "J1": _checksum,
    "J2": _totals,
    "J3": _windows,
    "J4": _counts,
    "copy": _copy,
}
"""By job, the DataFrame of the answer."""


def _by_hand(session: Any, job: str, files: Sequence[Path], out: Path) -> None:
    HAND_WRITTEN[job](session.read.parquet(*map(str, files))).write.parquet(str(out))


def _ours(session: Any, job: str, files: Sequence[Path], out: Path) -> None:
    import dataflow as flow
    import operators as op
    from benchmarks.jobs.ours import JOBS

    with flow.Pipeline(job) as p:
        if job == "copy":
            rows = p.source(op.read_parquet(files), name="bids")
        else:
            rows = JOBS[job].stream(p, files, tuned=False)
        rows.sink(op.write_parquet(out), name="answer")
    p.run(flow.SparkRunner(session), execution="batch")


ENGINES: Mapping[str, Callable[[Any, str, Sequence[Path], Path], None]] = {"ours": _ours, "Spark SQL": _by_hand}


def compared(session: Any, job: str, files: Sequence[Path], rounds: int, work: Path) -> list[Figures]:
    """Run both engines ``rounds`` times in turn, after one run of each to warm up; compare their answers.

    Raises: ClickException if the answers differ.
    """
    found: list[Figures] = []
    for number in range(rounds + 1):
        for engine in list(ENGINES)[:: -1 if number % 2 else 1]:
            out = work / f"{job}-{engine}"
            shutil.rmtree(out, ignore_errors=True)
            before, started = cpu_seconds(), time.perf_counter()
            ENGINES[engine](session, job, files, out)
            figures = Figures(job, engine, time.perf_counter() - started, cpu_seconds() - before)
            if number:
                found.append(figures)
        if number == 0 and (problem := _difference(job, work)):
            raise click.ClickException(f"{job}: {problem}")
    return found


def _difference(job: str, work: Path) -> str | None:
    """Return how the answers differ; sums of floats in nine digits."""
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        exact = {"J1": "n, printf('%.9g', total) as total", "J3": "auction, window_start::timestamp as start, n"}
        rows = {engine: f"select {exact.get(job, '*')} from '{work}/{job}-{engine}/**/*.parquet'" for engine in ENGINES}
        one, other = rows.values()
        for some, others in ((one, other), (other, one)):
            (lost,) = connection.sql(f"select count(*) from (({some}) except all ({others}))").fetchall()[0]
            if lost:
                return f"{lost} rows of one answer are not in the other"
    return None


@click.command()
@click.option("--jobs", default=",".join(HAND_WRITTEN), show_default=True, help="Which jobs.")
@click.option("--rows", default=50_000_000, show_default=True, help="Bids.")
@click.option("--rounds", default=5, show_default=True, help="Rounds: each engine once a round.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where inputs are kept from run to run.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write every figure there.")
def main(jobs: str, rows: int, rounds: int, folder: Path | None, target: Path | None) -> None:
    """CPU-seconds of batches on Spark of two cores, ours over Spark SQL written by hand.

    \b
    J1    filter, project, checksum
    J2    count, sum and max by auction
    J3    count by auction in windows of 10 s
    J4    count by channel, a string
    copy  all rows to Parquet
    """
    if unknown := [job for job in jobs.split(",") if job not in HAND_WRITTEN]:
        raise click.UsageError(f"{unknown[0]!r} is none of {', '.join(HAND_WRITTEN)}")
    bids = Bids.below(folder or Path(tempfile.gettempdir()), rows)
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="barrierflow-spark-") as work, spark_of_two_cores(work) as session:
        for job in jobs.split(","):
            files = bids.later_and_later(1) if job == "J3" else bids.segments()
            own = compared(session, job, files, rounds, Path(work))
            found += own
            click.echo(_told(job, own))
    if target is not None:
        target.write_text(json.dumps([asdict(f) for f in found], indent=1))


def _told(job: str, found: Sequence[Figures]) -> str:
    cpu = {engine: [f.cpu for f in found if f.engine == engine] for engine in ENGINES}
    wall = {engine: median([f.wall for f in found if f.engine == engine]) for engine in ENGINES}
    pairs = [ours / by_hand for ours, by_hand in zip(*cpu.values(), strict=True)]
    each = ", ".join(f"{engine} {median(cpu[engine]):.1f} s CPU ({wall[engine]:.1f} s wall)" for engine in ENGINES)
    return f"{job}: {median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f}, {len(pairs)} pairs): {each}"


if __name__ == "__main__":
    main()
