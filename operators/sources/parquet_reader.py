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
from dataflow.state.dictionaries import decoded_schema, widened_array
from operators.sources.files import Files
from operators.sources.parquet_dictionaries import Dictionaries
from operators.sources.row_groups import Piece, SplitLayout

__all__ = ["DAMAGED", "ParquetOpener", "ParquetReader"]

DAMAGED: Final = (OSError, pa.ArrowException, UnicodeDecodeError)
"""pyarrow's errors for a missing or damaged file; the last one if the name of a column is not UTF-8."""


class _OpenFile(NamedTuple):
    """A file that a closed reader left open for the next one. ``footer`` is that of the file when it was opened.

    It decodes the columns ``dictionary`` as dictionaries. ``text`` are the columns of ``ParquetOpener.chosen`` that
    became text.
    """

    path: str
    footer: str
    dictionary: Sequence[str]
    text: frozenset[str]
    file: pq.ParquetFile

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class ParquetOpener:
    """Opens a file once for all splits that a subtask reads from it in turn.

    ``dictionary`` are the columns to read as dictionaries; those of them that are ``chosen`` may become text.
    """

    path: str
    footer: str
    metadata: pq.FileMetaData
    dictionary: tuple[str, ...]
    chosen: tuple[str, ...]
    where: Files
    context: SourceContext

    _KEY: ClassVar = "read_parquet"

    def open(self, names: Sequence[str], text: frozenset[str] = frozenset()) -> _OpenFile:
        """Return the open file; the columns ``text``, and those that an earlier reader gave as text, are text."""
        left = self.context.left_open.pop(self._KEY, None)
        text |= left.text if isinstance(left, _OpenFile) else frozenset()
        dictionary = [name for name in self.dictionary if name in names and name not in text]
        if isinstance(left, _OpenFile):
            if (left.path, left.footer, left.dictionary) == (self.path, self.footer, dictionary):
                return left._replace(text=text)
            left.close()
        # memory_map would be a few percent faster, but end the process, not the read, if the file shrank meanwhile
        file = pq.ParquetFile(
            self.path,
            metadata=self.metadata,
            memory_map=False,
            pre_buffer=False,
            read_dictionary=dictionary,
            filesystem=self.where.filesystem,
        )
        return _OpenFile(self.path, self.footer, dictionary, text, file)

    def leave(self, opened: _OpenFile) -> None:
        self.context.left_open[self._KEY] = opened


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
        self._opened: _OpenFile | None = None
        chosen = [name for name in opener.chosen if name in schema.names]
        largest = max(layout.rows, default=0)
        self._dictionaries = Dictionaries(chosen, frozenset(), opener.context.tally, largest)
        try:
            if self._pieces:
                self._opened = opener.open(schema.names)
                self._dictionaries.text = self._opened.text
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
        return self._concat(parts)

    def _concat(self, parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows of ``parts`` as one batch; a column that is text in the last one becomes text in all."""
        if len(parts) > 1 and self._dictionaries.text:
            parts = [self._laid_out(part) for part in parts]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _next(self) -> pa.RecordBatch | None:
        batch = next(self._batches, None)
        while batch is None and self._pieces:
            piece = self._pieces.popleft()
            self._batches = self._decoded(piece)
            batch = next(self._batches, None)
        return batch

    def _decoded(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Return the batches of ``piece``. pyarrow ends one where a dictionary ends, which is at each row group."""
        assert self._opened is not None, "a reader that was closed"
        if self._opened.text != self._dictionaries.text:
            self._opened.close()
            self._opened = self._opener.open(self._schema.names, self._dictionaries.text)
        names, groups = self._schema.names, list(piece.groups)
        batches = self._opened.file.iter_batches(piece.batch_rows, groups, names, use_threads=False)
        if not names:
            return batches
        self._dictionaries.begin([self._layout.rows[group] for group in groups])
        whole = len(groups) > 1 and self._layout.rows_of(piece) <= piece.batch_rows
        laid_out = (self._looked_at(batch) for batch in batches)
        if whole and any(types.is_dictionary(type_) for type_ in self._schema.types):
            return iter([self._concat(list(laid_out))])
        return laid_out

    def _looked_at(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._dictionaries.look(batch)
        return self._laid_out(batch)

    def _laid_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the schema; a column that is no longer a dictionary has its text."""
        # a name with a dot may also have selected a struct; files may order their columns differently
        schema = decoded_schema(self._schema, self._dictionaries.text)
        columns = [_laid_out(batch.column(field.name), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _damaged(self, error: Exception) -> SourceError:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
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
        if self._opened is not None:
            self._opener.leave(self._opened._replace(text=self._dictionaries.text))
            self._opened = None


def _laid_out(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return ``array`` with wide indices, and views as plain text or binary, because few kernels take views."""
    wide = widened_array(array)
    return wide if wide.type == type_ else wide.cast(type_)
