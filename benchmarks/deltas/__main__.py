"""``python -m benchmarks.deltas``: what checkpoints of keyed state cost when some of its keys have changed."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import click
from rich.console import Console

from benchmarks.charts import as_svg
from benchmarks.children import run_child
from benchmarks.deltas.child import BASE, DELTA, PREPARE, RESTORE, RUN, Task
from benchmarks.deltas.report import Measured, chart, described, tables
from benchmarks.jobs.__main__ import Names

WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""
STATES, OVERHEAD = "states", "overhead"
PARTS = (STATES, RESTORE, OVERHEAD)


class Numbers(click.ParamType):
    """Several numbers from ``least`` to ``most``, with commas between them."""

    name = "number,number"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            numbers = [float(one) for one in value.split(",")]
        except ValueError:
            numbers = []
        if not numbers or not self._least <= min(numbers) <= max(numbers) <= self._most:
            self.fail(f"{value!r} is not a list of numbers from {self._least:g} to {self._most:g}, such as 1,10,100")
        return numbers


@click.command()
@click.option("--parts", type=Names(list(PARTS)), default=",".join(PARTS), show_default=True, help="What is measured.")
@click.option("--keys", default=10_000_000, show_default=True, type=click.IntRange(2), help="Of states and restores.")
@click.option(
    "--changed", type=Numbers(0, 100), default="0,0.1,1,10,100", show_default=True, help="Percent of the keys."
)
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="Checkpoints, and restores.")
@click.option("--job-keys", default=100_000, show_default=True, type=click.IntRange(2), help="Of the job that runs.")
@click.option("--intervals", type=Numbers(1, 1e6), default="1000,100", show_default=True, help="Milliseconds.")
@click.option(
    "--pairs", default=3, show_default=True, type=click.IntRange(1), help="Runs without and with checkpoints."
)
@click.option("--seconds", default=30.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Of a run.")
@click.option("--folded", is_flag=True, help="Fold rows by key before they are dealt out, as a job does by default.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Where checkpoints are written.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
@click.option("--chart", "picture", type=click.Path(path_type=Path, dir_okay=False), help="A file for the chart.")
def main(
    parts: list[str],
    keys: int,
    changed: list[float],
    repeats: int,
    job_keys: int,
    intervals: list[float],
    pairs: int,
    seconds: float,
    folded: bool,  # noqa: FBT001 - click's call
    folder: Path | None,
    target: Path | None,
    picture: Path | None,
) -> None:
    """Measure checkpoints of keyed state: int64 keys with count, sum and max.

    \b
    states    bytes, stall, writing time and memory of checkpoints of one task: a base, and deltas
    restore   a job with two subtasks is restored from a directory whose files are in the page cache
    overhead  the share of a job's CPU time in checkpoints, and the job with and without them, in turns

    Every measurement is a process of its own. Figures are medians.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    measured = Measured()

    def child(task: Task, place: str = "") -> dict[str, object]:
        console.print(_line(task))
        if place:
            return run_child("benchmarks.deltas.child", replace(task, folder=place))
        with tempfile.TemporaryDirectory(prefix="barrierflow-deltas-", dir=folder) as empty:
            return run_child("benchmarks.deltas.child", replace(task, folder=empty))

    if STATES in parts:
        for percent in (BASE, *changed):
            kind = BASE if percent == BASE else DELTA
            share = 100.0 if isinstance(percent, str) else percent
            found = child(Task(kind, keys, "", percent=share, repeats=repeats))
            measured.states[percent] = found["taken"]  # type: ignore[assignment]
    if RESTORE in parts:
        with tempfile.TemporaryDirectory(prefix="barrierflow-deltas-", dir=folder) as place:
            child(Task(PREPARE, keys, ""), place)
            measured.restores = [child(Task(RESTORE, keys, ""), place) for _ in range(repeats)]
    if OVERHEAD in parts:
        for interval in intervals:
            without, with_ = (
                Task(RUN, job_keys, "", interval=every, seconds=seconds, folded=folded)
                for every in (0, round(interval))
            )
            for number in range(pairs):  # each is the first of a pair in turn
                order = (without, with_) if number % 2 == 0 else (with_, without)
                ran = {task: child(task) for task in order}
                measured.pairs.setdefault(round(interval), []).append((ran[without], ran[with_]))
    settings = {"keys": keys, "repeats": repeats, "job_keys": job_keys, "seconds": seconds, "folded": folded}
    figures = described(measured, settings, sys.argv[1:])
    output = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for table in tables(figures):
        output.print(table)
    if target is not None:
        target.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if picture is not None and STATES in parts:
        picture.write_text(as_svg(chart(figures)), encoding="utf-8")


def _line(task: Task) -> str:
    """Return what is measured next."""
    given = [f"{f.name} {getattr(task, f.name)}" for f in fields(task) if getattr(task, f.name) not in (f.default, "")]
    return ", ".join(given)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.deltas")
