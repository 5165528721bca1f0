"""The command line. Only click is imported to parse it; what a command needs comes when it runs.

Exit codes: 0; 1: a mode did not do what it promises; 2: an error that the user can mend; 130: interrupted.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from dataflow import __version__
from dataflow.clock import SystemClock, duration_text, microseconds
from dataflow.compare.options import KillPoint, Options, RunnerName
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import BarrierflowWarning, ConfigurationError, DataflowError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["main"]

_F = TypeVar("_F", bound=Callable[..., Any])

_PLAIN_WIDTH = 2_000
"""Columns of a table that goes to a file or a pipe: enough for any, for Markdown has no cells of two lines."""


class _Commands(click.Group):
    """A group whose commands end in one red line where something is wrong, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _showing(warnings.showwarning)
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            _complain("interrupted", interrupt)
            ctx.exit(130)
        except (DataflowError, OSError, BarrierflowWarning) as error:
            if ctx.meta.get("traceback") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            _complain(f"error: {error}", error)
            ctx.exit(2)


def _showing(show: Callable[..., None]) -> Callable[..., None]:
    """Return a ``warnings.showwarning`` that prints warnings of this library as one line, without the line of code."""

    def showwarning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, BarrierflowWarning):
            _console(stderr=True).print(f"warning: {message}", style="yellow", markup=False)
        else:
            show(message, category, *where, **more)

    return showwarning


def _complain(text: str, error: BaseException | None = None) -> None:
    console = _console(stderr=True)
    console.print(text, style="red", markup=False)
    for note in getattr(error, "__notes__", ()):
        console.print(f"  {note}", markup=False)


