"""The command ``draw``: a picture of a pipeline."""

from __future__ import annotations

from pathlib import Path

import click

from dataflow.cli.parameters import target
from dataflow.cli.terminal import with_traceback
from dataflow.drawing import printable

__all__ = ["draw"]


@click.command()
@target
@click.option(
    "--parallelism",
    default=1,
    show_default=True,
    help="Number of subtasks of each operator that does not set its own, at least 1.",
)
@click.option("--physical", is_flag=True, help="Draw tasks, chained operators and channels instead of operators.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write: .svg, .html, .mmd (Mermaid) or .txt.  [default: print text]",
)
@with_traceback
def draw(target: str, parallelism: int, output: Path | None, *, physical: bool) -> None:
    """Draw the operators and streams of a pipeline. Nothing is read, run or started.

    MODULE:PIPELINE names a Pipeline, or a callable without arguments that returns one, such as jobs.orders:pipeline.
    The module is imported from the current directory or from Python's search path, so any side effects of importing it
    will happen.

    The shapes of the text are ○ source, □ operator, ▣ operator that keeps state, ● sink, ┊ chained to the one above.
    """
    from dataflow.compare.subject import Subject

    picture = Subject(target).pipeline().draw(parallelism, physical=physical)
    if output is None:
        click.echo(picture.text())
    else:
        picture.save(output)
        click.echo(printable(f"wrote {output}"))
