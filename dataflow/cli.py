"""The command line. Only click is imported to parse it; a command imports its own modules when it runs.

Exit codes: 0: success; 1: a mode did not keep its guarantee, or could not be tested; 2: an error that the user can fix;
130: interrupted.
"""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from dataflow import __version__
from dataflow.clock import SystemClock, duration_text, microseconds
from dataflow.compare.options import KillPoint, Options, RunnerName
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import BarrierflowWarning, ConfigurationError, DataflowError, PipelineFailed
from dataflow.runtime.task.channel import DEFAULT_CREDIT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dataflow.compare.tables import ReportTable

__all__ = ["main"]

_F = TypeVar("_F", bound=Callable[..., Any])

_PLAIN_WIDTH = 2_000
"""Columns of a table that goes to a file or a pipe: enough for any, because a cell of Markdown has one line."""
_TEXT_WIDTH = 110
"""Columns of sentences, on terminals with that many."""


class _Commands(click.Group):
    """A group whose commands print an error as one red line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _print_warnings_with(warnings.showwarning)
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            _print_error("interrupted", interrupt)
            ctx.exit(130)
        except (DataflowError, OSError, BarrierflowWarning) as error:
            if ctx.meta.get("traceback") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            _print_error(f"error: {error}", error)
            ctx.exit(2)


def _print_warnings_with(show: Callable[..., None]) -> Callable[..., None]:
    """Return a ``warnings.showwarning`` that prints warnings of this library as one line, and others with ``show``."""

    def showwarning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, BarrierflowWarning):
            _console(stderr=True).print(f"warning: {message}", style="yellow", markup=False)
        else:
            show(message, category, *where, **more)

    return showwarning


def _print_error(text: str, error: BaseException | None = None) -> None:
    """Print ``text`` in red to stderr, and the notes of ``error`` below it."""
    console = _console(stderr=True)
    console.print(text, style="red", markup=False)
    for note in getattr(error, "__notes__", ()):
        console.print(f"  {note}", markup=False)


def _console(*, stderr: bool = False) -> Console:
    """Return a console; it is plain and wide if the stream is not a terminal. rich itself obeys NO_COLOR."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, soft_wrap=stderr, width=None if terminal else _PLAIN_WIDTH)


def _print_table(table: Table) -> None:
    """Print a table with lines on a terminal, and as Markdown to a file or a pipe."""
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
    """Return whether ``console`` is wide enough for ``table`` without breaking its cells."""
    return console.measure(table, options=console.options.update(width=_PLAIN_WIDTH)).maximum <= console.width


