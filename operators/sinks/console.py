"""Batches as tables on a terminal or in a text file, at least once.

A table is rendered as a whole and written in one piece, so that the tables of several subtasks do not mix. No value may
stop the job: one that cannot be rendered is shown as its type.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Final, TextIO

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.errors import ConfigurationError

__all__ = ["ConsoleSink", "console", "rendered"]

_WIDTH: Final = 120
_COLUMN: Final = 40
_LEAST_COLUMN: Final = 8
_CONTROL: Final = {i: repr(chr(i))[1:-1] for i in (*range(32), *range(127, 160))}


class _Writer(Operator):
    """Prints the rows of one subtask. State: none; a restored job prints up to ``limit`` rows again."""

    blocking = True

    def __init__(self, context: OperatorContext, *, limit: int | None, file: TextIO | None) -> None:
        self._title = f"{context.name}[{context.subtask}]" if context.parallelism > 1 else context.name
        self._left = limit
        self._file = file
        self._hidden = 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        shown = batch if self._left is None else batch.slice(0, self._left)
        if self._left is not None:
            self._left -= shown.num_rows
        self._hidden += batch.num_rows - shown.num_rows
        if shown.num_rows:
            file = self._target()
            width = _terminal_width(file)
            self._print(file, rendered(shown, self._title, width=width))

    def finish(self, out: Out) -> None:
        if self._hidden:
            self._print(self._target(), f"{self._title}: {self._hidden} more rows are not shown (console(limit=))\n")

    def _target(self) -> TextIO:
        return sys.stdout if self._file is None else self._file  # stdout may be redirected while the job runs

    def _print(self, file: TextIO, text: str) -> None:
        encoding = getattr(file, "encoding", None) or "utf-8"
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()


class ConsoleSink(Sink):
    """The sink that ``console`` makes."""

    guarantee = Guarantee.AT_LEAST_ONCE
    idempotent = True  # tables are read by people, so repeated rows do no harm

    def __init__(self, *, limit: int | None, file: TextIO | None) -> None:
        self._limit = limit
        self._file = file

    def __repr__(self) -> str:
        return f"console(limit={self._limit})"

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        """Let columns change: each table is printed with its own."""

    def writer(self, context: OperatorContext) -> _Writer:
        return _Writer(context, limit=self._limit, file=self._file)


def console(*, limit: int | None = 100, file: TextIO | None = None) -> ConsoleSink:
    """Print each batch as a table under the operator's name, and at the end the number of rows that were not shown.

    At least once: rows are printed again after a restore. Wide values are cut, and columns for which the terminal is
    too narrow are left out; nulls are shown as ``null``.

    Args:
        limit: rows that each subtask prints in all; None: every row.
        file: a file that is open for text, flushed after each table; None: standard output.

    Returns: a sink.

    Raises: ConfigurationError for a negative limit.

    >>> console(limit=10)
    console(limit=10)
    """
    if limit is not None and limit < 0:
        raise ConfigurationError(f"console(limit=) must be a number of rows or None, got {limit}")
    return ConsoleSink(limit=limit, file=file)


def rendered(batch: pa.RecordBatch, title: str, *, width: int = _WIDTH) -> str:
    r"""Return ``batch`` as a table of at most ``width`` characters per line.

    >>> print(rendered(pa.record_batch({"x": [1, None], "s": ["a\nb", ""]}), "rows"))
    rows
     x      s
    ─────────────
     1      a\nb
     null
    <BLANKLINE>
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    room = max(width // _LEAST_COLUMN, 1)
    names, left_out = batch.schema.names[:room], batch.num_columns - room
    table = Table(box=box.SIMPLE_HEAD, title=None, show_edge=False)
    for name in names:
        table.add_column(Text(_plain(name)), no_wrap=True, overflow="ellipsis", max_width=_COLUMN)
    if names:
        for row in zip(*(_texts(column) for column in batch.columns[:room]), strict=True):
            table.add_row(*(Text(text) for text in row))
    text = io.StringIO()
    screen = Console(file=text, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    screen.print(table)
    more = f" ({left_out} more columns)" if left_out > 0 else ""
    count = f" ({batch.num_rows} rows)" if not names else ""
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    return "\n".join([f"{_plain(title)}{more}{count}", *lines, ""])


def _texts(column: pa.Array) -> list[str]:
    return [_text(value) for value in column]


def _text(value: pa.Scalar) -> str:
    """Return a value as one line, at most one character longer than a column shows."""
    if not value.is_valid:
        return "null"
    for read in (_cast, pa.Scalar.as_py):
        try:
            return _plain(str(read(value))[: _COLUMN + 1])
        except Exception:  # a year beyond Python's, bytes that are not text, a type without text
            continue
    return f"<{value.type}>"


def _cast(value: pa.Scalar) -> object:
    return value.cast(pa.string()).as_py()


def _plain(text: str) -> str:
    return text.translate(_CONTROL)


def _terminal_width(file: TextIO) -> int:
    """Return the width of the terminal that ``file`` is, or a default for a file."""
    from rich.console import Console

    try:
        return Console(file=file).width if file.isatty() else _WIDTH
    except (AttributeError, OSError, ValueError):
        return _WIDTH
