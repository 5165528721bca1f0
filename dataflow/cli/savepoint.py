"""The command savepoint: asks the job that runs in a checkpoint directory for a savepoint, and waits for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dataflow.cli.parameters import duration
from dataflow.cli.terminal import with_traceback
from dataflow.clock import SystemClock, microseconds
from dataflow.contracts.checkpointing import mode_text
from dataflow.drawing import printable
from dataflow.errors import ConfigurationError

__all__ = ["savepoint"]


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--stop", is_flag=True, help="Stop the job with the savepoint. If it fails, the job continues.")
@click.option(
    "--drain",
    is_flag=True,
    help="With --stop: end the sources where they are, let windows and timers fire, and end the job in any case.",
)
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=duration,
    help="Give up the savepoint after this time, with a unit: us, ms, s, min or h.  [default: never]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the size is in bytes.")
@with_traceback
def savepoint(directory: Path, path: Path, timeout: str | None, *, stop: bool, drain: bool, as_json: bool) -> None:
    """Take a savepoint of the job that runs in DIRECTORY, and write it to PATH.

    DIRECTORY is the checkpoint directory of a job that runs on threads of a process of this user, on this host. PATH is
    new, or an empty directory; a later run starts from it with --restore PATH. It is complete when it has a
    manifest.json, which is written last.

    Ctrl-C ends the command, not the savepoint: the job continues with it.
    """
    from dataflow.runners.control_socket.client import request_savepoint

    if drain and not stop:
        raise ConfigurationError("--drain needs --stop: a job whose sources have ended has nothing more to do")
    limit = None if timeout is None else microseconds(timeout, "--timeout")
    with _WaitingLine("savepoint") as line:
        try:
            taken = request_savepoint(
                directory, path, SystemClock(), stop=stop, drain=drain, timeout=limit, tick=line.show
            )
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"the job continues with the savepoint; there is one when {path} has a manifest.json")
            raise
    if as_json:
        click.echo(json.dumps(taken.to_json(), indent=1))
        return
    what = f"savepoint {taken.checkpoint} of {taken.pipeline} (job {taken.job})"
    text = f"{what}: {taken.path}, {taken.bytes:,} bytes, mode {mode_text(taken.mode, taken.guarantee)}"
    click.echo(printable(text))
    if stop:
        click.echo("the job has stopped")


class _WaitingLine:
    """A line on a terminal that says how long a command has waited; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._clock = SystemClock()
        self._started = self._clock.now()
        self._shown = False

    def show(self) -> None:
        """Show or update the line."""
        if sys.stderr.isatty():
            self._shown = True
            waited = (self._clock.now() - self._started) // 1_000_000
            sys.stderr.write(f"\r\x1b[Kwaiting for the {self._what}: {waited} s")
            sys.stderr.flush()

    def __enter__(self) -> _WaitingLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
