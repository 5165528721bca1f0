"""Parquet files as a source: a split is a run of row groups (or a file), an offset is a row within it.

Before a reader polls, only footers are read. A reader decodes batch by batch, so it holds the compressed pages of the
row groups of one batch, and its rows. ``row_groups`` decides what a split and a batch are.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import types

from dataflow.contracts.source import (
    Condition,
    InputIdentity,
    Json,
    ParquetFiles,
    Source,
    SourceContext,
    Split,
    SplitReader,
)
from dataflow.contracts.tuning import Choice
from dataflow.errors import (
    CheckpointDamaged,
    ConfigurationError,
    PartitionKeyWarning,
    SchemaMismatch,
    SourceError,
    UnknownColumn,
    check_count,
    user_frame,
)
from dataflow.state.dictionaries import encoded_schema, is_textual, wide_type
from dataflow.state.extension_types import has_extensions
from dataflow.untrusted import Count, excerpt, parsed
from operators.sources.arrow import plain_type
from operators.sources.files import Files
from operators.sources.known_file import KnownFile, KnownFiles, changed
from operators.sources.parquet_choices import Sample, choices_of
from operators.sources.parquet_reader import DAMAGED, ParquetOpener, ParquetReader
from operators.sources.paths import Paths, expand
from operators.sources.pruned_groups import pruned_groups
from operators.sources.row_groups import MOST_ROWS, GroupSizes, SplitBy
from operators.sources.statistics import earliest_time

__all__ = ["ParquetSource", "read_parquet"]

_SUFFIX: Final = ".parquet"


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int | None = None,
    dictionary: Sequence[str] = (),
    split_by: SplitBy = "auto",
    filesystem: Any = None,
) -> ParquetSource:
    """Read Parquet files, in order of their names, each file in its own order.

    Columns that were written as dictionaries (pandas' categories) are read as such, always with int32 indices. View
    types become plain text or binary, a UUID its text, other extension types their storage. The key of a folder such as
    ``year=2013`` does not become a column: a PartitionKeyWarning names it.

    A row group is not decoded if its statistics show that none of its rows passes the filters after the source. Its
    rows count as read, and batches end where they would.

    Args:
        paths: a file, a directory, a glob, a URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) or a list of
            these.
        columns: the columns to read, in the order that the files have; None: all.
        batch_rows: the rows of a batch; event time moves after each. None: row groups of a file are put together up to
            524,288 rows or 64 MiB (all columns of the file, uncompressed), and larger ones are cut by the same rule.
        dictionary: text columns to read as dictionaries, which is several times faster if values repeat.
        split_by: what one subtask reads as a whole: a ``"file"``, a ``"row_group"``, or (``"auto"``) a run of
            neighbouring row groups of at most 524,288 rows together; a larger row group is a split of its own.
        filesystem: one of ``pyarrow.fs`` or of fsspec, in which ``paths`` are paths; None: this machine's.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing, unreadable, truncated or non-Parquet file; SchemaMismatch if files differ in
    their columns or types; UnknownColumn; ConfigurationError for settings out of range.

    >>> import pyarrow.parquet, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> pa.parquet.write_table(pa.table({"x": [1, 2, 3]}), f"{folder.name}/a.parquet", row_group_size=2)
    >>> source = read_parquet(f"{folder.name}/*.parquet")
    >>> source.schema.names, [split.info["rows"] for split in source.splits()]
    (['x'], [3])
    >>> [split.info["rows"] for split in read_parquet(f"{folder.name}/*.parquet", split_by="row_group").splits()]
    [2, 1]
    >>> folder.cleanup()
    """
    if batch_rows is not None:
        check_count("read_parquet: batch_rows", batch_rows, advice="; leave it out to put row groups together")
    if split_by not in get_args(SplitBy):
        raise ConfigurationError(f"read_parquet: split_by must be one of {get_args(SplitBy)}, got {split_by!r}")
    where, found = expand(paths, _SUFFIX, filesystem)
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


read_parquet.suffixes = (_SUFFIX,)  # type: ignore[attr-defined]  # for ``watch``


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was when its footer was read. ``footer`` is the xxh3 of the footer's bytes, in hex.

    ``columns`` are what pyarrow reads: the metadata alone do not tell that bytes are a UUID.
    """

    known: KnownFile
    footer: str
    metadata: pq.FileMetaData
    columns: pa.Schema
    sizes: GroupSizes

    @classmethod
    def open(cls, path: str, where: Files) -> _File:
        try:
            status = where.status(path)
            with where.open(path) as raw:
                opened = pq.ParquetFile(raw)
                metadata, columns = opened.metadata, opened.schema_arrow
                known = KnownFile.of(path, status, raw)
                footer = _footer_hash(raw, status.bytes)
        except DAMAGED as error:
            raise SourceError(
                f"read_parquet: cannot read {path!r} as Parquet: {error}; replace or remove it"
            ) from error
        return cls(known, footer, metadata, columns, GroupSizes.of(metadata))

    @property
    def path(self) -> str:
        return self.known.path

    def schema(self, dictionary: tuple[str, ...]) -> pa.Schema:
        """Return the schema of batches: ``dictionary`` applied, wide; without views, metadata and nullability."""
        fields = []
        for field in self.columns:
            plain = plain_type(field.type, field.name)
            encoded = field.name in dictionary and is_textual(plain)
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
    """The entries of a split in a checkpoint that identify its part of a file.

    ``row_group`` is the first of ``row_groups`` neighbours; None: all of the file. Older checkpoints have
    splits of one row group each, without ``row_groups``.
    """

    footer: str
    row_group: Count | None = None
    row_groups: Count = 1
    rows: Count | None = None

    def groups(self, metadata: pq.FileMetaData) -> range:
        """Return the row groups of the split."""
        if self.row_group is None:
            return range(metadata.num_row_groups)
        return range(self.row_group, self.row_group + self.row_groups)


