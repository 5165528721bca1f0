"""Print tables, sentences and errors of commands. rich is imported when something is printed."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dataflow.drawing import printable_lines
from dataflow.errors import BarrierflowWarning, DataflowError
from dataflow.runners.interrupts import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["CommandGroup", "fits", "make_console", "print_error", "print_table", "with_traceback", "wrapped"]

_F = TypeVar("_F", bound=Callable[..., Any])

_PLAIN_WIDTH = 2_000
"""Columns of a table that goes to a file or a pipe: enough for any, because a cell of Markdown has one line."""
_TEXT_WIDTH = 110
"""Columns of sentences, on terminals with that many."""


class CommandGroup(click.Group):
    """A group whose commands print an error as one red line instead of a traceback, and take SIGTERM as Ctrl-C."""

    def main(self, *args: Any, **options: Any) -> Any:
        _open_missing_streams()
        with sigterm_as_ctrl_c():
            return super().main(*args, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            print_error("interrupted")
            sys.exit(130)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _print_warnings_with(warnings.showwarning)
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            print_error("interrupted", interrupt)
            ctx.exit(130)
        except (DataflowError, OSError, BarrierflowWarning) as error:
            if ctx.meta.get("traceback") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise
            print_error(f"error: {error}", error)
            ctx.exit(2)


def _open_missing_streams() -> None:
    """Open the null device for standard streams that were closed when the process started (``2>&-``).

    Without it, Python has None for them, and the next file that is opened gets their descriptor.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def _print_warnings_with(show: Callable[..., None]) -> Callable[..., None]:
    """Return a ``warnings.showwarning`` that prints warnings of this library as one line, and others with ``show``."""

    def showwarning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, BarrierflowWarning):
            make_console(stderr=True).print(printable_lines(f"warning: {message}"), style="yellow", markup=False)
        else:
            show(message, category, *where, **more)

    return showwarning


def print_error(text: str, error: BaseException | None = None) -> None:
    """Print ``text`` in red to stderr, and the notes of ``error`` below it."""
    console = make_console(stderr=True)
    console.print(printable_lines(text), style="red", markup=False)
    for note in getattr(error, "__notes__", ()):
        console.print(printable_lines(f"  {note}"), markup=False)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console; it is plain and wide if the stream is not a terminal. rich itself obeys NO_COLOR."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, soft_wrap=stderr, width=None if terminal else _PLAIN_WIDTH)


def print_table(table: Table) -> None:
    """Print a table with lines on a terminal, and as Markdown to a file or a pipe."""
    from rich import box

    console = make_console()
    if console.is_terminal:
        console.print(table)
        return
    table.box, table.pad_edge = box.MARKDOWN, True
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip()))


def fits(table: Table, console: Console) -> bool:
    """Return whether ``console`` is wide enough for ``table`` without breaking its cells."""
    return console.measure(table, options=console.options.update(width=_PLAIN_WIDTH)).maximum <= console.width


def _traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's call
    if value:
        ctx.meta["traceback"] = True


def with_traceback(command: _F) -> _F:
    """Add the option ``--traceback`` to a command."""
    return click.option(
        "--traceback",
        is_flag=True,
        expose_value=False,
        callback=_traceback,
        help="Print the Python traceback of an error, for bug reports.",
    )(command)


def wrapped(text: str, bullet: str = "") -> str:
    """Return ``text`` in lines for the terminal, without control characters.

    Further lines are indented to the width of ``bullet``.
    """
    width = min(_TEXT_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _TEXT_WIDTH
    indent = " " * len(bullet)
    return textwrap.fill(
        printable_lines(text),
        max(width, 40),
        initial_indent=bullet,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