def _duration(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check the duration of an option, and name the option as it was typed in errors."""
    if value is not None and microseconds(value, option.opts[0]) == 0 and option.name == "every":
        raise ConfigurationError(f"--every must be above zero, such as 100ms, got {value!r}")
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
        help="Print the Python traceback of an error, for bug reports.",
    )(command)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="barrierflow")
@_with_traceback
def main() -> None:
    """Run Arrow dataflows with exactly-once checkpoints, and compare checkpoint modes."""


def _with_run_options(keep_by_default: bool) -> Callable[[_F], _F]:  # noqa: FBT001 - the only argument
    """Return a decorator that adds the options of commands that run modes in a directory and report on them."""
    default = "kept" if keep_by_default else "deleted unless a check failed"
    options = (
        click.option(
            "--mode",
            "modes",
            multiple=True,
            type=click.Choice([mode.value for mode in Mode]),
            help="Checkpoint mode to run; may be repeated.  [default: all]",
        ),
        click.option(
            "--directory",
            type=click.Path(path_type=Path),
            help="Directory for all files, which must be empty or missing; it is kept.  [default: a new temporary "
            f"directory, {default}]",
        ),
        click.option(
            "--keep/--no-keep",
            default=None,
            help=f"Keep or delete the temporary directory after the run.  [default: it is {default}]",
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print only the report, as JSON, with times in microseconds; no progress unless stderr is a terminal.",
        ),
    )

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _modes(names: tuple[str, ...]) -> list[Mode]:
    return [Mode(name) for name in dict.fromkeys(names)]


@main.command()
@_with_run_options(keep_by_default=True)
@click.option(
    "--flights", type=int, help="Number of flights to read, at least 20,000.  [default: all 336,776 of the year 2013]"
)
@click.option(
    "--runner",
    default=RunnerName.LOCAL.value,
    show_default=True,
    type=click.Choice([name.value for name in RunnerName]),
    help="Runner of the job. `spark` has only mode `aligned`, and needs the extra `spark` and Java 17.",
)
@_with_traceback
def demo(
    modes: tuple[str, ...],
    directory: Path | None,
    flights: int | None,
    runner: str,
    *,
    keep: bool | None,
    as_json: bool,
) -> None:
    """Kill a running job in the middle of a checkpoint, restore it, and check its result.

    The job counts the flights of New York's airports in 2013 and averages their delays, per airport and airline. Each
    checkpoint mode takes about ten seconds: a run without a kill, a run that is killed with SIGKILL, and its restore.
    A sentence before each phase says what happens next, and why. The results stay in a directory that is printed at
    the end.

    Needs the extra `demo`: pip install 'barrierflow[demo]'. It needs no network.

    On Spark a micro-batch is the checkpoint: driver, JVM and workers are killed in the middle of one.
    """
    from dataflow.demo import run_modes

    def run(folder: Path, say: Callable[[str], None]) -> PrintableReport:
        return run_modes(folder, _modes(modes), runner=RunnerName(runner), flights=flights, say=say)

    say = _progress(to_stderr=as_json, silent=as_json and not sys.stderr.isatty())
    _run_and_report(run, say, directory, keep=keep, keep_by_default=True, as_json=as_json)


@main.command()
@click.argument("target", metavar="MODULE:PIPELINE")
@_with_run_options(keep_by_default=False)
@click.option(
    "--every",
    default="100ms",
    show_default=True,
    metavar="DURATION",
    callback=_duration,
    help="Time between two checkpoints, above zero, with a unit: us, ms, s, min or h.",
)
@click.option(
    "--slow",
    multiple=True,
    metavar="OPERATOR=DURATION",
    help="Time that an operator waits for each row, such as --slow counts=100us; may be repeated. Rows then wait in "
    "queues in front of it.  [default: none]",
)
@click.option(
    "--kill",
    default=KillPoint.IN_CHECKPOINT.value,
    show_default=True,
    type=click.Choice([point.value for point in KillPoint]),
    help="When to kill the process: while a checkpoint is written and an earlier one is complete, right after one is "
    "complete, before any is complete, or never.",
)
@click.option(
    "--parallelism",
    default=2,
    show_default=True,
    help="Number of subtasks of each operator that does not set its own, at least 1.",
)
@click.option(
    "--credit",
    default=DEFAULT_CREDIT,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of batches that a channel holds before its writer must wait.",
)
@click.option(
    "--alignment-timeout",
    metavar="DURATION",
    callback=_duration,
    help="Time after which barriers overtake rows in mode aligned-timeout, with a unit: us, ms, s, min or h.  "
    "[default: 100ms]",
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
    keep: bool | None,
    as_json: bool,
) -> None:
    """Compare the checkpoint modes on a pipeline of your own.

    MODULE:PIPELINE names a Pipeline, or a callable without arguments that returns one, such as jobs.orders:pipeline.
    The module is imported from the current directory or from Python's search path. For each mode the pipeline is run
    without a kill, then in a process that is killed with SIGKILL, then restored, and the outputs are compared.

    Your sinks are not written to: each is replaced by Parquet files in the directory of this command. The input must
    end, and be readable again. Importing the module has its usual side effects.
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

    def run(folder: Path, say: Callable[[str], None]) -> PrintableReport:
        return compared(Subject(target), folder, options, say=say)

    say = _progress(to_stderr=True, silent=as_json and not sys.stderr.isatty())
    _run_and_report(run, say, directory, keep=keep, keep_by_default=False, as_json=as_json)


def _costs(words: tuple[str, ...]) -> dict[str, str]:
    """Return the durations of --slow by operator. Raises: ConfigurationError."""
    pairs = [word.rpartition("=") for word in words]
    for word, (name, _, cost) in zip(words, pairs, strict=True):
        if not name or not cost:
            raise ConfigurationError(f"--slow expects OPERATOR=DURATION, such as counts=100us, got {word!r}")
        microseconds(cost, f"the DURATION of --slow {word}")
    return {name: cost for name, _, cost in pairs}


class PrintableReport(Protocol):
    """The report of demo or compare."""

    @property
    def headline(self) -> str: ...

    @property
    def duration(self) -> int: ...

    @property
    def problems(self) -> list[str]: ...

    @property
    def tables(self) -> Sequence[ReportTable]: ...

    @property
    def closing(self) -> Sequence[str]: ...

    def where_to_look(self) -> list[str]: ...

    def to_json(self) -> dict[str, Any]: ...


def _run_and_report(
    run: Callable[[Path, Callable[[str], None]], PrintableReport],
    say: Callable[[str], None],
    directory: Path | None,
    *,
    keep: bool | None,
    keep_by_default: bool,
    as_json: bool,
) -> None:
    """Run in ``directory``, or in a temporary one.

    ``keep`` decides whether the temporary one is kept. None: keep it after a run, if that is the default or if a check
    failed, and delete it after an error.
    """
    from dataflow.compare.comparing import claim_folder

    folder = directory or Path(tempfile.mkdtemp(prefix="barrierflow-"))
    is_kept = directory is not None or bool(keep)
    try:
        claim_folder(folder)
        report = run(folder, say)
        is_kept = is_kept or (keep is None and (keep_by_default or bool(report.problems)))
    except PipelineFailed as error:
        if not is_kept:
            error.add_note("The files and logs of the runs are deleted; use --keep or --directory to keep them.")
        raise
    except KeyboardInterrupt:  # its notes are about a single run, which cannot be resumed from outside
        files = f"are in {folder}" if is_kept else "are deleted; use --keep or --directory to keep them"
        interrupt = KeyboardInterrupt()
        interrupt.add_note(f"The files and logs of the runs so far {files}.")
        raise interrupt from None
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(report.to_json() | {"kept": is_kept}, indent=1))
    else:
        _print_report(report, folder, is_kept=is_kept)
    for problem in report.problems:
        _print_error(f"error: {problem}")
    if report.problems:
        sys.exit(1)


