"""``python -m benchmarks.versions OTHER``: this checkout beside another one, in one command."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.conditions import conditions
from benchmarks.growth.families import FAMILIES
from benchmarks.jobs.__main__ import Names
from benchmarks.jobs.bids import Bids
from benchmarks.jobs.measuring import WARM_UP_ROWS
from benchmarks.jobs.ours import JOBS, unavailable
from benchmarks.jobs.report import interval
from benchmarks.versions.measuring import (
    LATE,
    SNAPSHOTS,
    Case,
    Pair,
    family_case,
    job_case,
    late_case,
    measure,
    snapshot_case,
)

WIDTH = 120
"""Columns of a table that goes to a file or a pipe."""
GROUPS = ("jobs", "growth", "snapshots", "late")
PERCENTS = (0.0, 1.0, 50.0)
"""The rows of 100 that are late."""


@click.command()
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--groups", type=Names(list(GROUPS)), default=",".join(GROUPS), show_default=True, help="What to measure."
)
@click.option("--only", default="", help="Only cases whose names contain this text.")
@click.option("--pairs", default=9, show_default=True, type=click.IntRange(1), help="Runs of each checkout.")
@click.option("--rows", default=2_000_000, show_default=True, type=click.IntRange(1), help="Bids of a job.")
@click.option(
    "--size", default=300_000, show_default=True, type=click.IntRange(1), help="Rows of growth and late rows."
)
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1), help="Keys of a snapshot.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Where input is kept for the next run."
)
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
def main(
    other: Path,
    groups: list[str],
    only: str,
    pairs: int,
    rows: int,
    size: int,
    keys: int,
    folder: Path | None,
    target: Path | None,
) -> None:
    """Measure this checkout beside OTHER, the folder of another one, with the same Python and packages.

    Each case runs in turns in processes of their own. CPU seconds of all threads are compared, because wall time
    depends on what else the machine does. The ratio is this one's CPU time over the other's: the median of the pairs,
    with its 95 % interval by the bootstrap. It means nothing while other programs work.
    """
    out, err = Console(width=None if sys.stdout.isatty() else WIDTH), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="barrierflow-versions-") as temporary:
        place = Path(temporary) if folder is None else folder
        place.mkdir(parents=True, exist_ok=True)
        found: dict[str, list[Pair]] = {}
        for case in _cases(groups, rows, size, keys, place):
            if only in case.name:
                found[case.name] = measure(case, other.absolute(), pairs, err.print)
    described = {name: _described(measured) for name, measured in found.items()}
    out.print(_table(described))
    if target is not None:
        settings = {"other": str(other), "pairs": pairs, "rows": rows, "size": size, "keys": keys}
        target.write_text(json.dumps({"settings": settings, **conditions(("pyarrow", "numba")), "cases": described}))


def _cases(groups: list[str], rows: int, size: int, keys: int, folder: Path) -> Iterator[Case]:
    if "jobs" in groups:
        bids, warm_up = (Bids.below(folder, count) for count in (rows, min(rows, WARM_UP_ROWS)))
        yield from [job_case(name, bids, warm_up) for name in JOBS if unavailable(name) is None]
    if "growth" in groups:
        (folder / "growth").mkdir(exist_ok=True)
        names = [name for name in FAMILIES if name not in ("chain", "channels")]
        yield from [family_case(name, size, folder / "growth") for name in names]
    if "snapshots" in groups:
        yield from [snapshot_case(kind, keys) for kind in SNAPSHOTS]
    if "late" in groups:
        yield from [late_case(kind, size, percent) for kind in LATE for percent in PERCENTS]


def _described(pairs: list[Pair]) -> dict[str, Any]:
    median, low, high = interval([pair.ratio for pair in pairs])
    return {"median": median, "low": low, "high": high, "pairs": [asdict(pair) for pair in pairs]}


def _table(cases: dict[str, dict[str, Any]]) -> Table:
    made = Table()
    for heading in ("case", "other", "this", "this / other", "95 % interval"):
        made.add_column(heading, justify="left" if heading == "case" else "right")
    for name, found in cases.items():
        other, this = ([pair[which] for pair in found["pairs"]] for which in ("other", "this"))
        seconds = [f"{interval(times)[0]:.3f} s" for times in (other, this)]
        made.add_row(name, *seconds, f"{found['median']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}")
    return made


if __name__ == "__main__":
    main()