_OLD_CALENDAR: Final = b"org.apache.spark.legacyDateTime"
_PARTITION: Final = re.compile(r"[^=]+=.*")


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
        batch_rows: int | None,
        split_by: SplitBy,
        conditions: tuple[Condition, ...] = (),
        samples: Mapping[str, Sample] | None = None,
    ) -> None:
        self.blocking = known.where.remote
        self._known = known
        self._files = files
        self._schema = schema
        self._dictionary = dictionary
        self._batch_rows = batch_rows
        self._split_by = split_by
        self._conditions = conditions
        self._samples = samples or {}
        self._earliest: dict[tuple[str, int, int, str], int | None] = {}  # by file, row groups and column

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def splits(self) -> tuple[Split, ...]:
        """Return the splits that have rows, file by file. The id of a run of row groups has the first of them."""
        return tuple(split for file in self._files.values() for split in self._splits_of(file) if split.info["rows"])

    def _splits_of(self, file: _File) -> Iterator[Split]:
        info: dict[str, Json] = {**file.known.info, "footer": file.footer}
        if self._split_by == "file":
            yield Split(file.path, {**info, "row_group": None, "rows": file.metadata.num_rows})
            return
        for groups in file.sizes.splits(self._split_by):
            rows = sum(file.sizes.rows[group] for group in groups)
            part: dict[str, Json] = {"row_group": groups.start, "row_groups": len(groups), "rows": rows}
            yield Split(f"{file.path}#{groups.start}", {**info, **part})

    def earliest(self, split: Split, column: str) -> int | None:
        """Return the earliest time, from the statistics of the row groups; None: they have none."""
        file = self._files[self._known.own(split).path]
        groups = _info(split).groups(file.metadata)
        place = file.path, groups.start, groups.stop, column
        if place not in self._earliest:
            self._earliest[place] = earliest_time(file.metadata, column, groups)
        return self._earliest[place]

    def check(self, split: Split) -> None:
        self._checked(split)

    def _checked(self, split: Split) -> tuple[_File, range]:
        """Return the file and the row groups of ``split``. Raises: InputChanged, CheckpointDamaged.

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
        groups = info.groups(file.metadata)
        if groups.stop > file.metadata.num_row_groups:
            raise CheckpointDamaged(
                f"read_parquet: split {excerpt(split.id)}: there is no row group {groups.stop - 1}, only "
                f"{file.metadata.num_row_groups} of them"
            )
        return file, groups

    def parquet_files(self) -> ParquetFiles | str:
        """Return the files, if they are on this machine's file system and their dates are of today's calendar."""
        if self._known.where.remote:
            return "its files are in a filesystem of pyarrow's"
        for file in self._files.values():
            if _OLD_CALENDAR in (file.metadata.metadata or {}):
                return f"{file.path!r} was written by Spark with the calendar that it had before version 3"
            for field in file.columns:
                if field.name in self._schema.names and has_extensions(field.type):
                    return f"column {field.name!r} of {file.path!r}, {field.type}, is read as its text or storage"
        names = {name for file in self._files.values() for name in file.columns.names}
        rows = sum(file.metadata.num_rows for file in self._files.values())
        return ParquetFiles([os.path.abspath(path) for path in self._files], sorted(names), rows)

    def identified_by(self, identity: InputIdentity) -> ParquetSource:
        return self._with(known=self._known.identified_by(identity))

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        row = parsed(Count | None, offset, f"read_parquet: the position in {excerpt(split.id)}") or 0
        file, groups = self._checked(split)
        pruned = pruned_groups(file.metadata, groups, self._schema, self._conditions)
        layout = file.sizes.layout(groups, self._batch_rows).without(pruned)
        where = self._known.where
        opener = ParquetOpener(
            file.path, file.footer, file.metadata, self._dictionary, self.may_be_text, where, context
        )
        return ParquetReader(split.id, layout, row, self._schema, opener)

    def select(self, columns: Sequence[str]) -> ParquetSource:
        for name in columns:
            if name not in self._schema.names:
                raise UnknownColumn(name, self._schema.names, f"read_parquet({self._known.first.path!r})")
        return self._with(schema=_selected(self._schema, columns))

    def encoded(self, columns: Sequence[str]) -> ParquetSource:
        """Return the source with dictionaries for the ``columns`` whose values repeat in the first row group."""
        measured = {name: self._sample(name) for name in columns if name not in self._dictionary}
        samples = {name: sample for name, sample in measured.items() if sample is not None}
        repeated = [name for name, sample in samples.items() if sample.repeats]
        schema = encoded_schema(self._schema, repeated) if repeated else self._schema
        return self._with(schema=schema, dictionary=(*self._dictionary, *repeated), samples=samples)

    @property
    def may_be_text(self) -> tuple[str, ...]:
        return tuple(name for name, sample in self._samples.items() if sample.repeats and name in self._schema.names)

    def _sample(self, column: str) -> Sample | None:
        """Return the size of a dictionary of the first rows; None: they cannot be read as a dictionary.

        The encodings in the footer do not tell: a writer that gives its dictionary up half way leaves both. An error is
        reported by the reader that meets it again.
        """
        places = ((f, group) for f in self._files.values() for group, rows in enumerate(f.sizes.rows) if rows)
        file, group = next(places, (None, 0))
        if file is None:
            return None
        where = self._known.where.filesystem
        try:
            with pq.ParquetFile(
                file.path, metadata=file.metadata, read_dictionary=[column], filesystem=where
            ) as opened:
                batches = opened.iter_batches(MOST_ROWS, [group], [column], use_threads=False)
                sample = next(batches).column(0)
        except DAMAGED:
            return None
        return Sample(len(sample.dictionary), len(sample)) if types.is_dictionary(sample.type) else None

    def skipping(self, conditions: Sequence[Condition]) -> ParquetSource:
        return self._with(conditions=(*self._conditions, *conditions))

    def _with(
        self,
        known: KnownFiles | None = None,
        schema: pa.Schema | None = None,
        dictionary: tuple[str, ...] | None = None,
        conditions: tuple[Condition, ...] | None = None,
        samples: Mapping[str, Sample] | None = None,
    ) -> ParquetSource:
        return ParquetSource(
            known or self._known,
            self._files,
            self._schema if schema is None else schema,
            self._dictionary if dictionary is None else dictionary,
            self._batch_rows,
            self._split_by,
            self._conditions if conditions is None else conditions,
            self._samples if samples is None else samples,
        )

    def choices(self) -> Sequence[Choice]:
        sizes = [file.sizes for file in self._files.values()]
        named = [name for name in self._dictionary if name not in self._samples and name in self._schema.names]
        return choices_of(sizes, len(self.splits()), self._batch_rows, named, self._samples, self._conditions)

    def __repr__(self) -> str:
        return repr(self._known)


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
