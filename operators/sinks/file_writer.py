"""The writer of one subtask: rows fill a row group, row groups are written to staged files, a barrier closes these.

Guarantees: a transaction is durable on disk before its handle exists. If the disk fails, no rows are lost while the
waiting bytes fit in memory (``StagedFile``): the checkpoint fails, and the closed file becomes part of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.sink import Handle, TwoPhaseWriter
from dataflow.errors import SchemaMismatch, SinkBroken, StoreError
from dataflow.state.dictionaries import wide_schema, widened
from dataflow.store.files import FileSystem
from dataflow.store.staging import StagedFile
from operators.sinks.commits import Transaction
from operators.sinks.directory import OutputDirectory, staged_name
from operators.sinks.formats import FileFormat, TableWriter
from operators.sinks.partitions import Layout

__all__ = ["FileWriter", "RowBuffer"]


class RowBuffer:
    """Rows that wait to become a row group: at most ``rows`` of them and ``size`` bytes, plus one batch.

    Many small batches are merged, because their headers would need more memory than their rows.
    """

    _MERGE = 256

    def __init__(self, schema: pa.Schema, *, rows: int, size: int) -> None:
        self._schema = schema
        self._limit_rows = rows
        self._limit_size = size
        self._merged: list[pa.Table] = []
        self._fresh: list[pa.RecordBatch] = []
        self.rows = 0
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append ``batch``."""
        self._fresh.append(batch)
        self.rows += batch.num_rows
        self._size += batch.nbytes
        if len(self._fresh) == self._MERGE:
            self._merged.append(self._merge())

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows or bytes for a row group."""
        return self.rows >= self._limit_rows or self._size >= self._limit_size

    def take_full(self) -> pa.Table:
        """Remove and return whole row groups; if the limit of bytes was reached first, all rows."""
        table = self.take()
        whole = table.num_rows // self._limit_rows * self._limit_rows or table.num_rows
        for batch in table.slice(whole).to_batches():
            self.add(batch)
        return table.slice(0, whole)

    def take(self) -> pa.Table:
        """Remove and return all rows, as one table."""
        tables = [*self._merged, self._merge()]
        self._merged, self.rows, self._size = [], 0, 0
        return pa.concat_tables(tables)

    def _merge(self) -> pa.Table:
        table = pa.Table.from_batches(self._fresh, self._schema)
        self._fresh = []
        return table.unify_dictionaries().combine_chunks()


@dataclass(slots=True)
class _Open:
    staged: StagedFile
    writer: TableWriter
    rows: int = 0


@dataclass(slots=True)
class _Closed:
    folder: str
    staged: StagedFile
    rows: int


_MOST_OPEN: Final = 32
"""The most files that a writer has open. A file of another partition replaces the one that was written longest ago."""


class FileWriter(TwoPhaseWriter):
    """Writes the rows of one subtask. State: none; a checkpoint has only the rows that were prepared for it."""

    blocking = True

    def __init__(
        self,
        context: OperatorContext,
        directory: OutputDirectory,
        *,
        row_group_rows: int,
        row_group_bytes: int,
        format_: FileFormat,
        layout: Layout,
        files: FileSystem,
    ) -> None:
        self._input = context.input_schemas[0]
        self._schema = wide_schema(self._input)  # a file combines the dictionaries of many batches
        self._name = context.name
        self._subtask = context.subtask
        self._run = context.run_id
        self._directory = directory
        self._format = format_
        self._layout = layout
        self._file_schema = layout.file_schema(self._schema)
        self._form = layout.form(format_, self._schema)
        self._files = files
        self._numbers = count()
        self._buffer = RowBuffer(self._schema, rows=row_group_rows, size=row_group_bytes)
        self._open: dict[str, _Open] = {}  # by folder; the one that was written last comes last
        self._closed: list[_Closed] = []  # complete, for the next transaction; durable unless the disk failed
        self._broken: str | None = None

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._refuse_if_broken()
        if batch.schema != self._input:
            raise SchemaMismatch(f"sink {self._name!r} was opened for {self._input}, got a batch of {batch.schema}")
        if batch.num_rows:
            self._buffer.add(widened(batch))
        if self._buffer.is_full:
            self._write(self._buffer.take_full())

    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        """Close the file and make it durable. Raises: StoreError (try again, no rows lost), SinkBroken (rows lost)."""
        self._refuse_if_broken()
        if self._buffer.rows:
            self._write(self._buffer.take())
        for folder in [*self._open]:
            self._close_file(folder)
        for closed in self._closed:
            try:
                closed.staged.sync()
                closed.staged.check_in_place()
            except SinkBroken as error:
                self._broken = str(error)
                raise
        names: set[str] = set()
        handles: list[Handle] = []
        for closed in self._closed:
            name = self._directory.free_name(checkpoint, self._subtask, names, closed.folder)
            names.add(name)
            staged = closed.staged
            transaction = Transaction(
                name, closed.rows, staged.size, staged.xxh3, self._run, self._form, staged=staged.path.name
            )
            handles.append(transaction.handle())
        for closed in self._closed:  # nothing can fail any more
            closed.staged.abandon()
        self._closed.clear()
        return handles

    def close(self) -> None:
        """Drop all rows that were not prepared: the restart replays them."""
        for file in self._staged():
            file.discard()
        self._closed.clear()
        self._open.clear()

    def _write(self, table: pa.Table) -> None:
        unwritten = table.num_rows
        for folder, rows in self._layout.split(table):
            try:
                self._append(folder, rows)
            except (SinkBroken, pa.ArrowException, OSError) as error:
                self._break(error, unwritten)
            unwritten -= rows.num_rows

    def _append(self, folder: str, table: pa.Table) -> None:
        opened = self._open.pop(folder, None) or self._begin()
        self._open[folder] = opened
        if (rest := opened.writer.write(table)) is not None:
            self._close_file(folder)
            opened = self._open[folder] = self._begin()
            rest = opened.writer.write(rest)
            assert rest is None, f"{self._format.title} refused the first table of a file"
        opened.rows += table.num_rows

    def _begin(self) -> _Open:
        if len(self._open) == _MOST_OPEN:
            self._settle_oldest()
        name = staged_name(self._run, self._subtask, next(self._numbers))
        staged = StagedFile(self._directory.staging / name, files=self._files)
        return _Open(staged, self._format.open(staged, self._file_schema))

    def _settle_oldest(self) -> None:
        """Complete the file that was written longest ago, and make it durable, so that it can be closed."""
        self._close_file(next(iter(self._open)))
        staged = self._closed[-1].staged
        with suppress(StoreError):  # the next prepare() tries again
            staged.sync()
            staged.release()

    def _close_file(self, folder: str) -> None:
        opened = self._open[folder]
        try:
            opened.writer.close()
        except (SinkBroken, pa.ArrowException, OSError) as error:
            self._break(error, 0)
        self._closed.append(_Closed(folder, opened.staged, opened.rows))
        del self._open[folder]

    def _staged(self) -> list[StagedFile]:
        """Return the files of the next transaction."""
        return [closed.staged for closed in self._closed] + [opened.staged for opened in self._open.values()]

    def _break(self, error: BaseException, rows: int) -> None:
        files: list[_Open | _Closed] = [*self._closed, *self._open.values()]
        lost = rows + sum([file.rows for file in files])
        self._broken = f"sink {self._name!r}, subtask {self._subtask}: {lost} staged rows are lost ({error})"
        self.close()
        raise SinkBroken(self._broken) from error

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise SinkBroken(f"{self._broken}; the job must restart from its last checkpoint")
