"""Arrow data in memory as a source: anything with the Arrow C interfaces, and streams of batches that are read once.

Tables are cut into contiguous splits and sliced, never copied (except view types and UUIDs, which few kernels take:
they become plain text or binary once, at import). A ``RecordBatchReader`` can be read once, so it is not replayable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_schema import misplaced_nulls
from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import (
    ConfigurationError,
    InputChanged,
    SchemaMismatch,
    SourceError,
    UnknownColumn,
    check_count,
    repeated_names,
)
from dataflow.state.content_hash import content_hash
from dataflow.state.dictionaries import wide_schema, widened
from dataflow.state.extension_types import has_extensions, replaced, stored_values, without_extensions
from dataflow.untrusted import Count, excerpt, parsed

__all__ = ["ArrowSource", "StreamSource", "conformed", "from_arrow", "plain_field", "plain_type"]

_PIECE: Final = 1 << 24
"""Rows of extension types that are converted at once."""
_HASH_BYTES = 256 << 20
"""Tables of more bytes are hashed in part."""


def from_arrow(
    data: Any, *, batch_rows: int = 65_536, splits: int = 1, replayable: bool | None = None
) -> ArrowSource | StreamSource:
    """Read Arrow data in memory.

    A ``RecordBatchReader`` is streamed once, in one split. All other data is imported once and cut into ``splits``.
    Dictionary columns (pandas' and polars' categories) get int32 indices, batch by batch, because all batches together
    may hold more values than a narrower type can number; dictionaries inside nested columns do not change. Run-end
    encoded columns are decoded, and views become plain text or bytes, also inside other types. So do extension types: a
    UUID becomes its text, all others (JSON, bool8, your own) their storage.

    Args:
        data: a table or batch, a list of these, a ``RecordBatchReader``, a polars or pandas frame, a DuckDB result, or
            any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.
        batch_rows: the most rows of a batch.
        splits: how many contiguous parts of about equal length the rows are cut into.
        replayable: None: a ``RecordBatchReader`` is not replayable, and jobs with checkpoints refuse it. True: read all
            of it into memory now. False: accept "at most once".

    Returns: a bounded source.

    Raises: TypeError for data that is not Arrow; SchemaMismatch for two columns of one name, for run-end encoded values
    inside other types, and for nulls in a column that is declared not null; ConfigurationError for settings out of
    range.

    >>> source = from_arrow(pa.table({"x": range(5)}), splits=2)
    >>> [split.info["rows"] for split in source.splits()]
    [3, 2]
    """
    check_count("from_arrow: batch_rows", batch_rows)
    check_count("from_arrow: splits", splits)
    if isinstance(data, pa.RecordBatchReader) and not replayable:
        if splits != 1:
            raise ConfigurationError(
                f"from_arrow: a RecordBatchReader can only be read in 1 split, got {splits}; "
                f"replayable=True reads it into memory first"
            )
        _check_distinct(data.schema)
        return StreamSource(data, batch_rows, accepts_loss=replayable is False)
    table = _table(data)
    _check_distinct(table.schema)
    return ArrowSource(_plain(table), batch_rows, splits, replayable=replayable is not False)


class ArrowSource(Source):
    """The source that ``from_arrow`` makes. Splits are contiguous ranges of rows, offsets are rows within one."""

    def __init__(
        self,
        table: pa.Table,
        batch_rows: int,
        splits: int,
        *,
        replayable: bool = True,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.replayable = replayable
        self.accepts_loss = not replayable
        self._whole = table  # which is hashed, so that hashes do not depend on which columns are used
        self._table = table if columns is None else table.select(_chosen(columns, table.schema.names))
        self._batch_rows = batch_rows
        self._parts = splits
        self._made: tuple[Split, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        return wide_schema(self._table.schema)

    def splits(self) -> tuple[Split, ...]:
        """Return contiguous ranges whose lengths differ by at most one; ``info`` has hashes of schema and content.

        A table of fewer rows than splits has one empty range, because two splits cannot have the same id.
        """
        if self._made is None:
            parts = [self._split(index) for index in range(self._parts)]
            self._made = tuple({split.id: split for split in parts}.values())
        return self._made

    def _split(self, index: int) -> Split:
        share, extra = divmod(self._whole.num_rows, self._parts)
        start, rows = index * share + min(index, extra), share + (index < extra)
        content = content_hash(self._whole.slice(start, rows), _HASH_BYTES)
        info = {
            "start": start,
            "rows": rows,
            "schema": _schema_hash(wide_schema(self._whole.schema)),
            "content": content,
        }
        return Split(f"rows-{start}-{start + rows}", info)

    def check(self, split: Split) -> None:
        now = next((mine for mine in self.splits() if mine.id == split.id), None)
        if now is None:
            mine = [split.id for split in self.splits()]
            raise InputChanged(
                f"from_arrow: the checkpoint was taken over {split.id!r}, the data is now cut into {mine}; "
                "give the same data and splits="
            )
        for what in ("schema", "rows", "content"):
            if now.info[what] != split.info.get(what):
                raise InputChanged(
                    f"from_arrow: the checkpoint was taken over other data: the {what} of {split.id!r} was "
                    f"{excerpt(split.info.get(what))} and is {now.info[what]}; give the same data, or "
                    "start over in a new checkpoint directory"
                )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        row = parsed(Count | None, offset, f"from_arrow: the position in {excerpt(split.id)}") or 0
        mine = next((mine for mine in self.splits() if mine.id == split.id), split)  # ours: its range is known
        start, rows = mine.info["start"], mine.info["rows"]
        return _TableReader(self._table.slice(start, rows), row, self._batch_rows)

    def select(self, columns: Sequence[str]) -> ArrowSource:
        _check_known(columns, self.schema)
        source = ArrowSource(self._whole, self._batch_rows, self._parts, replayable=self.replayable, columns=columns)
        source._made = self._made
        return source


class _TableReader(SplitReader):
    """Emits slices of the table's chunks; a batch never spans two."""

    def __init__(self, table: pa.Table, offset: int, batch_rows: int) -> None:
        self._chunks = [chunk for chunk in table.to_batches() if chunk.num_rows]
        self._ends = list(accumulate(chunk.num_rows for chunk in self._chunks))
        self._offset = offset
        self._batch_rows = batch_rows

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        index = bisect_right(self._ends, self._offset)
        if index == len(self._chunks):
            return END
        chunk = self._chunks[index]
        start = self._offset - (self._ends[index] - chunk.num_rows)
        batch = widened(chunk.slice(start, min(max_rows, self._batch_rows - start % self._batch_rows)))
        self._offset += batch.num_rows
        return batch

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def mid_batch(self) -> bool:
        index = bisect_right(self._ends, self._offset)
        if index == len(self._chunks):
            return False
        return (self._offset - (self._ends[index] - self._chunks[index].num_rows)) % self._batch_rows != 0

    def close(self) -> None:
        self._chunks, self._ends = [], []


