"""The commands about the checkpoints in a directory: ls, show, verify and rm."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dataflow.cli.terminal import fits, make_console, print_table, with_traceback, wrapped
from dataflow.clock import SystemClock
from dataflow.drawing import printable, printable_lines

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["checkpoints"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Id = click.IntRange(min=1)


class _LsByDefault(click.Group):
    """A group for which ``DIRECTORY`` without a command is short for ``ls DIRECTORY``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *self.get_help_option_names(ctx)}:
            args = ["ls", *args]
        return super().parse_args(ctx, args)


_directory = click.argument("directory", type=click.Path(path_type=Path))


def _with_json(command: _F) -> _F:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON; `created` is in seconds since 1970, sizes are in bytes, and times in microseconds.",
    )(command)


@click.group(cls=_LsByDefault)
def checkpoints() -> None:
    """List, show, verify or delete stored checkpoints.

    DIRECTORY is the location of a Checkpointing. `barrierflow checkpoints DIRECTORY` is short for `ls DIRECTORY`. A
    directory whose name is that of a command is written with its path, such as ./ls. Only `rm` changes anything.
    """


@checkpoints.command()
@_directory
@click.option("--restore", type=_Id, metavar="ID", help="Short for `show DIRECTORY ID`.  [default: list all]")
@_with_json
@with_traceback
@click.pass_context
def ls(ctx: click.Context, directory: Path, restore: int | None, *, as_json: bool) -> None:
    """List the checkpoints in DIRECTORY with their status.

    The status is derived from the manifest, and from the existence and the size of every object that it names. No
    object is read, so flipped bytes are not noticed: `verify` reads everything.
    """
    from dataflow.observe.checkpoints import LEGEND, list_checkpoints, sheet, table

    if restore is not None:
        ctx.invoke(show, directory=directory, checkpoint=restore, events=None, as_json=as_json)
        return
    lines = list_checkpoints(directory)
    if as_json:
        click.echo(json.dumps([line.to_json() for line in lines], indent=1))
    elif not lines:
        click.echo(printable(_none_in(directory)))
    else:
        now = SystemClock().wall()
        wide = table(lines, now)
        print_table(wide if fits(wide, make_console()) else sheet(lines, now))
        click.echo()
        for heading, meaning in LEGEND.items():
            click.echo(wrapped(f"{heading}: {meaning}", "- "))


@checkpoints.command()
@_directory
@click.argument("checkpoint", metavar="[ID]", type=_Id, required=False)
@click.option(
    "--events",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A recording of the run (`run --record FILE`): also print sentences that explain the checkpoint.",
)
@_with_json
@with_traceback
def show(directory: Path, checkpoint: int | None, events: Path | None, *, as_json: bool) -> None:
    """Show what checkpoint ID holds, and what a restore of it would report.

    Without an ID, DIRECTORY is a savepoint, or the folder of one checkpoint.

    The facts of its manifest, the channels that its barriers blocked, its objects, the operators with their rows of
    state and rows in flight, the pieces of state with their rules, and the rows that a restore reads and delivers
    again. Every object is read.
    """
    from dataflow.observe.contents import blocked_table, facts_table, operators_table, pieces_table, read_sheet
    from dataflow.observe.explained import sentences_on
    from dataflow.observe.restores import headline, table
    from dataflow.observe.verification import objects_table
    from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint

    if checkpoint is None:
        checkpoint = Checkpoint(directory).id
    sheet = read_sheet(directory, checkpoint)
    sentences = sentences_on(sheet.found, events) if events is not None else None
    if as_json:
        click.echo(json.dumps(sheet.to_json() | ({} if sentences is None else {"sentences": sentences}), indent=1))
        return
    _print_section(f"checkpoint {checkpoint} in {directory}", facts_table(sheet))
    if sentences is not None:
        click.echo(f"\nwhat {printable(str(events))} says of it\n")
        for sentence in sentences:
            click.echo(wrapped(sentence, "- "))
    if sheet.blocked:
        _print_section("\nchannels that its barriers blocked", blocked_table(sheet))
    if sheet.found.objects:
        _print_section("\nobjects", objects_table(sheet.found))
    if sheet.operators:
        _print_section("\noperators", operators_table(sheet))
    if any(line.pieces for line in sheet.operators):
        _print_section("\nstate that operators declare", pieces_table(sheet))
    if sheet.report is not None:
        _print_section(f"\n{headline(sheet.report)}", table(sheet.report))


@checkpoints.command()
@_directory
@click.argument("ids", metavar="[ID]...", nargs=-1, type=_Id)
@_with_json
@with_traceback
def verify(directory: Path, ids: tuple[int, ...], *, as_json: bool) -> None:
    """Read every byte of checkpoints, and print each object with what was found.

    Without an ID, all checkpoints in DIRECTORY are read. A running job does not delete a checkpoint while it is read.

    Exits with 1 if a checkpoint is incomplete or damaged. An unfinished one counts only if its ID is given, because a
    running job may be writing it.
    """
    from dataflow.observe.verification import headline, is_bad, objects_table, to_json, verify_checkpoints
    from dataflow.store.status import CheckpointStatus

    documents: list[dict[str, Any]] = []
    count = bad = 0
    for found in verify_checkpoints(directory, ids):
        count += 1
        bad += is_bad(found) or bool(ids and found.status is CheckpointStatus.UNFINISHED)
        if as_json:
            documents.append(to_json(found))
            continue
        make_console().print(headline(found), style="red" if is_bad(found) else None, markup=False)
        if found.objects:
            print_table(objects_table(found))
        click.echo()
    if as_json:
        click.echo(json.dumps(documents, indent=1))
    elif not count:
        click.echo(printable(_none_in(directory)))
    else:
        click.echo(f"{count} verified, {bad} of them not whole" if bad else f"{count} verified")
    if bad:
        sys.exit(1)


@checkpoints.command()
@_directory
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=_Id)
@click.option("--yes", is_flag=True, help="Also delete the last checkpoint that a job could resume from.")
@_with_json
@with_traceback
def rm(directory: Path, ids: tuple[int, ...], *, yes: bool, as_json: bool) -> None:
    """Delete checkpoints, and print what was deleted.

    The manifest is deleted first, then the objects that no other manifest names. Objects that other checkpoints need
    stay. Nothing is deleted while a job has DIRECTORY open, or if there is no such checkpoint. A checkpoint that is
    being read is not deleted.

    Without --yes, a checkpoint is not deleted if a job that starts with restore="auto" could then not resume.
    """
    from dataflow.observe.checkpoints import store_in
    from dataflow.observe.removal import delete, planned, text, to_json
    from dataflow.store.status import refuse_unknown

    refuse_unknown(store_in(directory), ids)  # before the files of the lock are written
    with store_in(directory) as store:
        removal = planned(store, ids)
        if not yes:
            removal.refuse_the_last()
        deleted = delete(store, removal)
    click.echo(json.dumps(to_json(removal, deleted), indent=1) if as_json else text(removal, deleted))


def _print_section(title: str, table: Table) -> None:
    make_console().print(printable_lines(title), markup=False)
    print_table(table)


def _none_in(directory: Path) -> str:
    return f"there are no checkpoints in {directory}; give the directory that the job has as Checkpointing(location)"
