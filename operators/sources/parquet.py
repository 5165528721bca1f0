"""Parquet files as a source: a split is a row group (or a file), an offset is a row within it.

Before a reader polls, only footers are read. A reader decodes batch by batch, so it holds the compressed pages of one
row group and the rows of one batch.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import types

from dataflow.contracts.source import END, EndOfSplit, InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import (
    CheckpointDamaged,
    ConfigurationError,
    PartitionKeyWarning,
    SchemaMismatch,
    SourceError,
    UnknownColumn,
    user_frame,
)
from dataflow.state.dictionaries import wide_type, widened_array
from dataflow.untrusted import Count, excerpt, parsed
from operators.sources.arrow import plain_type
from operators.sources.files import Files
from operators.sources.known_file import KnownFile, KnownFiles, changed
from operators.sources.paths import Paths, expand
from operators.sources.statistics import earliest_time

__all__ = ["ParquetSource", "read_parquet"]

_DAMAGED: Final = (OSError, pa.ArrowException)  # pyarrow's errors for a missing or damaged file


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = 65_536,
    dictionary: Sequence[str] = (),
    split_by: Literal["row_group", "file"] = "row_group",
    filesystem: Any = None,
) -> ParquetSource:
    """Read Parquet files, in order of their names, each file in its own order.

    Columns that were written as dictionaries (pandas' categories) are read as such, always with int32 indices. View
    types become plain text or binary. The key of a folder such as ``year=2013`` does not become a column: a
    PartitionKeyWarning names it.

    Args:
        paths: a file, a directory, a glob, a URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) or a list of
            these.
        columns: the columns to read, in the order that the files have; None: all.
        batch_rows: the most rows of a batch.
        dictionary: text columns to read as dictionaries, which is several times faster if values repeat.
        split_by: what one subtask reads as a whole.
        filesystem: one of ``pyarrow.fs`` or of fsspec, in which ``paths`` are paths; None: this machine's.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing, unreadable, truncated or non-Parquet file; SchemaMismatch if files differ in
    their columns or types; UnknownColumn; ConfigurationError for settings out of range.

    >>> import pyarrow.parquet, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> pa.parquet.write_table(pa.table({"x": [1, 2, 3]}), f"{folder.name}/a.parquet", row_group_size=2)
    >>> source = read_parquet(f"{folder.name}/*.parquet")
    >>> source.schema.names, [split.info["rows"] for split in source.splits()]
    (['x'], [2, 1])
    >>> folder.cleanup()
    """
    if batch_rows < 1:
        raise ConfigurationError(f"read_parquet: batch_rows must be at least 1, got {batch_rows}")
    if split_by not in ("row_group", "file"):
        raise ConfigurationError(f"read_parquet: split_by must be 'row_group' or 'file', got {split_by!r}")
    where, found = expand(paths, ".parquet", filesystem)
    files = tuple(_File.open(path, where) for path in found)
    whole = files[0].schema(tuple(dictionary))
    _warn_of_partition_keys(files, whole)
    for name in (*dictionary, *(columns or ())):
        if name not in whole.names:
            raise UnknownColumn(name, whole.names, f"read_parquet({files[0].path!r})")
    for name in dictionary:
        if not types.is_dictionary(whole.field(name).type):
            raise SchemaMismatch(
                f"read_parquet({files[0].path!r}): only text and binary columns can be read as dictionaries, "
                f"but {name!r} is {whole.field(name).type}; take it out of dictionary="
            )
    schema = whole if columns is None else _selected(whole, columns)
    for file in files[1:]:
        _check_same(files[0].path, schema, file.path, file.schema(tuple(dictionary)), everything=columns is None)
    known = KnownFiles("read_parquet", where, {file.path: file.known for file in files})
    by_path = {file.path: file for file in files}
    return ParquetSource(known, by_path, schema, tuple(dictionary), batch_rows, split_by)


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was when its footer was read. ``footer`` is the xxh3 of the footer's bytes, in hex."""

    known: KnownFile
    footer: str
    metadata: pq.FileMetaData

    @classmethod
    def open(cls, path: str, where: Files) -> _File:
        try:
            status = where.status(path)
            with where.open(path) as raw:
                metadata = pq.read_metadata(raw)
                known = KnownFile.of(path, status, raw)
                footer = _footer_hash(raw, status.bytes)
        except _DAMAGED as error:
            raise SourceError(
                f"read_parquet: cannot read {path!r} as Parquet: {error}; replace or remove it"
            ) from error
        return cls(known, footer, metadata)

    @property
    def path(self) -> str:
        return self.known.path

    def schema(self, dictionary: tuple[str, ...]) -> pa.Schema:
        """Return the schema of batches: ``dictionary`` applied, wide; without views, metadata and nullability."""
        fields = []
        for field in self.metadata.schema.to_arrow_schema():
            plain = plain_type(field.type, field.name)
            encoded = field.name in dictionary and any(check(plain) for check in _TEXTUAL)
            type_ = pa.dictionary(pa.int32(), plain) if encoded else wide_type(plain)
            fields.append(pa.field(field.name, type_))
        names = [field.name for field in fields]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaMismatch(
                f"read_parquet({self.path!r}): column names must differ, but {repeated} occur more than once among "
                f"{names}; write the file again with names of their own"
            )
        return pa.schema(fields)


