"""The reader of Parquet splits: decodes batch by batch, and leaves its file open for the next split."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.source import END, EndOfSplit, SourceContext, SplitReader
from dataflow.errors import SourceError
from dataflow.state.dictionaries import decoded_schema, widened_array
from dataflow.untrusted import excerpt
from operators.sources.files import Files
from operators.sources.parquet_dictionaries import Dictionaries
from operators.sources.parquet_file import DAMAGED, ParquetFooter, has_nanoseconds
from operators.sources.parquet_values import DoesNotFit, check_digits, converted
from operators.sources.row_groups import Piece, SplitLayout

__all__ = ["ParquetOpener", "ParquetReader"]


class _OpenFile(NamedTuple):
    """A file that a closed reader left open for the next one.

    It decodes the columns ``dictionary`` as dictionaries. ``text`` are the columns of ``ParquetOpener.chosen`` that
    became text. ``fine`` is the same file, with INT96 times in nanoseconds, if one of the columns has to be compared.
    """

    path: str
    hash: str
    dictionary: Sequence[str]
    text: frozenset[str]
    file: pq.ParquetFile
    fine: pq.ParquetFile | None

    def close(self) -> None:
        self.file.close()
        if self.fine is not None:
            self.fine.close()


@dataclass(frozen=True, slots=True)
class ParquetOpener:
    """Opens a file once for all splits that a subtask reads from it in turn.

    The types of ``declared`` columns are the user's. ``dictionary`` are the columns to read as dictionaries; those of
    them that are ``chosen`` may become text.
    """

    footer: ParquetFooter
    declared: frozenset[str]
    dictionary: tuple[str, ...]
    chosen: tuple[str, ...]
    where: Files
    context: SourceContext

    _KEY: ClassVar = "read_parquet"

    def open(self, schema: pa.Schema, text: frozenset[str] = frozenset()) -> _OpenFile:
        """Return the open file; the columns ``text``, and those that an earlier reader gave as text, are text."""
        left = self.context.left_open.pop(self._KEY, None)
        text |= left.text if isinstance(left, _OpenFile) else frozenset()
        names = frozenset(self.stored(schema)).difference(text)
        dictionary = [name for name in self.dictionary if name in names]
        with_fine = bool(self.compared(schema))
        if isinstance(left, _OpenFile):
            key = (left.path, left.hash, left.dictionary, left.fine is not None)
            if key == (self.footer.path, self.footer.hash, dictionary, with_fine):
                return left._replace(text=text)
            left.close()
        fine = self._opened("ns") if with_fine else None
        return _OpenFile(self.footer.path, self.footer.hash, dictionary, text, self._opened("us", dictionary), fine)

    def _opened(self, int96: str, dictionary: Sequence[str] = ()) -> pq.ParquetFile:
        # memory_map would be a few percent faster, but end the process, not the read, if the file shrank meanwhile
        return pq.ParquetFile(
            self.footer.path,
            metadata=self.footer.metadata,
            memory_map=False,
            pre_buffer=False,
            read_dictionary=dictionary,
            filesystem=self.where.filesystem,
            coerce_int96_timestamp_unit=int96,
        )

    def leave(self, opened: _OpenFile) -> None:
        self.context.left_open[self._KEY] = opened

    def stored(self, schema: pa.Schema) -> list[str]:
        """Return the columns of ``schema`` that the file has."""
        return [name for name in schema.names if name in self.footer.types]

    def compared(self, schema: pa.Schema) -> list[str]:
        """Return the columns with INT96 times that are not only rounded down to microseconds."""
        return [
            field.name
            for field in (schema.field(name) for name in schema.names if name in self.footer.int96)
            if field.name not in self.declared or has_nanoseconds(field.type)
        ]


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
        self._stored = opener.stored(schema)
        chosen = [name for name in opener.chosen if name in self._stored]
        largest = max(layout.rows, default=0)
        self._dictionaries = Dictionaries(chosen, frozenset(), opener.context.tally, largest)
        try:
            if self._pieces:
                self._opened = opener.open(schema)
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
            schema = decoded_schema(self._schema, self._dictionaries.text)
            laid_out = [map(converted, part.columns, schema.types) for part in parts]
            parts = [pa.RecordBatch.from_arrays(list(columns), schema=schema) for columns in laid_out]
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
            self._opened = self._opener.open(self._schema, self._dictionaries.text)
        groups = list(piece.groups)
        batches = self._opened.file.iter_batches(piece.batch_rows, groups, self._stored, use_threads=False)
        if not self._schema.names:
            return batches
        self._dictionaries.begin([self._layout.rows[group] for group in groups])
        whole = len(groups) > 1 and self._layout.rows_of(piece) <= piece.batch_rows
        laid_out = self._laid_out(piece, batches)
        if whole and any(types.is_dictionary(type_) for type_ in self._schema.types):
            return iter([self._concat(list(laid_out))])
        return laid_out

    def _laid_out(self, piece: Piece, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of ``piece`` with the columns and types of the stream."""
        assert self._opened is not None, "a reader that was closed"
        fine = None
        if self._opened.fine is not None:
            compared, groups = self._opener.compared(self._schema), list(piece.groups)
            fine = _Rows(self._opened.fine.iter_batches(piece.batch_rows, groups, compared, use_threads=False))
        row = 0
        for batch in batches:
            self._dictionaries.look(batch)
            place = _Place(self._opener.footer, piece.groups, row)
            yield self._with_types(batch, None if fine is None else fine.take(batch.num_rows), place)
            row += batch.num_rows

    def _with_types(self, batch: pa.RecordBatch, fine: pa.RecordBatch | None, place: _Place) -> pa.RecordBatch:
        """Return the columns of the schema; a column that is no longer a dictionary has its text."""
        # a name with a dot may also have selected a struct; files may order their columns differently
        schema = decoded_schema(self._schema, self._dictionaries.text)
        stored = dict(zip(batch.schema.names, batch.columns, strict=True))
        compared = {} if fine is None else dict(zip(fine.schema.names, fine.columns, strict=True))
        columns = []
        for field in schema:
            array = stored.get(field.name)
            columns.append(
                pa.nulls(batch.num_rows, field.type)
                if array is None
                else self._column(field, array, compared.get(field.name), place)
            )
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, field: pa.Field, array: pa.Array, fine: pa.Array | None, place: _Place) -> pa.Array:
        """Return a column as the stream has it: dictionaries with wide indices, and values in the field's type."""
        if array.type == field.type and fine is None and not types.is_dictionary(array.type):
            return array  # the usual case, at once
        convert = partial(self._converted, field)
        try:
            return convert(widened_array(array), fine)
        except DoesNotFit as error:
            raise place.error(field.name, array, fine, convert) from error

    def _converted(self, field: pa.Field, array: pa.Array, fine: pa.Array | None) -> pa.Array:
        if fine is not None and field.name not in self._opener.declared:
            check_digits(array, fine)
            fine = None
        if field.name in self._opener.footer.int96 and types.is_timestamp(array.type):
            array = array.view(pa.timestamp("us", field.type.tz))  # the format does not say whether they are in UTC
        return converted(array, field.type, fine)

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