def _print_report(report: PrintableReport, folder: Path, *, is_kept: bool) -> None:
    """Print the tables with their legends, the conclusions, and where the files are."""
    console = _console()
    click.echo()
    click.echo(_wrapped(report.headline))
    for table in report.tables:
        click.echo(f"\n{table.title}\n")
        wide = table.wide()
        _print_table(wide if _fits(wide, console) else table.narrow())
        click.echo()
        for line in table.legend_lines():
            click.echo(_wrapped(line, "- "))
    click.echo()
    first, *others = report.closing
    click.echo(_wrapped(first))
    for paragraph in others:
        click.echo(_wrapped(paragraph, "- "))
    click.echo(f"\nIt took {duration_text(report.duration)}.")
    if is_kept:
        for line in report.where_to_look():
            click.echo(line)
        click.echo(f"To delete all files: rm -r {shlex.quote(str(folder))}")
    else:
        click.echo(f"All files of the runs were in {folder} and are deleted; use --keep to keep them.")


def _wrapped(text: str, bullet: str = "") -> str:
    """Return ``text`` in lines for the terminal, with further lines indented to the width of ``bullet``."""
    width = min(_TEXT_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _TEXT_WIDTH
    indent = " " * len(bullet)
    return textwrap.fill(
        text,
        max(width, 40),
        initial_indent=bullet,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _progress(*, to_stderr: bool, silent: bool) -> Callable[[str], None]:
    """Return a function that prints a sentence, after the seconds since the start. It prints no control characters."""
    clock = SystemClock()
    started = clock.now()

    def say(text: str) -> None:
        if not silent:
            click.echo(_wrapped(text, f"[{(clock.now() - started) / 1e6:5.1f} s] "), err=to_stderr)

    return say


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--restore",
    type=click.IntRange(min=1),
    metavar="ID",
    help="Print what a restore of checkpoint ID would report, without changing anything.  [default: list all]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON; `created` is in seconds since 1970, and sizes are in bytes.",
)
@_with_traceback
def checkpoints(directory: Path, restore: int | None, *, as_json: bool) -> None:
    """List and verify the checkpoints in DIRECTORY.

    DIRECTORY is the location of a Checkpointing. Every part of every checkpoint is read, so that damaged ones are
    listed with the reason. Nothing is changed.
    """
    if restore is None:
        _list_checkpoints(directory, as_json=as_json)
    else:
        _preview_restore(directory, restore, as_json=as_json)


def _list_checkpoints(directory: Path, *, as_json: bool) -> None:
    from dataflow.observe.checkpoints import LEGEND, list_checkpoints, sheet, table

    lines = list_checkpoints(directory)
    if as_json:
        click.echo(json.dumps([line.to_json() for line in lines], indent=1))
    elif not lines:
        click.echo(
            f"there are no checkpoints in {directory}; give the directory that the job has as Checkpointing(location)"
        )
    else:
        now = SystemClock().wall()
        wide = table(lines, now)
        _print_table(wide if _fits(wide, _console()) else sheet(lines, now))
        click.echo()
        for heading, meaning in LEGEND.items():
            click.echo(_wrapped(f"{heading}: {meaning}", "- "))


def _preview_restore(directory: Path, checkpoint: int, *, as_json: bool) -> None:
    from dataflow.observe.restores import headline, table
    from dataflow.runtime.restore.find_checkpoint import preview
    from dataflow.store.directory import DirectoryStore

    report = preview(DirectoryStore(directory), checkpoint)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        _console().print(headline(report), markup=False)
        _print_table(table(report))


@main.command()
@_with_traceback
def warm() -> None:
    """Compile all loops of the library ahead of time, for images and CI.

    Without this command, the first job on a machine compiles the loops that it needs, which takes a few seconds. The
    loops are stored beside the installed package if this user can write there, so that all users of an image read them,
    else in the user's own cache. BARRIERFLOW_CACHE names another directory. Loops that are stored already are not
    compiled again. They suit processors like this machine's, and the installed versions of the library, numba and
    Python; elsewhere they are compiled again.
    """
    from dataflow.kernel_cache.two_processes import Missing
    from dataflow.kernel_cache.warm import warm as compile_all

    def begin(missing: Missing, processes: int) -> None:
        where = "two processes" if processes == 2 else "one process"
        click.echo(f"compiling {missing.loops} loops in {where}", err=True)

    clock = SystemClock()
    started = clock.now()
    result = compile_all(begin)
    where = " and ".join(map(str, result.folders))
    if result.compiled:
        click.echo(
            f"compiled {result.compiled} of {result.loops} loops in {duration_text(clock.now() - started)}: {where}"
        )
    else:
        click.echo(f"all {result.loops} loops were compiled before: {where}")
