"""``python -m benchmarks.spark``: rounds of ours and of Spark's own, each a process, compared per CPU-second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
import duckdb

from benchmarks.jobs.bids import Bids
from benchmarks.spark.child import Figures, Task
from benchmarks.spark.engines import JOBS
from benchmarks.spark.many_keys import ManyKeys

ROOT = Path(__file__).parents[2]
WARM_UP = 200_000


@click.command()
@click.option("--jobs", default=",".join(JOBS), show_default=True, help="Which jobs.")
@click.option("--rows", default=10_000_000, show_default=True, help="Bids.")
@click.option("--rows-per-trigger", default=1_000_000, show_default=True, help="Bids a micro-batch.")
@click.option("--keyed-rows", default=6_000_000, show_default=True, help="Rows of K1, 12 micro-batches of them.")
@click.option("--engines", default="ours,on Spark's reader", show_default=True, help="Which, beside Spark's own.")
@click.option("--pairs", default=3, show_default=True, help="Rounds: each engine once a round.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where inputs are kept from run to run.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write every figure there.")
def main(
    jobs: str,
    rows: int,
    rows_per_trigger: int,
    keyed_rows: int,
    engines: str,
    pairs: int,
    folder: Path | None,
    target: Path | None,
) -> None:
    """Throughput per CPU-second on Spark of two cores, beside what Spark does itself.

    \b
    J2, J3  aggregates and windows: our operators in envelopes, and Spark's own streaming aggregation
    S1      filter, projection and a computed column to Parquet, by pipelines and by a function in mapInArrow
    K1      count and sum of millions of keys
    """
    if unknown := [job for job in jobs.split(",") if job not in JOBS]:
        raise click.UsageError(f"{unknown[0]!r} is none of {', '.join(JOBS)}")
    place = folder or Path(tempfile.gettempdir())
    found: list[Figures] = []
    for job in jobs.split(","):
        files = [_files(job, place, size) for size in (keyed_rows if job == "K1" else rows, min(rows, WARM_UP))]
        chosen = [engine for engine in JOBS[job] if engine in (*engines.split(","), "native")]
        for number in range(pairs):
            order = chosen[:: -1 if number % 2 else 1]
            with tempfile.TemporaryDirectory(prefix="barrierflow-spark-") as work:
                trigger = max(1, keyed_rows // 12) if job == "K1" else rows_per_trigger
                one = [_child(engine, job, files, trigger, Path(work)) for engine in order]
                if problem := _difference(job, chosen, files[0], Path(work)):
                    raise click.ClickException(f"{job}: {problem}")
            found += one
            click.echo(f"{job}: round {number + 1} of {pairs}: " + ", ".join(map(_told, one)))
        _compare(job, chosen, [f for f in found if f.job == job])
    if target is not None:
        target.write_text(json.dumps([asdict(f) for f in found], indent=1))


def _files(job: str, place: Path, rows: int) -> list[Path]:
    bids = Bids.below(place, rows)
    match job:
        case "J3":
            return bids.later_and_later(1)
        case "J2" | "S1":
            return bids.segments()
        case "K1":
            return ManyKeys(rows, max(1, rows // 12), place).files()
        case _:
            raise AssertionError(f"no input for {job}")


def _told(f: Figures) -> str:
    memory = f"{f.peak / 1e9:.1f} GB, checkpoint {f.checkpoint / 1e6:.0f} MB"
    return f"{f.engine}: {f.wall:.1f} s wall, {f.cpu:.1f} s CPU, {memory}"


def _compare(job: str, engines: Sequence[str], found: Sequence[Figures]) -> None:
    cpu = {engine: [f.cpu for f in found if f.engine == engine] for engine in engines}
    for engine in (engine for engine in cpu if engine != "native"):
        pairs = [native / ours for native, ours in zip(cpu["native"], cpu[engine], strict=True)]
        spread = f"{min(pairs):.2f} to {max(pairs):.2f}, {len(pairs)} pairs"
        click.echo(f"{job}: rows per CPU-second, {engine} over Spark's own: {median(pairs):.2f} ({spread})")


def _child(engine: str, job: str, files: list[list[Path]], rows_per_trigger: int, work: Path) -> Figures:
    folder = _folder(work, engine)
    folder.mkdir()
    task = Task(engine, job, *[[str(f) for f in some] for some in files], rows_per_trigger, str(folder))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark.child"],
        input=json.dumps(asdict(task)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(f"{engine} failed at {job}:\n{done.stderr[-3_000:]}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _folder(work: Path, engine: str) -> Path:
    return work / str([engine for engines in JOBS.values() for engine in engines].index(engine))


def _difference(job: str, engines: Sequence[str], files: list[Path], work: Path) -> str | None:
    """Where the answers differ. Spark's last windows never come, so of J3 those that Spark has are compared."""
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        answers = {engine: f"select * from '{_folder(work, engine) / 'answer.parquet'}'" for engine in engines}
        if job == "J3":
            cast = "auction, window_start::timestamp as window_start, n"
            answers = {engine: f"select {cast} from ({answer})" for engine, answer in answers.items()}
        expected = {"DuckDB": _by_duckdb(files), **answers} if job == "K1" else answers
        sizes = {
            engine: connection.sql(f"select count(*) from ({q})").fetchall()[0][0] for engine, q in expected.items()
        }
        for engine in list(expected)[:-1]:
            (lost,) = connection.sql(
                f"select count(*) from (({expected['native']}) except all ({expected[engine]}))"
            ).fetchall()[0]
            if lost or (job != "J3" and sizes[engine] != sizes["native"]):
                return f"of {sizes['native']} rows of Spark's {lost} are not in the {sizes[engine]} of {engine}"
    return None


def _by_duckdb(files: list[Path]) -> str:
    return f"select key, count(*) as n, sum(value)::bigint as total from '{files[0].parent}/*.parquet' group by key"


if __name__ == "__main__":
    main()
