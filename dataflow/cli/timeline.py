"""The command timeline: what barriers did, from a recording, as sentences or as a picture in a file."""

from __future__ import annotations

from pathlib import Path

import click

from dataflow.cli.parameters import checkpoint_or_all
from dataflow.cli.terminal import with_traceback, wrapped
from dataflow.drawing import printable

__all__ = ["timeline"]


@click.command()
@click.argument("events", metavar="EVENTS", type=click.Path(path_type=Path))
@click.option(
    "--checkpoint",
    metavar="ID|all",
    callback=checkpoint_or_all,
    help="Show this checkpoint, or the whole run (all).  [default: the slowest checkpoint in which every input still "
    "had a barrier]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the picture to this file, whose name ends in .html or .svg.  [default: print sentences]",
)
@with_traceback
def timeline(events: Path, checkpoint: int | str | None, output: Path | None) -> None:
    """Show what checkpoint barriers did in a run, and why a checkpoint took long.

    EVENTS is a file that `run --record EVENTS`, or `record=` in Python, writes. It is also read while the run writes
    it, and after its process was killed.
    """
    from dataflow.views.read_events import read_events

    picture = read_events(events).timeline(checkpoint)
    if output is not None:
        picture.save(output)
        click.echo(printable(f"wrote {output}"))
        return
    click.echo(printable(picture.heading))
    for sentence in picture.sentences:
        click.echo(wrapped(sentence, "- "))
