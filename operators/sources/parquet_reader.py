"""The reader of Parquet splits: decodes batch by batch, and leaves its file open for the next split."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from dataflow.contracts.source import END, EndOfSplit, SourceContext, SplitReader
from dataflow.errors import SourceError
from dataflow.state.dictionaries import widened_array
from operators.sources.files import Files
from operators.sources.row_groups import Piece, SplitLayout

__all__ = ["DAMAGED", "ParquetOpener", "ParquetReader"]

DAMAGED: Final = (OSError, pa.ArrowException)  # pyarrow's errors for a missing or damaged file


class _OpenFile(NamedTuple):
    """A file that a closed reader left open for the next one. ``footer`` is that of the file when it was opened."""

    path: str
    footer: str
    file: pq.ParquetFile

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class ParquetOpener:
    """Opens a file once for all splits that a subtask reads from it in turn."""

    path: str
    footer: str
    metadata: pq.FileMetaData
    dictionary: tuple[str, ...]
    where: Files
    context: SourceContext

    _KEY: ClassVar = "read_parquet"

    def open(self, names: Sequence[str]) -> pq.ParquetFile:
        left = self.context.left_open.pop(self._KEY, None)
        if isinstance(left, _OpenFile):
            if (left.path, left.footer) == (self.path, self.footer):
                return left.file
            left.close()
        # memory_map would be a few percent faster, but end the process, not the read, if the file shrank meanwhile
        return pq.ParquetFile(
            self.path,
            metadata=self.metadata,
            memory_map=False,
            pre_buffer=False,
            read_dictionary=[name for name in self.dictionary if name in names],
            filesystem=self.where.filesystem,
        )

    def leave(self, opened: pq.ParquetFile) -> None:
        self.context.left_open[self._KEY] = _OpenFile(self.path, self.footer, opened)


class ParquetReader(SplitReader):
    """Decodes a split. After a restore, the rows before the offset are decoded too, except whole row groups.

    A poll takes the rows of one batch up to a row of the split, of which only those are decoded that are not pruned. If
    none are left, it returns an empty batch, so that batches end where they would without pruning.
    """

    def __init__(self, split: str, layout: SplitLayout, offset: int, schema: pa.Schema, opener: ParquetOpener) -> None:
        self._split = split
        self._layout = layout
        self._kept = layout.kept()
        self._pruned = 0
        self._offset = offset
        self._schema = schema
        self._opener = opener
        self._rest: pa.RecordBatch | None = None
        self._pieces = deque(layout.after(offset))
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._file: pq.ParquetFile | None = None
        try:
            if self._pieces:
                self._file = opener.open(schema.names)
            skip = offset - self._pieces[0].start if self._pieces else 0
            while skip > 0 and (batch := self._next()) is not None:
                self._rest = batch.slice(skip)
                skip -= batch.num_rows
        except DAMAGED as error:
            raise self._damaged(error) from error

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        if self._offset >= self._layout.total:
            return END
        end = self._layout.end_of_batch(self._offset)
        before, left = self._kept.count(self._offset), self._kept.count(end) - self._kept.count(self._offset)
        rows = min(max_rows, left)
        try:
            batch = self._take(rows)
        except DAMAGED as error:
            raise self._damaged(error) from error
        stop = end if rows == left else self._kept.row_after(before + rows)
        self._pruned += stop - self._offset - rows
        self._offset = stop
        return batch

    def _take(self, rows: int) -> pa.RecordBatch:
        """Return exactly ``rows`` rows, so that where a poll ends does not depend on how pages are decoded."""
        parts, missing = [], rows
        while missing:
            if not self._rest:
                self._rest = self._next()
                if self._rest is None:
                    raise OSError(f"{missing} rows fewer than its footer says")
            parts.append(self._rest.slice(0, missing))
            self._rest = self._rest.slice(missing)
            missing -= parts[-1].num_rows
        if not parts:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _next(self) -> pa.RecordBatch | None:
        batch = next(self._batches, None)
        while batch is None and self._pieces:
            piece = self._pieces.popleft()
            assert self._file is not None, "a reader that was closed"
            self._batches = self._decoded(self._file, piece)
            batch = next(self._batches, None)
        if batch is None or not self._schema.names:
            return batch
        # a name with a dot may also have selected a struct; files may order their columns differently
        columns = [_laid_out(batch.column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _decoded(self, file: pq.ParquetFile, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Return the batches of ``piece``. pyarrow ends one where a dictionary ends, which is at each row group."""
        batches = file.iter_batches(piece.batch_rows, list(piece.groups), self._schema.names, use_threads=False)
        whole = len(piece.groups) > 1 and self._layout.rows_of(piece) <= piece.batch_rows
        if whole and any(types.is_dictionary(type_) for type_ in self._schema.types):
            return iter([pa.concat_batches(list(batches))])
        return batches

    def _damaged(self, error: Exception) -> SourceError:
        if self._file is not None:
            self._file.close()
            self._file = None
        return SourceError(
            f"read_parquet: {self._split!r} is damaged somewhere after row {self._offset}: {error}; "
            f"restore the file from a good copy"
        )

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def rows_pruned(self) -> int:
        return self._pruned

    @property
    def mid_batch(self) -> bool:
        return not self._layout.is_between(self._offset)

    def close(self) -> None:
        self._rest = None
        self._batches = iter(())
        if self._file is not None:
            self._opener.leave(self._file)
            self._file = None


def _laid_out(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return ``array`` with wide indices, and views as plain text or binary, because few kernels take views."""
    wide = widened_array(array)
    return wide if wide.type == type_ else wide.cast(type_)
