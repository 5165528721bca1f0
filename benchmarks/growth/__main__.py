"""``python -m benchmarks.growth``: how cost grows with sizes, in one command."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.charts import as_svg
from benchmarks.growth.families import FAMILIES, sizes_to
from benchmarks.growth.measuring import Plan, measure, watch
from benchmarks.growth.report import charts, described, exponents, memory, sizes
from benchmarks.jobs.__main__ import Names

WIDTH = 140
"""Columns of a table that goes to a file or a pipe."""
MEMORY = "memory"


class Most(click.ParamType):
    """A family and its largest size, such as ``rows=1000000``."""

    name = "family=size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, size = value.partition("=")
        known = [*FAMILIES, MEMORY]
        if name not in known:
            self.fail(f"{name!r} is none of {', '.join(known)}", param, ctx)
        if not size.isdecimal() or int(size) < 1:
            self.fail(f"{size!r} is not a whole number above zero", param, ctx)
        return name, int(size)


@click.command()
@click.option(
    "--families",
    type=Names([*FAMILIES, MEMORY]),
    default=",".join([*FAMILIES, MEMORY]),
    show_default=True,
    help="What is to grow.",
)
@click.option(
    "--most",
    type=Most(),
    multiple=True,
    help="The largest size of a family, as in --most keys=100000000; of memory, the number of checkpoints.",
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Rounds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Of memory.  [default: 20; with --full 120]")
@click.option("--full", is_flag=True, help="Rows to 10^9, and 10^4 checkpoints.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Where rows are kept for the next run."
)
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
@click.option("--charts", "pictures", type=click.Path(path_type=Path, file_okay=False), help="Write SVG files there.")
def main(
    families: list[str],
    most: tuple[tuple[str, int], ...],
    repeats: int,
    seconds: float | None,
    full: bool,  # noqa: FBT001 - click's call
    folder: Path | None,
    target: Path | None,
    pictures: Path | None,
) -> None:
    """Measure how the cost of a job grows, and fit exponents.

    \b
    rows      10^5 to 10^8, with --full 10^9, with 100,000 keys; beside DuckDB
    keys      10^4 to 10^7, four rows each; beside DuckDB
    chain     1 to 50 operators, batches of 1,000 rows
    channels  1 to 64 channels of a shuffle
    memory    of a long run with 100,000 keys; then 10^3 checkpoints (10^4 with --full) while the sources are halted

    An exponent is the slope of a least-squares line through the logarithms of sizes and times. The time of a baseline,
    in the same process, is subtracted before: the same job over 1,000 rows; of a chain, the job without it. Sizes whose
    work is less than a tenth of the baseline are measured but not fitted. Answers are checked in every run. Ours takes
    aligned checkpoints every second and has no other option but the parallelism; DuckDB has two threads.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    limits = dict(most)
    chosen = [FAMILIES[name] for name in families if name != MEMORY]
    plan_sizes = {family.name: sizes_to(family, limits.get(family.name), full=full) for family in chosen}
    with tempfile.TemporaryDirectory(prefix="barrierflow-growth-inputs-") as temporary:
        plan = Plan(plan_sizes, repeats, folder or Path(temporary))
        rounds = measure(plan, console.print)
    watched = None
    if MEMORY in families:
        last = limits.get(MEMORY, 10_000 if full else 1_000)
        watched = watch(seconds or (120.0 if full else 20.0), _marks(last), console.print)
    figures = described(plan, rounds, watched, sys.argv[1:])
    terminal = sys.stdout.isatty()
    output = Console(highlight=False, width=None if terminal else WIDTH)
    output.print(sizes(figures))
    output.print(exponents(figures))
    for sentence in memory(figures):
        output.print(sentence)
    if target is not None:
        target.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for name, chart in charts(figures).items():
            (pictures / f"{name}.svg").write_text(as_svg(chart), encoding="utf-8")


def _marks(last: int) -> list[int]:
    """Return the numbers of checkpoints at which a long run is looked at: powers of ten, and the last."""
    return [10**power for power in range(1, len(str(last))) if 10**power < last] + [last]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.growth")
