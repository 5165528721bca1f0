"""``python -m benchmarks.jobs``: the jobs beside their rivals, in one command."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.jobs.bids import Bids
from benchmarks.jobs.measuring import WARM_UP_ROWS, Plan, measure
from benchmarks.jobs.ours import JOBS, unavailable
from benchmarks.jobs.report import described, table
from benchmarks.jobs.rivals import RIVALS

WIDTH = 110
"""Columns of a table that goes to a file or a pipe."""


class Names(click.ParamType):
    """Several of ``known``, with commas between them."""

    def __init__(self, known: list[str]) -> None:
        self.name = ",".join(known)
        self._known = known

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        names = [name for name in value.split(",") if name]
        for name in names:
            if name not in self._known:
                self.fail(f"{name!r} is none of {', '.join(self._known)}", param, ctx)
        return names


@click.command()
@click.option("--jobs", type=Names(list(JOBS)), default="", help="Which jobs; default: all that this version can run.")
@click.option("--rivals", type=Names(list(RIVALS)), default=",".join(RIVALS), show_default=True, help="Beside whom.")
@click.option("--pairs", default=7, show_default=True, type=click.IntRange(1), help="Rounds: each engine once a round.")
@click.option("--rows", default=20_000_000, show_default=True, type=click.IntRange(1), help="Bids to generate.")
@click.option(
    "--seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="The bids are repeated until ours lasts so long; 0: they are read once.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the bids are kept; default: a temporary one.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
def main(
    jobs: list[str], rivals: list[str], pairs: int, rows: int, seconds: float, folder: Path | None, target: Path | None
) -> None:
    """Run jobs over generated bids with this engine and with rivals, two threads each, and compare times.

    \b
    J1  filter auction % 123 = 0, project price * 0.908, checksum
    J2  count, sum and max of price by auction
    J3  count by auction in tumbling windows of 10 s
    J4  count by channel, a string
    (J5, hopping windows, comes when there are hopping windows.)

    Ours takes an aligned checkpoint every second; rivals take none. Every measurement is a process of its own, warmed
    up. Answers are compared whole in every round. The last column is the rival's wall time over ours, the median over
    the rounds with its 95 % interval: above 1, ours is faster.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    below = folder or Path(tempfile.gettempdir())
    plan = Plan(tuple(rivals), pairs, seconds, Bids.below(below, rows), Bids.below(below, min(rows, WARM_UP_ROWS)))
    measured = []
    for job in jobs or list(JOBS):
        why_not = unavailable(job)
        if why_not is not None:
            console.print(f"{job}: left out: {why_not}")
            continue
        measured.append(measure(job, plan, console.print))
    settings = {"rivals": rivals, "pairs": pairs, "rows": rows, "seconds": seconds}
    found = described(measured, settings)
    terminal = sys.stdout.isatty()
    Console(highlight=False, width=None if terminal else WIDTH).print(table(found["jobs"]))
    if target is not None:
        target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.jobs")
