"""``python -m benchmarks.chosen_rows``: rows per CPU-second of ``unique`` and ``top``, with source and shuffle.

Each job runs in a process of its own, on two subtasks, with an aligned checkpoint every second. Keys of the jobs "new
..." never come twice. The source reads a table in memory, so the time is that of the shuffle, the
operator and the checkpoints. Compiled loops are loaded before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

__all__ = ["JOBS", "Result", "run"]


@dataclass(frozen=True)
class Result:
    """The rows of a run, its CPU time and its wall time, in seconds."""

    rows: int
    cpu: float
    wall: float

    @property
    def speed(self) -> float:
        """Rows per CPU-second."""
        return self.rows / self.cpu


Columns = Callable[[np.random.Generator, int], dict[str, pa.Array]]


def _new(rng: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    return {"k": pa.array(rng.permutation(rows))}


def _new_text(rng: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    return {"k": pa.array([f"session {n:012}" for n in rng.permutation(rows).tolist()])}


def _known(keys: int) -> Columns:
    def columns(rng: np.random.Generator, rows: int) -> dict[str, pa.Array]:
        times = np.sort(rng.integers(0, 60_000_000, rows))
        return {
            "k": pa.array(rng.integers(0, keys, rows)),
            "price": pa.array(rng.integers(0, 1_000_000, rows)),
            "at": pa.array(times, pa.timestamp("us")),
        }

    return columns


@dataclass(frozen=True)
class Job:
    """Its input, and what is done with the stream of it; the name of a column of the result."""

    columns: Columns
    stream: Callable[..., object]
    shown: str


JOBS: dict[str, Job] = {
    "unique, new int64 keys": Job(_new, lambda rows: rows.unique("k", name="it"), "k"),
    "unique, new text keys": Job(_new_text, lambda rows: rows.unique("k", name="it"), "k"),
    "unique, 100,000 keys": Job(_known(100_000), lambda rows: rows.unique("k", name="it"), "k"),
    "unique, the last row of 100,000 keys": Job(
        _known(100_000), lambda rows: rows.unique("k", keep="last", emit="changes", name="it"), "k"
    ),
    "top 3 of 1,000 keys, changes": Job(
        _known(1_000), lambda rows: rows.key_by("k").top(3, by="price", emit="changes", name="it"), "rank"
    ),
    "top 3 of 100,000 keys, changes": Job(
        _known(100_000), lambda rows: rows.key_by("k").top(3, by="price", emit="changes", name="it"), "rank"
    ),
    "top 3 of 1,000 keys in windows of 10 s": Job(_known(1_000), lambda rows: _windows(rows), "rank"),
}


def _windows(rows: object) -> object:
    import operators as op

    return rows.with_watermark("at").key_by("k").window(op.tumbling("10s")).top(3, by="price", name="it")  # type: ignore[attr-defined]


def run(name: str, rows: int) -> Result:
    """Run a job once over a few rows, so that all is loaded, and once over ``rows``."""
    _run(name, 1_000)
    return _run(name, rows)


def _run(name: str, rows: int) -> Result:
    import dataflow as flow
    import operators as op

    job = JOBS[name]
    table = pa.table(job.columns(np.random.default_rng(1), rows))
    with flow.Pipeline("chosen rows") as p, tempfile.TemporaryDirectory() as folder:
        chosen = job.stream(p.source(op.from_arrow(table), name="rows"))
        chosen.filter(flow.col(job.shown).is_null()).sink(op.collect(), name="out")  # type: ignore[attr-defined]
        cpu, wall = time.process_time(), time.perf_counter()
        p.run(parallelism=2, checkpoint=flow.Checkpointing(folder, every="1s"))
        return Result(rows, time.process_time() - cpu, time.perf_counter() - wall)


@click.command()
@click.option("--rows", default=8_000_000, show_default=True, help="Rows of each job.")
@click.option("--out", type=click.Path(path_type=Path), help="A file for the results, as JSON.")
@click.option("--child", type=click.Choice(list(JOBS)), hidden=True)
def main(rows: int, out: Path | None, child: str | None) -> None:
    """Measure the choice of rows by key."""
    if child is not None:
        print(json.dumps(asdict(run(child, rows))))
        return
    found: dict[str, Result] = {}
    for name in JOBS:
        command = [sys.executable, "-m", "benchmarks.chosen_rows", "--child", name, f"--rows={rows}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[name] = Result(**json.loads(done.stdout.splitlines()[-1]))
        print(f"{name:>40}: {found[name].speed / 1e6:.2f} M rows a CPU-second, {found[name].wall:.2f} s")
    if out is not None:
        out.write_text(json.dumps({name: asdict(result) for name, result in found.items()}, indent=1))


if __name__ == "__main__":
    main()