class _Rows:
    """The rows of ``batches``, of which any number can be taken at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> pa.RecordBatch:
        """Return the next ``rows`` rows, at least one. Raises: OSError if there are fewer."""
        parts: list[pa.RecordBatch] = []
        missing = rows
        while missing:
            if not self._rest:
                self._rest = next(self._batches, None)
                if self._rest is None:
                    raise OSError(f"{missing} rows fewer than its footer says")
            parts.append(self._rest.slice(0, missing))
            self._rest = self._rest.slice(missing)
            missing -= parts[-1].num_rows
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


class _Place(NamedTuple):
    """Where a batch begins: at row ``row`` of the row groups ``groups`` together."""

    footer: ParquetFooter
    groups: Sequence[int]
    row: int

    def error(
        self,
        column: str,
        array: pa.Array,
        fine: pa.Array | None,
        convert: Callable[[pa.Array, pa.Array | None], object],
    ) -> SourceError:
        """Return the error that names the first value which ``convert`` refuses, with its row group and row."""

        def refusal(first: int, rows: int) -> DoesNotFit | None:
            try:
                convert(array.slice(first, rows), None if fine is None else fine.slice(first, rows))
            except DoesNotFit as error:
                return error
            return None

        bad = bisect_left(range(1, len(array)), True, key=lambda rows: refusal(0, rows) is not None)  # noqa: FBT003
        reason = refusal(bad, 1)  # other rows may be refused for other reasons
        (value,) = render_rows(pa.record_batch({column: array.slice(bad, 1)}))
        row, sizes = self.row + bad, self.footer.sizes.rows
        group = next(group for group in self.groups if (row := row - sizes[group]) < 0)
        return SourceError(
            f"read_parquet: {self.footer.path!r}, row group {group}, row {row + sizes[group]} of it: column {column!r} "
            f"has {excerpt(value[column])}, which {reason}"
        )