class StreamSource(Source):
    """A ``RecordBatchReader`` that is read once. Offsets count rows; a restore continues where the reader is."""

    replayable = False
    blocking = True

    def __init__(
        self,
        stream: pa.RecordBatchReader,
        batch_rows: int,
        *,
        accepts_loss: bool = False,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.accepts_loss = accepts_loss
        self._stream = _Once(stream)
        self._whole = stream.schema
        self._batch_rows = batch_rows
        self._names = stream.schema.names if columns is None else _chosen(columns, stream.schema.names)

    @property
    def schema(self) -> pa.Schema:
        return wide_schema(pa.schema([plain_field(self._whole.field(name)) for name in self._names]))

    def splits(self) -> tuple[Split, ...]:
        return (Split("stream", {"rows": None, "schema": _schema_hash(self._whole), "content": None}),)

    def check(self, split: Split) -> None:
        mine = self.splits()[0]
        if (split.id, split.info.get("schema")) != (mine.id, mine.info["schema"]):
            raise InputChanged(
                f"from_arrow: the checkpoint was taken over {split}, this stream is {mine}; give the same data"
            )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        row = parsed(Count | None, offset, "from_arrow: the position in a stream") or 0
        return _StreamReader(self._stream.take(), row, self.schema, self._batch_rows)

    def select(self, columns: Sequence[str]) -> StreamSource:
        _check_known(columns, self.schema)
        names = _chosen(columns, self._names)
        made = StreamSource(self._stream.stream, self._batch_rows, accepts_loss=self.accepts_loss, columns=names)
        made._stream = self._stream
        return made


class _Once:
    """A stream that can be taken once, by one of all selections of its columns."""

    def __init__(self, stream: pa.RecordBatchReader) -> None:
        self.stream = stream
        self._taken = False

    def take(self) -> pa.RecordBatchReader:
        if self._taken:
            raise SourceError(
                "from_arrow: this RecordBatchReader was read by an earlier run and cannot be read twice; "
                "make a new one, or pass replayable=True to read it into memory"
            )
        self._taken = True
        return self.stream


class _StreamReader(SplitReader):
    def __init__(self, stream: pa.RecordBatchReader, offset: int, schema: pa.Schema, batch_rows: int) -> None:
        self._stream = stream
        self._offset = offset
        self._schema = schema
        self._batch_rows = batch_rows
        self._rest: pa.RecordBatch | None = None
        self._given = 0  # rows of the stream's current batch that were emitted

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        while self._rest is None or self._rest.num_rows == 0:
            try:
                batch = self._stream.read_next_batch()
            except StopIteration:
                return END
            except (OSError, pa.ArrowException) as error:
                raise SourceError(f"from_arrow: the stream failed after row {self._offset}: {error}") from error
            self._rest = conformed(batch.select(self._schema.names), self._schema)
            self._given = 0
        rows = min(max_rows, self._batch_rows - self._given % self._batch_rows)
        batch, self._rest = self._rest.slice(0, rows), self._rest.slice(rows)
        self._given += batch.num_rows
        self._offset += batch.num_rows
        return batch

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def mid_batch(self) -> bool:
        return self._rest is not None and self._rest.num_rows > 0 and self._given % self._batch_rows > 0

    def close(self) -> None:
        self._rest = None
        self._stream.close()


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list | tuple) and data and all(isinstance(part, pa.RecordBatch | pa.Table) for part in data):
        tables = [_table(part) for part in data]
        if any(table.schema != tables[0].schema for table in tables):  # perhaps only in the width of indices
            tables = [table.cast(wide_schema(table.schema)) for table in tables]
        return pa.concat_tables(tables)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    raise TypeError(
        f"from_arrow takes Arrow data (a pyarrow table, batch, reader or non-empty list of batches, a polars or pandas "
        f"frame, a DuckDB result), got a {type(data).__module__}.{type(data).__qualname__}; try pa.table(data)"
    )