class _Info(msgspec.Struct):
    """The entries of a split in a checkpoint that identify its part of a file."""

    footer: str
    row_group: Count | None = None
    rows: Count | None = None


_PARTITION: Final = re.compile(r"[^=]+=.*")
_TEXTUAL: Final = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)


def _info(split: Split) -> _Info:
    info: _Info = parsed(_Info, dict(split.info), f"read_parquet: split {excerpt(split.id)}")
    return info


class ParquetSource(Source):
    """The source that ``read_parquet`` makes. Picklable if its filesystem is."""

    def __init__(
        self,
        known: KnownFiles,
        files: Mapping[str, _File],
        schema: pa.Schema,
        dictionary: tuple[str, ...],
        batch_rows: int,
        split_by: str,
    ) -> None:
        self.blocking = known.where.remote
        self._known = known
        self._files = files
        self._schema = schema
        self._dictionary = dictionary
        self._batch_rows = batch_rows
        self._split_by = split_by

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def splits(self) -> tuple[Split, ...]:
        """Return a split for each row group, or file, that has rows."""
        return tuple(split for file in self._files.values() for split in self._splits_of(file) if split.info["rows"])

    def _splits_of(self, file: _File) -> Iterator[Split]:
        info: dict[str, Json] = {**file.known.info, "footer": file.footer}
        if self._split_by == "file":
            yield Split(file.path, {**info, "row_group": None, "rows": file.metadata.num_rows})
            return
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield Split(f"{file.path}#{group}", {**info, "row_group": group, "rows": rows})

    def earliest(self, split: Split, column: str) -> int | None:
        """Return the earliest time, from the statistics of the row groups; None: they have none."""
        file = self._files[self._known.own(split).path]
        return earliest_time(file.metadata, column, _info(split).row_group)

    def check(self, split: Split) -> None:
        self._checked(split)

    def _checked(self, split: Split) -> Split:
        """Return ``split`` with this source's own path and types. Raises: InputChanged, CheckpointDamaged.

        Besides the identity of the file, the footer must be the same: older checkpoints have no other hash.
        """
        info = _info(split)
        now = self._known.check(split)
        file = self._files[now.path]
        if file.known is not now:
            try:
                file = _File.open(now.path, self._known.where)
            except SourceError as error:
                raise changed(split, f"it cannot be read any more: {error}") from error
        if file.footer != info.footer:
            raise changed(split, f"its footer had hash {excerpt(info.footer)} and has {file.footer}")
        if info.row_group is not None and info.row_group >= file.metadata.num_row_groups:
            raise CheckpointDamaged(f"read_parquet: split {excerpt(split.id)}: there is no row group {info.row_group}")
        return Split(split.id, {"path": now.path, "row_group": info.row_group, "rows": info.rows})

    def identified_by(self, identity: InputIdentity) -> ParquetSource:
        return self._with(self._known.identified_by(identity), self._schema)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        row = parsed(Count | None, offset, f"read_parquet: the position in {excerpt(split.id)}") or 0
        mine = self._checked(split)
        return _Reader(mine, row, self._schema, self._dictionary, self._batch_rows, self._known.where)

    def select(self, columns: Sequence[str]) -> ParquetSource:
        for name in columns:
            if name not in self._schema.names:
                raise UnknownColumn(name, self._schema.names, f"read_parquet({self._known.first.path!r})")
        return self._with(self._known, _selected(self._schema, columns))

    def _with(self, known: KnownFiles, schema: pa.Schema) -> ParquetSource:
        return ParquetSource(known, self._files, schema, self._dictionary, self._batch_rows, self._split_by)

    def __repr__(self) -> str:
        return repr(self._known)