def _console(*, stderr: bool = False) -> Console:
    """A console that is plain, and wide, where it is not a terminal; rich itself obeys NO_COLOR."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, soft_wrap=stderr, width=None if terminal else _PLAIN_WIDTH)


def _print_table(table: Table) -> None:
    """Lines on a terminal; Markdown in a file or a pipe."""
    from rich import box

    console = _console()
    if console.is_terminal:
        console.print(table)
        return
    table.box, table.pad_edge = box.MARKDOWN, True
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip()))


def _fits(table: Table, console: Console) -> bool:
    """Whether ``console`` is wide enough for ``table`` without breaking its cells."""
    return console.measure(table, options=console.options.update(width=_PLAIN_WIDTH)).maximum <= console.width


def _duration(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """See that a duration is one, under the name that was typed."""
    if value is not None and microseconds(value, option.opts[0]) == 0 and option.name == "every":
        raise ConfigurationError("--every must be above zero")
    return value


def _traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's call
    if value:
        ctx.meta["traceback"] = True


def _with_traceback(command: _F) -> _F:
    return click.option(
        "--traceback",
        is_flag=True,
        expose_value=False,
        callback=_traceback,
        help="Show where an error came from.",
    )(command)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="barrierflow")
@_with_traceback
def main() -> None:
    """Barrier-aligned dataflow, with checkpoints one can compare."""


def _with_place(command: _F) -> _F:
    """The options of commands that work in a directory and report on modes."""
    options = (
        click.option(
            "--mode",
            "modes",
            multiple=True,
            type=click.Choice([mode.value for mode in Mode]),
            help="Try this checkpoint mode; may be repeated. Default: all.",
        ),
        click.option(
            "--directory",
            type=click.Path(path_type=Path),
            help="Work in this directory, empty or missing, and leave everything there. Default: a temporary one.",
        ),
        click.option("--keep", is_flag=True, help="Do not delete the temporary directory."),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _modes(names: tuple[str, ...]) -> list[Mode]:
    return [Mode(name) for name in dict.fromkeys(names)]


@main.command()
@_with_place
@click.option("--flights", type=int, help="Use only the first so many flights (at least 20,000). Default: all 336,776.")
@click.option(
    "--runner",
    default=RunnerName.LOCAL.value,
    show_default=True,
    type=click.Choice([name.value for name in RunnerName]),
    help="What runs the job; `spark` has mode `aligned` only, and needs the extra `spark` and Java 17.",
)
@_with_traceback
def demo(
    modes: tuple[str, ...], directory: Path | None, flights: int | None, runner: str, *, keep: bool, as_json: bool
) -> None:
    """Kill a running job with SIGKILL in the middle of a checkpoint, restore it, and check its result.

    The job counts the flights of New York's airports in 2013 and averages their delays, per airport and airline. Needs
    the extra `demo`: pip install 'barrierflow[demo]'.

    On Spark a micro-batch is the checkpoint: driver, JVM and workers are killed in the middle of one.
    """
    from dataflow.demo import show

    def run(folder: Path, say: Callable[[str], None]) -> Report:
        return show(folder, _modes(modes), runner=RunnerName(runner), flights=flights, say=say)

    _report(run, directory, keep=keep, as_json=as_json)


@main.command()
@click.argument("target", metavar="MODULE:PIPELINE")
@_with_place
@click.option(
    "--every", default="100ms", show_default=True, callback=_duration, help="Time between two checkpoints, above zero."
)
@click.option(
    "--slow",
    multiple=True,
    metavar="OPERATOR=DURATION",
    help="Make this operator wait so long for every row, as in --slow counts=100us; may be repeated.",
)
@click.option(
    "--kill",
    default=KillPoint.IN_CHECKPOINT.value,
    show_default=True,
    type=click.Choice([point.value for point in KillPoint]),
    help="Kill the process while a checkpoint after a complete one is written, right after one is complete, before any "
    "is, or not at all.",
)
@click.option("--parallelism", default=2, show_default=True, help="Subtasks of each operator that does not say.")
@click.option(
    "--credit",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="Batches a channel holds before its writer must wait.",
)
@click.option(
    "--alignment-timeout",
    callback=_duration,
    help="How long mode aligned-timeout aligns before it overtakes. Default: 100ms.",
)
@_with_traceback
def compare(
    target: str,
    modes: tuple[str, ...],
    directory: Path | None,
    every: str,
    slow: tuple[str, ...],
    kill: str,
    parallelism: int,
    credit: int,
    alignment_timeout: str | None,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    """Compare the checkpoint modes on a pipeline of your own.

    MODULE:PIPELINE names a Pipeline, or a callable that gives one; modules of the current directory are found. For each
    mode the pipeline is run undisturbed, then in a process that is killed with SIGKILL, then restored, and its outputs
    are compared.

    Nothing is written where the pipeline would write: each sink is replaced by Parquet files in the directory of this
    command. The input must end, and be readable again. The module is imported, so what it does on import it does.
    """
    from dataflow.compare.comparing import compare as compared
    from dataflow.compare.subject import Subject

    options = Options(
        modes=_modes(modes) or list(Mode),
        every=every,
        slow=_costs(slow),
        kill=KillPoint(kill),
        parallelism=parallelism,
        credit=credit,
        alignment_timeout=alignment_timeout,
    )

    def run(folder: Path, say: Callable[[str], None]) -> Report:
        return compared(Subject(target), folder, options, say=say)

    _report(run, directory, keep=keep, as_json=as_json)


def _costs(words: tuple[str, ...]) -> dict[str, str]:
    pairs = [word.rpartition("=") for word in words]
    for word, (name, _, cost) in zip(words, pairs, strict=True):
        if not name or not cost:
            raise ConfigurationError(f"--slow takes OPERATOR=DURATION, as in counts=100us, got {word!r}")
        microseconds(cost, f"the DURATION of --slow {word}")
    return {name: cost for name, _, cost in pairs}


class Report(Protocol):
    """What demo and compare have to say."""

    @property
    def headline(self) -> str: ...

    @property
    def duration(self) -> int: ...

    @property
    def problems(self) -> list[str]: ...

    def table(self) -> Table: ...

    def sheet(self) -> Table: ...

    def to_json(self) -> dict[str, Any]: ...


def _report(
    run: Callable[[Path, Callable[[str], None]], Report], directory: Path | None, *, keep: bool, as_json: bool
) -> None:
    """Run in ``directory``, or in a temporary one that stays only where it is wanted or where there is a problem."""
    from dataflow.compare.comparing import claim_folder

    folder = directory or Path(tempfile.mkdtemp(prefix="barrierflow-"))
    kept = keep or directory is not None
    try:
        claim_folder(folder)
        with _progress() as say:
            report = run(folder, say)
        kept = kept or bool(report.problems)
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(report.to_json() | {"kept": kept}, indent=1))
    else:
        console = _console()
        console.print(report.headline)
        wide = report.table()
        _print_table(wide if _fits(wide, console) else report.sheet())
        console.print(f"{duration_text(report.duration)} in all; " + _whereabouts(folder, kept=kept))
    for problem in report.problems:
        _complain(f"error: {problem}")
    if report.problems:
        sys.exit(1)


def _whereabouts(folder: Path, *, kept: bool) -> str:
    if kept:
        return f"output and checkpoints are in {folder}"
    return f"output and checkpoints were in {folder} and are deleted; --keep keeps them"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on a terminal's stderr that says what is being done; nothing anywhere else."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--restore", type=click.IntRange(min=1), help="Show what a restore of this one would report; read only.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON; `created` is in seconds since 1970.")
@_with_traceback
def checkpoints(directory: Path, restore: int | None, *, as_json: bool) -> None:
    """List the checkpoints in DIRECTORY, reading each one through to see whether it is whole."""
    if restore is None:
        _list_checkpoints(directory, as_json=as_json)
    else:
        _preview(directory, restore, as_json=as_json)


def _list_checkpoints(directory: Path, *, as_json: bool) -> None:
    from dataflow.observe.checkpoints import list_checkpoints, sheet, table

    found = list_checkpoints(directory)
    if as_json:
        click.echo(json.dumps([line.to_json() for line in found], indent=1))
    elif not found:
        click.echo(f"there are no checkpoints in {directory}")
    else:
        now = SystemClock().wall()
        wide = table(found, now)
        _print_table(wide if _fits(wide, _console()) else sheet(found, now))


def _preview(directory: Path, checkpoint: int, *, as_json: bool) -> None:
    from dataflow.observe.restores import headline, table
    from dataflow.runtime.restore.find_checkpoint import preview
    from dataflow.store.directory import DirectoryStore

    report = preview(DirectoryStore(directory), checkpoint)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        _console().print(headline(report), markup=False)
        _print_table(table(report))
