"""``python -m benchmarks.spark``: rounds of ours and of Spark's own, each a process, compared per CPU-second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
import duckdb

from benchmarks.jobs.bids import Bids
from benchmarks.spark.child import ENGINES, Figures, Task

ROOT = Path(__file__).parents[2]


@click.command()
@click.option("--jobs", default="J2,J3", show_default=True, help="Which jobs.")
@click.option("--rows", default=10_000_000, show_default=True, help="Bids.")
@click.option("--rows-per-trigger", default=1_000_000, show_default=True, help="Bids a micro-batch.")
@click.option("--pairs", default=3, show_default=True, help="Rounds: each engine once a round.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write every figure there.")
def main(jobs: str, rows: int, rows_per_trigger: int, pairs: int, target: Path | None) -> None:
    """Throughput per CPU-second on Spark of two cores: our operators in envelopes beside Spark's own aggregation."""
    place = Path(tempfile.gettempdir())
    bids, warm_up = Bids.below(place, rows), Bids.below(place, 200_000)
    found: list[Figures] = []
    for job in jobs.split(","):
        files = [b.later_and_later(1) if job == "J3" else b.files(1) for b in (bids, warm_up)]
        for number in range(pairs):
            order = list(ENGINES)[:: -1 if number % 2 else 1]
            with tempfile.TemporaryDirectory(prefix="barrierflow-spark-") as folder:
                pair = [_child(engine, job, files, rows_per_trigger, Path(folder) / engine) for engine in order]
                if problem := _difference(job, Path(folder)):
                    raise click.ClickException(f"{job}: {problem}")
            found += pair
            walls = ", ".join(f"{f.engine} {f.wall:.1f} s wall, {f.cpu:.1f} s CPU" for f in pair)
            click.echo(f"{job}: round {number + 1} of {pairs}: {walls}")
        cpu = {engine: [f.cpu for f in found if (f.engine, f.job) == (engine, job)] for engine in ENGINES}
        ratio = median(native / ours for native, ours in zip(cpu["native"], cpu["ours"], strict=True))
        click.echo(f"{job}: rows per CPU-second, ours over Spark's own: {ratio:.2f} (median of {pairs})")
    if target is not None:
        target.write_text(json.dumps([asdict(f) for f in found], indent=1))


def _child(engine: str, job: str, files: list[list[Path]], rows_per_trigger: int, folder: Path) -> Figures:
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


def _difference(job: str, folder: Path) -> str | None:
    """Where the answers differ. Spark's last windows never come, so of J3 those that Spark has are compared."""
    ours, native = (f"'{folder / engine / 'answer.parquet'}'" for engine in ENGINES)
    keys = "auction" if job == "J2" else "auction, window_start"
    with duckdb.connect() as connection:
        connection.execute("set timezone='UTC'")
        values = "n, total, top" if job == "J2" else "n"
        cast = keys.replace("window_start", "window_start::timestamp as window_start")
        lost = connection.sql(
            f"(select {cast}, {values} from {native}) except (select {cast}, {values} from {ours})"
        ).fetchall()
        sizes = [connection.sql(f"select count(*) from {file}").fetchall()[0][0] for file in (ours, native)]
    if lost:
        return f"{len(lost)} rows of Spark's are not in ours, such as {lost[0]}"
    if job == "J2" and sizes[0] != sizes[1]:
        return f"ours has {sizes[0]} rows, Spark's {sizes[1]}"
    return None


if __name__ == "__main__":
    main()
