"""``python -m benchmarks.checkpoints``: the cost of checkpoints, in one command."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import click
from rich.console import Console

from benchmarks.charts import as_svg
from benchmarks.checkpoints.measuring import Plan, measure
from benchmarks.checkpoints.report import charts, described, table
from benchmarks.checkpoints.settings import CENTRE, FACTORS, VARIANTS, Setting, points
from benchmarks.jobs.__main__ import Names

WIDTH = 180
"""Columns of a table that goes to a file or a pipe."""


class Levels(click.ParamType):
    """A factor and its level at the centre, such as ``keys=1000``."""

    name = "factor=level"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | float]:
        name, _, level = value.partition("=")
        kinds = {field.name: float if field.type == "float" else int for field in fields(Setting)}
        if name not in kinds:
            self.fail(f"{name!r} is none of {', '.join(kinds)}", param, ctx)
        try:
            return name, kinds[name](level)
        except ValueError:
            self.fail(f"{level!r} is not a number", param, ctx)


@click.command()
@click.option(
    "--factors", type=Names(list(FACTORS)), default=",".join(FACTORS), show_default=True, help="Which factors."
)
@click.option("--variants", type=Names(list(VARIANTS)), default=",".join(VARIANTS), show_default=True, help="Of what.")
@click.option("--centre", "changes", type=Levels(), multiple=True, help="Move the centre, as in --centre keys=1000.")
@click.option("--only-centre", is_flag=True, help="Measure no other level than the centre.")
@click.option("--repeats", type=click.IntRange(1), help="Rounds.  [default: 3; with --full 5]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Window.  [default: 4; with --full 20]")
@click.option("--full", is_flag=True, help="Add an interval of 10 s, more repeats and longer windows.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Where checkpoints are written.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure there.")
@click.option("--charts", "pictures", type=click.Path(path_type=Path, file_okay=False), help="Write SVG files there.")
def main(
    factors: list[str],
    variants: list[str],
    changes: tuple[tuple[str, int | float], ...],
    only_centre: bool,  # noqa: FBT001 - click's call
    repeats: int | None,
    seconds: float | None,
    full: bool,  # noqa: FBT001 - click's call
    folder: Path | None,
    target: Path | None,
    pictures: Path | None,
) -> None:
    """Measure what checkpoints cost, one factor at a time around a centre, as the ABS paper does.

    \b
    none            no checkpoints
    stop-the-world  the sources halt until the whole snapshot is durable
    aligned, unaligned, unaligned-persisted, aligned-timeout: the modes of the engine

    The job has six operators, three full shuffles and two keyed aggregates; rows come from memory, without end. A
    measurement is a process: it is warmed up until the state is complete, then observed for some seconds. Every figure
    is the mean over the rounds with the half-width of its 95 % confidence interval (Student's t). "lost" compares the
    rows per second with those of "none" in the same round; "each" divides that by the number of checkpoints. "hold"
    is the halt of the sources (stop-the-world), or the longest alignment and copy of a task.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    centre = replace(CENTRE, **dict(changes))  # type: ignore[arg-type]
    chosen = list(points(factors, full=full, centre=centre))
    if only_centre:
        chosen = [point for point in chosen if point.setting == centre]
    plan = Plan(chosen, variants, repeats or (5 if full else 3), seconds or (20.0 if full else 4.0), folder)
    console.print(f"about {plan.minutes:.0f} minutes on two quiet cores")
    figures = described(plan, measure(plan, console.print), sys.argv[1:])
    terminal = sys.stdout.isatty()
    Console(highlight=False, width=None if terminal else WIDTH).print(table(figures))
    if target is not None:
        target.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for name, chart in charts(figures).items():
            (pictures / f"{name}.svg").write_text(as_svg(chart), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.checkpoints")
