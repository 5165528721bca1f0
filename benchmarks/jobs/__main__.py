"""``python -m benchmarks.jobs``: the jobs beside their rivals, in one command."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click
import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.jobs.bids import ROW_GROUP, SEGMENT, Bids
from benchmarks.jobs.measuring import WARM_UP_ROWS, Plan, measure
from benchmarks.jobs.ours import BATCH_ROWS, JOBS, unavailable
from benchmarks.jobs.report import described, table
from benchmarks.jobs.rivals import RIVALS
from operators.sources.row_groups import MOST_ROWS

WIDTH = 132
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


class Sizes(click.ParamType):
    """Several whole numbers of at least 1, with commas between them."""

    name = "rows,rows"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        sizes = [int(size) if size.isdecimal() else 0 for size in value.split(",")]
        if min(sizes) < 1:
            self.fail(f"{value!r} is not a list of whole numbers of at least 1, such as 131072,1048576", param, ctx)
        return sizes


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
@click.option(
    "--row-groups",
    type=Sizes(),
    default=f"{ROW_GROUP},{SEGMENT}",
    show_default=True,
    help="Rows of a row group, each measured apart.",
)
@click.option("--tuned/--no-tuned", default=True, show_default=True, help="Measure ours with expert settings, too.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the bids are kept; default: a temporary one.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
def main(
    jobs: list[str],
    rivals: list[str],
    pairs: int,
    rows: int,
    seconds: float,
    row_groups: list[int],
    tuned: bool,  # noqa: FBT001
    folder: Path | None,
    target: Path | None,
) -> None:
    """Run jobs over generated bids with this engine and with rivals, two threads each, and compare times.

    \b
    J1  filter auction % 123 = 0, project price * 0.908, checksum
    J2  count, sum and max of price by auction
    J3  count by auction in tumbling windows of 10 s
    J4  count by channel, a string
    J5  the highest count by auction in each window of 10 s, every 2 s
    J6  J2 as signed changes into a filter that drops all rows; beside it the same with emit="final" ("ours, final")
    J7  count by auction in sessions with a gap of 10 s
    J8  count by auction in sessions with a gap of 1 s
    J9  count and sum of price by category, looked up in a table of 10,000 auctions
    J10 bids joined with the openings of their auctions in windows of 10 s, counted by window and reserve
    J11 count and sum of price by category, bids joined with 100,000 auctions without windows
    J12 bids joined with the last opening of their auction before them, counted by reserve

    Ours takes an aligned checkpoint every second and has no option but parallelism=2. "ours, tuned" works in batches
    of 1 Mi rows and in steps that take them whole (batch_rows=, step_budget=), names its dictionaries, and uses
    jemalloc; rivals take no checkpoints. The files have 4 columns, and several million rows each, or one million where
    event time counts. Every measurement is a process of its own, warmed up. Answers are compared whole in every
    round. The last columns are the wall and CPU times of the other over those of ours with defaults, medians over the
    rounds with 95 % intervals: above 1, ours is faster.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    below = folder or Path(tempfile.gettempdir())
    measured = []
    for job in jobs or list(JOBS):
        why_not = unavailable(job)
        if why_not is not None:
            console.print(f"{job}: left out: {why_not}")
            continue
        for size in row_groups:
            bids, few = (Bids.below(below, count, size) for count in (rows, min(rows, WARM_UP_ROWS)))
            console.print(f"{job}: {_layout(bids)}; batches of up to {MOST_ROWS:,} rows, tuned {BATCH_ROWS:,}")
            measured.append(measure(job, Plan(tuple(rivals), pairs, seconds, bids, few, tuned), console.print))
    settings = {
        "rivals": rivals,
        "pairs": pairs,
        "rows": rows,
        "seconds": seconds,
        "row_groups": row_groups,
        "batch_rows": {"ours": None, "ours, tuned": BATCH_ROWS},
    }
    found = described(measured, settings, sys.argv[1:])
    terminal = sys.stdout.isatty()
    Console(highlight=False, width=None if terminal else WIDTH).print(table(found["jobs"]))
    if target is not None:
        target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _layout(bids: Bids) -> str:
    """Return how the files of ``bids`` are laid out."""
    files = bids.files(1)
    first = pq.read_metadata(files[0])
    compression = first.row_group(0).column(0).compression
    return f"{len(files)} files of {first.num_rows:,} rows, row groups of {bids.row_group:,} rows, {compression}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.jobs")