def _plain(table: pa.Table) -> pa.Table:
    """Return ``table`` in plain types, without schema metadata (in which two runs may differ)."""
    schema = pa.schema([plain_field(field) for field in table.schema])
    for field, column in zip(table.schema, table.columns, strict=True):
        misplaced = Counter[str]()
        for chunk in column.chunks:
            misplaced.update(dict(misplaced_nulls(chunk, field)))
        for name, nulls in misplaced.items():
            raise SchemaMismatch(
                f"from_arrow: column {name!r} is declared not null, but {nulls:,} of its values are "
                f"null; declare it nullable, or fill them, such as with pyarrow.compute.fill_null"
            )
    if any(types.is_run_end_encoded(column.type) for column in table.columns):
        batches = [conformed(batch, schema) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, schema)
    columns = [_plain_column(column, field.type) for field, column in zip(schema, table.columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _plain_column(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Return ``column`` in its plain type. A column that has it already is not cast.

    Arrow's cast also looks for nulls outside of a slice and inside of another null, where they do not count.
    """
    if column.type == dtype:
        return column
    if has_extensions(column.type):
        pieces = [chunk.slice(at, _PIECE) for chunk in column.chunks for at in range(0, len(chunk), _PIECE)]
        column = pa.chunked_array([stored_values(piece) for piece in pieces], without_extensions(column.type))
    return column if column.type == dtype else column.cast(dtype)


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field without metadata, in its plain type."""
    return pa.field(field.name, plain_type(field.type, field.name), field.nullable)


def plain_type(dtype: pa.DataType, column: str) -> pa.DataType:
    """Return ``dtype`` with run-end encoding and extension types removed, and views replaced, also inside other types.

    Raises: SchemaMismatch that names ``column`` for run-end encoded values inside other types, and for views in list
    views: Arrow can neither filter nor convert these.
    """
    if types.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type, column)
    stored = without_extensions(dtype)
    plain = replaced(stored, _without_views)
    if _has_runs(plain) or _has_viewed_views(stored):
        raise SchemaMismatch(
            f"column {column!r} has type {dtype}, which Arrow can neither filter nor convert: decode run-end encoded "
            f"values inside other types (pyarrow.compute.run_end_decode), cast a list view to a list, or leave the "
            f"column out"
        )
    return plain


def _without_views(dtype: pa.DataType) -> pa.DataType:
    if types.is_string_view(dtype):
        return pa.large_string()
    return pa.large_binary() if types.is_binary_view(dtype) else dtype


def _has_runs(dtype: pa.DataType) -> bool:
    """Return whether ``dtype`` is run-end encoded, or has such values inside."""
    return types.is_run_end_encoded(dtype) or any([_has_runs(dtype.field(i).type) for i in range(dtype.num_fields)])


def _has_viewed_views(dtype: pa.DataType) -> bool:
    """Return whether ``dtype`` is a list view of views, or has such values inside."""
    if types.is_list_view(dtype) or types.is_large_list_view(dtype):
        return bool(replaced(dtype, _without_views) != dtype)
    return any([_has_viewed_views(dtype.field(i).type) for i in range(dtype.num_fields)])


def _check_distinct(schema: pa.Schema) -> None:
    if repeated := repeated_names(schema.names):
        raise SchemaMismatch(
            f"from_arrow: column names must differ, but {repeated} occur more than once among {schema.names}; "
            f"rename them first, such as with table.rename_columns([...])"
        )


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` cast to ``schema``, which has the same columns in plain and wide types."""
    if not schema.names or batch.schema.equals(schema, check_metadata=True):
        return batch
    if any(types.is_run_end_encoded(type_) or has_extensions(type_) for type_ in batch.schema.types):
        columns = [stored_values(_without_runs(column)) for column in batch.columns]  # Arrow cannot cast these
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return batch.cast(schema)


def _without_runs(column: pa.Array) -> pa.Array:
    if not types.is_run_end_encoded(column.type):
        return column
    ends = to_numbers(column.run_ends)
    values = stored_values(column.values)
    if (plain := _without_views(values.type)) != values.type:  # Arrow cannot take rows of views
        values = values.cast(plain)
    return values.take(to_array(np.searchsorted(ends, np.arange(len(column)) + column.offset, side="right")))


def _check_known(columns: Sequence[str], schema: pa.Schema) -> None:
    valid = schema.names
    known = frozenset(valid)
    for name in columns:
        if name not in known:
            raise UnknownColumn(name, valid, "from_arrow")


def _chosen(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    chosen = frozenset(columns)
    return [name for name in names if name in chosen]


def _schema_hash(schema: pa.Schema) -> str:
    return xxhash.xxh3_64_hexdigest(str(schema.remove_metadata()).encode())
