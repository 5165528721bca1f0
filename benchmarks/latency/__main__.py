"""``python -m benchmarks.latency``: how late rows are, and what small batches and idle jobs cost, in one command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.children import run_child
from benchmarks.jobs.__main__ import Names
from benchmarks.latency.child import BARE, FILTER, IDLE, KEYED, LONE, QUEUED, TIMED, Figures, Task
from benchmarks.latency.report import described, tables

WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""
KINDS = (FILTER, KEYED, QUEUED, TIMED, LONE, BARE, IDLE)
RATES = (10_000, 100_000)
PARALLELISMS = (1, 2, 4, 8)


@click.command()
@click.option(
    "--kinds", type=Names(list(KINDS)), default=",".join(KINDS), show_default=True, help="What is to be measured."
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Rounds; figures are medians.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Of a run.")
@click.option("--batches", default=3_000, show_default=True, type=click.IntRange(1), help="Small batches of a run.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
def main(kinds: list[str], repeats: int, seconds: float, batches: int, target: Path | None) -> None:
    """Measure how late rows are that arrive at a constant rate, and what small batches and idle jobs cost.

    \b
    filter, keyed  10,000 and 100,000 rows a second from two splits, with checkpoints each second, from the first row on
    queued         batches of 1,000 rows through a keyed aggregate as fast as it takes them, without event time
    timed          the same with event time: a watermark after each batch
    lone           the batches without event time, one every 10 ms
    bare           the same, but NumPy counts and adds in a loop that sleeps: the limit for lone batches
    idle           a job that watches a directory without new files, with checkpoints each second

    Every run has a process of its own and no option but the parallelism and the checkpoints.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    tasks = [task for kind in kinds for task in _tasks(kind, seconds, batches)]
    measured: dict[Task, list[Figures]] = {task: [] for task in tasks}
    for number in range(repeats):
        for task in tasks:
            console.print(f"round {number + 1} of {repeats}: {task.kind}, parallelism {task.parallelism}")
            measured[task].append(Figures(**run_child("benchmarks.latency.child", task)))
    found = described(measured, sys.argv[1:])
    output = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for table in tables(found):
        output.print(table)
    if target is not None:
        target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _tasks(kind: str, seconds: float, batches: int) -> list[Task]:
    if kind in (FILTER, KEYED):
        return [Task(kind, 2, rate=rate, seconds=seconds) for rate in RATES]
    if kind in (QUEUED, TIMED):
        return [Task(kind, parallelism, batches=batches) for parallelism in PARALLELISMS]
    if kind in (LONE, BARE):
        return [Task(kind, 1, batches=min(batches, 1_000))]
    return [Task(kind, 2, seconds=seconds)]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.latency")