class _Reader(SplitReader):
    """Decodes a split. The rows before a restored offset are decoded too, except whole row groups."""

    def __init__(
        self,
        split: Split,
        offset: int,
        schema: pa.Schema,
        dictionary: tuple[str, ...],
        batch_rows: int,
        where: Files,
    ) -> None:
        self._split = split
        self._offset = offset
        self._schema = schema
        self._batch_rows = batch_rows
        self._rest: pa.RecordBatch | None = None
        try:
            # memory_map would be a few percent faster, but end the process, not the read, if the file shrank meanwhile
            self._file = pq.ParquetFile(
                str(split.info["path"]),
                memory_map=False,
                pre_buffer=False,
                read_dictionary=[name for name in dictionary if name in schema.names],
                filesystem=where.filesystem,
            )
            groups, skip = self._remaining()
            self._batches = self._file.iter_batches(batch_rows, groups, schema.names, use_threads=False)
            while skip > 0 and (batch := self._next()) is not None:
                self._rest = batch.slice(skip)
                skip -= batch.num_rows
        except _DAMAGED as error:
            raise self._damaged(error) from error

    def _remaining(self) -> tuple[list[int], int]:
        """Return the row groups that hold rows from the offset on, and how many rows of the first to skip."""
        group, skip = self._split.info["row_group"], self._offset
        if group is not None:
            return [group], skip  # type: ignore[list-item]
        groups = list(range(self._file.num_row_groups))
        while groups and skip >= (rows := self._file.metadata.row_group(groups[0]).num_rows):
            skip -= rows
            del groups[0]
        return groups, skip

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        while self._rest is None or self._rest.num_rows == 0:
            try:
                self._rest = self._next()
            except _DAMAGED as error:
                raise self._damaged(error) from error
            if self._rest is None:
                return END
        batch, self._rest = self._rest.slice(0, max_rows), self._rest.slice(max_rows)
        self._offset += batch.num_rows
        return batch

    def _next(self) -> pa.RecordBatch | None:
        batch = next(self._batches, None)
        if batch is None or not self._schema.names:
            return batch
        # a name with a dot may also have selected a struct; files may order their columns differently
        columns = [_laid_out(batch.column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(
            f"read_parquet: {self._split.id!r} is damaged somewhere after row {self._offset}: {error}; "
            f"restore the file from a good copy"
        )

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def mid_batch(self) -> bool:
        return self._rest is not None and self._rest.num_rows > 0

    def close(self) -> None:
        self._rest = None
        self._batches = iter(())
        self._file.close()


def _laid_out(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return ``array`` with wide indices, and views as plain text or binary, because few kernels take views."""
    wide = widened_array(array)
    return wide if wide.type == type_ else wide.cast(type_)


def _footer_hash(raw: BinaryIO, size: int) -> str:
    """Return the xxh3 of the footer: the last 8 bytes of the file are its length and the magic word."""
    raw.seek(size - 8)
    length = int.from_bytes(raw.read(4), "little")
    raw.seek(size - 8 - length)
    return xxhash.xxh3_64_hexdigest(raw.read(length))


def _warn_of_partition_keys(files: Sequence[_File], schema: pa.Schema) -> None:
    folders = {folder for file in files for folder in os.path.dirname(file.path).split(os.sep)}
    keys = sorted({folder.partition("=")[0] for folder in folders if _PARTITION.fullmatch(folder)})
    lost = [key for key in keys if key not in schema.names]
    if lost:
        warnings.warn(
            f"read_parquet: {files[0].path!r} lies in folders that are named by {lost}, which are not columns of the "
            f"files and will not be columns of the stream; read each folder as a source of its own and add the key "
            f"with with_columns(lit(...).alias({lost[0]!r})), or write it into the files",
            PartitionKeyWarning,
            stacklevel=user_frame(),
        )


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in columns])


def _check_same(first: str, expected: pa.Schema, path: str, found: pa.Schema, *, everything: bool) -> None:
    differing = [
        f"{field.name!r} is {field.type} in the first and "
        + (f"{found.field(field.name).type} in the second" if field.name in found.names else "missing in the second")
        for field in expected
        if field.name not in found.names or found.field(field.name).type != field.type
    ]
    if everything:
        differing += [f"{name!r} is missing in the first" for name in found.names if name not in expected.names]
    if differing:
        raise SchemaMismatch(
            f"read_parquet: {first!r} and {path!r} differ: {'; '.join(differing)}; "
            f"read them as two sources, or choose the columns they share with columns=[...]"
        )
