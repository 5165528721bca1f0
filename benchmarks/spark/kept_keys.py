"""``python -m benchmarks.spark.kept_keys``: what a micro-batch costs beside many kept keys, on Spark of two cores.

Every measured micro-batch has one row for each of the same ``--hot`` keys. Before them a job has taken one row for
each of ``--kept`` other keys, or none. CPU-seconds are those of driver, JVM and workers together, from one micro-batch
to the next; the sums are compared with those that the rows must have.
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
from benchmarks.spark.usage import cpu_seconds, watched

__all__ = ["Figures", "measured"]

_FIRST = 3
"""Micro-batches after the kept keys that are not measured: JVM and workers are still warming up."""


@dataclass(frozen=True)
class Figures:
    """CPU seconds of each measured micro-batch; bytes of all processes at their peak, and of the job's directory."""

    kept: int
    cpu: Sequence[float]
    peak: int
    stored: int


def _rows(folder: Path, kept: int, hot: int, micro_batches: int) -> Path:
    """Write the input: the kept keys, in micro-batches of as many rows as there are hot keys, then the hot ones."""
    file = folder / "rows.parquet"
    keys = pa.schema({"key": pa.int64(), "value": pa.int64(), "n": pa.int64()})
    with pq.ParquetWriter(file, keys) as writer:
        for number in range(kept // hot + micro_batches):
            if number < kept // hot:
                key = np.arange(hot * (number + 1), hot * (number + 2))
            else:
                key = np.random.default_rng(number).permutation(hot)
            n = np.arange(number * hot, (number + 1) * hot)
            table = pa.table([key, np.ones(hot, np.int64), n], schema=keys)
            writer.write_table(table, row_group_size=hot)
    return file


def measured(
    session: Any, kept: int, hot: int, micro_batches: int, folder: Path, groups: int = 128, **settings: Any
) -> Figures:
    """Run one job, and check its sums. Raises: ClickException if one is wrong.

    Args:
        session: the session of Spark.
        kept: the keys that no measured micro-batch has rows for.
        hot: the rows of a micro-batch.
        micro_batches: how many are measured.
        folder: an empty directory.
        groups: the keyed tasks of the sums.
        settings: other arguments of ``SparkRunner``.
    """
    import dataflow as flow
    import operators as op
    from dataflow import col

    file, marks = _rows(folder, kept, hot, _FIRST + micro_batches), list[float]()
    with flow.Pipeline("kept keys") as p:
        rows = p.source(op.read_parquet(file, batch_rows=hot), name="rows")
        sums = rows.key_by("key").agg(col("value").sum().alias("sum"), emit="final", name="sums")
        counts = sums.filter(col("key") < hot).key_by("sum").agg(n=op.count(), emit="final", name="counts")
        counts.sink(op.collect(), name="out")
        first = rows.filter(col("n") % hot == 0, name="first")
        first.sink(op.upsert_batches(lambda batch: marks.append(cpu_seconds())), name="marks")
    with watched() as peak:
        checkpoint = flow.Checkpointing(folder / "job")
        runner = flow.SparkRunner(session, rows_per_trigger=hot, **settings)
        result = p.run(runner, parallelism=1, max_key_groups=groups, checkpoint=checkpoint)
    found = result.tables["out"].to_pylist()
    if found != [{"sum": _FIRST + micro_batches, "n": hot}]:
        raise click.ClickException(f"expected {hot} sums of {_FIRST + micro_batches}, found {found}")
    own = marks[-micro_batches - 1 :]
    stored = sum(path.stat().st_size for path in (folder / "job").rglob("*") if path.is_file())
    return Figures(kept, [after - before for before, after in pairwise(own)], peak.size, stored)


@click.command()
@click.option("--kept", default=2_000_000, show_default=True, help="Keys that no measured micro-batch has rows for.")
@click.option("--hot", default=100_000, show_default=True, help="Rows of a micro-batch, each of another key.")
@click.option("--micro-batches", default=8, show_default=True, help="Micro-batches to measure.")
@click.option("--rounds", default=3, show_default=True, help="Each job once a round.")
def main(kept: int, hot: int, micro_batches: int, rounds: int) -> None:
    """Compare a micro-batch beside KEPT keys with one beside none."""
    with tempfile.TemporaryDirectory(prefix="barrierflow-kept-") as work, spark_of_two_cores(work) as session:
        ratios = []
        for number in range(rounds):
            pair = {}
            for keys in (0, kept) if number % 2 == 0 else (kept, 0):
                with tempfile.TemporaryDirectory(dir=work) as folder:
                    pair[keys] = measured(session, keys, hot, micro_batches, Path(folder))
            costs = {keys: median(figures.cpu) for keys, figures in pair.items()}
            ratios.append(costs[kept] / costs[0])
            told = ", ".join(
                f"beside {keys:,} keys {costs[keys]:.2f} CPU-s a micro-batch, {figures.peak / 1e9:.1f} GB of memory, "
                f"{figures.stored / 1e6:.0f} MB stored"
                for keys, figures in sorted(pair.items())
            )
            click.echo(f"round {number + 1}: {told}; ratio {ratios[-1]:.2f}")
        click.echo(f"ratio {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
