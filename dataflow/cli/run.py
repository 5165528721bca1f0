"""The command run: a pipeline by its name, with progress on stderr and the summary on stdout."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from dataflow.cli.parameters import alignment_timeout, duration, target
from dataflow.cli.terminal import make_console, print_error, with_traceback
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.execution import Execution
from dataflow.drawing import printable
from dataflow.errors import BarrierflowWarning, ConfigurationError, DataflowError, is_raised_by_user, user_traceback

if TYPE_CHECKING:
    from dataflow.api.pipeline import Pipeline
    from dataflow.runners.run_result import RunResult

__all__ = ["run"]

_EVERY: Final = "10s"
"""Time between two checkpoints of a stream, unless the user gives another one."""


@click.command()
@target
@click.option(
    "--checkpoint",
    "location",
    metavar="DIR",
    help="Directory of the checkpoints, created if missing. A run resumes from the newest one in it.  [default: no "
    "checkpoints, so a run always begins at the start of its input]",
)
@click.option(
    "--every",
    metavar="DURATION",
    callback=duration,
    help="Time between two checkpoints, above zero, with a unit: us, ms, s, min or h. There is one more at the end, "
    f"and one when the run is interrupted.  [default: {_EVERY}; a batch has one checkpoint, at its end]",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help=f"Checkpoint mode.  [default: {Mode.ALIGNED.value}]",
)
@alignment_timeout
@click.option(
    "--restore",
    metavar="auto|never|latest|ID|PATH",
    help="Checkpoint to start from: the newest one if there is one (auto), none (never; refused if there are any), the "
    "newest one (latest; refused if there are none), the one with this ID, or the one in this folder.  [default: auto]",
)
@click.option(
    "--parallelism",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of subtasks of each operator that does not set its own.",
)
@click.option(
    "--execution",
    default=Execution.STREAMING.value,
    show_default=True,
    type=click.Choice([execution.value for execution in Execution]),
    help="Process rows as they come, or read all input first, so that no row is late.",
)
@click.option(
    "--record",
    metavar="FILE",
    help="File for the events of the run: what barriers, tasks and checkpoints did, and when.  [default: none]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print only the summary, as JSON, with times in microseconds; no progress unless stderr is a terminal.",
)
@with_traceback
@click.pass_context
def run(
    ctx: click.Context,
    target: str,
    location: str | None,
    every: str | None,
    mode: str | None,
    alignment_timeout: str | None,
    restore: str | None,
    parallelism: int,
    execution: str,
    record: str | None,
    *,
    as_json: bool,
) -> None:
    """Run a pipeline to the end of its input, and print the summary.

    MODULE:PIPELINE names a Pipeline, or a callable without arguments that returns one, such as jobs.orders:pipeline.
    The module is imported from the current directory or from Python's search path. The pipeline runs on threads of this
    process and writes to its own sinks. Rows of op.collect() are counted and not printed; op.console() prints them.

    Ctrl-C and SIGTERM take a last checkpoint, stop, and exit with 130. The same command then resumes. The second signal
    ends the run at once, without a checkpoint.
    """
    from dataflow.compare.subject import Subject

    depends = {"--every": every, "--mode": mode, "--alignment-timeout": alignment_timeout, "--restore": restore}
    _refuse_without_checkpoint(location, [name for name, value in depends.items() if value is not None])
    options: dict[str, Any] = {
        "parallelism": parallelism,
        "execution": execution,
        "progress": sys.stderr.isatty() or not as_json,
    }
    if location is not None:
        options["checkpoint"] = Checkpointing(
            location,
            every=every or (_EVERY if execution == Execution.STREAMING.value else None),
            mode=mode or Mode.ALIGNED,
            alignment_timeout=alignment_timeout,
        )
        options["restore"] = restore or "auto"
    if record is not None:
        options["record"] = record
    result = _result(ctx, Subject(target).pipeline(), options)
    if record is not None:
        click.echo(printable(f"events: {record}; barrierflow timeline {shlex.quote(record)} explains them"), err=True)
    console = make_console()
    if as_json:
        click.echo(result.to_json())
    elif console.is_terminal:
        console.print(result)
    else:
        click.echo(str(result))


def _refuse_without_checkpoint(location: str | None, names: list[str]) -> None:
    """Raise ConfigurationError if options about checkpoints are given without a directory."""
    if names and location is None:
        raise ConfigurationError(
            f"{' and '.join(names)} {'needs' if len(names) == 1 else 'need'} --checkpoint DIR, the directory of the "
            "checkpoints; without it the run takes none"
        )


def _result(ctx: click.Context, pipeline: Pipeline, options: dict[str, Any]) -> RunResult:
    """Run ``pipeline``, and return its result. If a function of the user's raises, print where, and exit with 2."""
    try:
        with pipeline.start(**options) as job:
            return job.wait()
    except (DataflowError, BarrierflowWarning):
        raise  # printed as one line
    except Exception as error:
        if ctx.meta.get("traceback") and not isinstance(error, BrokenPipeError):
            raise
        if isinstance(error, OSError) and not is_raised_by_user(error):
            raise  # a disk, or a closed standard output
        print_error(f"error: the pipeline failed: {type(error).__name__}: {error}\n{user_traceback(error)}", error)
        ctx.exit(2)
