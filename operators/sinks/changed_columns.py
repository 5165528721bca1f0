"""Columns of a directory that changed at a restore: ``_commits/columns.json`` says from which checkpoint on.

    {"format": 1, "changes": [{"first": 8, "columns": ["k", "n", "average"]}]}

The files of checkpoints before ``first`` have other columns, or the same ones in another order. Without this file all
files have the same columns. A change may have no files yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from dataflow.errors import StoreError
from dataflow.store.files import FileSystem, storing
from dataflow.untrusted import Count

__all__ = ["ChangedColumns", "ColumnChange", "with_all_columns"]


class ColumnChange(msgspec.Struct, frozen=True):
    """The columns of the files from checkpoint ``first`` on."""

    first: Count
    columns: tuple[str, ...]


class _Stored(msgspec.Struct, frozen=True):
    format: int
    changes: tuple[ColumnChange, ...]


class ChangedColumns:
    """The changes of columns that are noted in ``commits``. Every method raises StoreError if the disk fails."""

    def __init__(self, commits: Path, files: FileSystem) -> None:
        self._path = commits / "columns.json"
        self._files = files

    def all(self) -> tuple[ColumnChange, ...]:
        """Return the changes, in order of the checkpoints."""
        with storing("read", self._path):
            if self._files.size(self._path) is None:
                return ()
            try:
                return msgspec.json.decode(self._files.read(self._path), type=_Stored).changes
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise StoreError(f"{self._path}: expected changes of columns, found {error}") from error

    def note(self, first: int, columns: Sequence[str]) -> None:
        """Note that files have ``columns`` from checkpoint ``first`` on. May be repeated."""
        self._write([*[change for change in self.all() if change.first < first], ColumnChange(first, tuple(columns))])

    def take_back(self, checkpoint: int) -> None:
        """Forget the changes after ``checkpoint``."""
        self._keep([change for change in self.all() if change.first <= checkpoint])

    def begin(self) -> None:
        """Let the changes be of files of earlier jobs, whose checkpoints do not count any more."""
        self._keep([ColumnChange(0, change.columns) for change in self.all()])

    def forget(self) -> None:
        """Forget all changes: there are no files."""
        self._keep([])

    def _keep(self, changes: Sequence[ColumnChange]) -> None:
        if (*changes,) == self.all():
            return
        if changes:
            self._write(changes)
            return
        with storing("clean up", self._path):
            self._files.remove(self._path)
            self._files.sync_directory(self._path.parent)

    def _write(self, changes: Sequence[ColumnChange]) -> None:
        with storing("write", self._path):
            content = msgspec.json.encode(_Stored(1, tuple(changes)))
            self._files.write_new(self._path, msgspec.json.format(content, indent=1))


def with_all_columns(tables: Sequence[pa.Table], newest: Sequence[str]) -> list[pa.Table]:
    """Return tables with the columns of all of them: ``newest`` first; a column that a table lacks has nulls alone.

    >>> old, new = pa.table({"k": [1], "gone": [2]}), pa.table({"n": [3], "k": [4]})
    >>> [table.column_names for table in with_all_columns([old, new], ["n", "k"])]
    [['n', 'k', 'gone'], ['n', 'k', 'gone']]
    """
    present = list(dict.fromkeys(name for table in reversed(tables) for name in table.column_names))
    names = [*[name for name in newest if name in present], *[name for name in present if name not in newest]]
    return [_with(table, names) for table in tables]


def _with(table: pa.Table, names: Sequence[str]) -> pa.Table:
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return table.select(names)
