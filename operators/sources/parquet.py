"""Parquet files as a source: a split is a run of row groups (or a file), an offset is a row within it.

Before a reader polls, only footers are read. A reader decodes batch by batch, so it holds the compressed pages of the
row groups of one batch, and its rows. ``row_groups`` decides what a split and a batch are.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
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
    SourceError,
    UnknownColumn,
    check_count,
    user_frame,
)
from dataflow.state.dictionaries import encoded_schema, is_textual
from dataflow.untrusted import Count, excerpt, parsed
from operators.parquet_types import holds_all, is_one_type
from operators.sources.known_file import KnownFiles, changed
from operators.sources.parquet_choices import Sample, choices_of
from operators.sources.parquet_file import DAMAGED, ParquetFooter
from operators.sources.parquet_reader import ParquetOpener, ParquetReader
from operators.sources.parquet_schema import stream_schema, warn_of_missing
from operators.sources.parquet_values import is_readable
from operators.sources.paths import SUFFIXES, Paths, expand
from operators.sources.pruned_groups import pruned_groups
from operators.sources.row_groups import MOST_ROWS, SplitBy
from operators.sources.statistics import earliest_time
from operators.sources.text_source import KnownTypes, Types, given_types

__all__ = ["ParquetSource", "read_parquet"]


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: Types = None,
    batch_rows: int | None = None,
    dictionary: Sequence[str] = (),
    split_by: SplitBy = "auto",
    filesystem: Any = None,
) -> ParquetSource:
    """Read Parquet files, in order of their names, each file in its own order.

    Columns that were written as dictionaries (pandas' categories) in all files are read as such, always with int32
    indices. View types become plain text or binary, a UUID its text, other extension types their storage. The key of a
    folder such as ``year=2013`` does not become a column: a PartitionKeyWarning names it.

    Files may be of several writers: columns are compared by their Parquet types, not by Arrow's notes on them. Text is
    one type in every layout, as are zoned times of every zone, which are in UTC then. A column without values, by its
    type or its statistics, has the type that other files have.

    INT96 times, which Spark, Hive and Impala write, are read as microseconds. A time with finer digits is an error,
    unless ``schema`` declares nanoseconds (then a time outside 1677 to 2262 is), or microseconds, which rounds it down.
    A declared zone says that they are in UTC.

    A row group is not decoded if its statistics show that none of its rows passes the filters after the source. Its
    rows count as read, and batches end where they would.

    Args:
        paths: a file, a directory, a glob, a URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) or a list of
            these.
        columns: the columns to read, in the order that the files have; None: all.
        schema: the types, or names of types, of some or all columns; these columns come first, in this order. They hold
            every value of the files: integers and decimals may be wider, integers also decimals, floats may be float64,
            and times may have finer units. Integers as float64, and times in finer units, are checked value by value: a
            SourceError has the file, row group and row of one that does not fit. A declared column is null in files
            that do not have it; a MissingColumnWarning names one that no file has.
        batch_rows: the rows of a batch; event time moves after each. None: row groups of a file are put together up to
            524,288 rows or 64 MiB (all columns of the file, uncompressed), and larger ones are cut by the same rule.
        dictionary: text columns to read as dictionaries, which is several times faster if values repeat.
        split_by: what one subtask reads as a whole: a ``"file"``, a ``"row_group"``, or (``"auto"``) a run of
            neighbouring row groups of at most 524,288 rows together; a larger row group is a split of its own.
        filesystem: one of ``pyarrow.fs`` or of fsspec, in which ``paths`` are paths; None: this machine's.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing, unreadable, truncated or non-Parquet file; SchemaMismatch if files differ in
    their columns or Parquet types, or cannot be read as declared; UnknownColumn; ConfigurationError for settings out of
    range.

    >>> import pyarrow.parquet, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> pa.parquet.write_table(pa.table({"x": [1, 2, 3]}), f"{folder.name}/a.parquet", row_group_size=2)
    >>> source = read_parquet(f"{folder.name}/*.parquet")
    >>> source.schema.names, [split.info["rows"] for split in source.splits()]
    (['x'], [3])
    >>> [split.info["rows"] for split in read_parquet(f"{folder.name}/*.parquet", split_by="row_group").splits()]
    [2, 1]
    >>> source = read_parquet(f"{folder.name}/*.parquet", schema={"x": "float64"})
    >>> print(source.schema)
    x: double
    >>> folder.cleanup()
    """
    if batch_rows is not None:
        check_count("read_parquet: batch_rows", batch_rows, advice="; leave it out to put row groups together")
    if split_by not in get_args(SplitBy):
        raise ConfigurationError(f"read_parquet: split_by must be one of {get_args(SplitBy)}, got {split_by!r}")
    declared = given_types(schema)
    where, found = expand(paths, SUFFIXES["read_parquet"], filesystem)
    files = tuple(ParquetFooter.open(path, where) for path in found)
    _warn_of_partition_keys(files)
    whole = stream_schema(files, declared, columns, dictionary)
    if not isinstance(schema, KnownTypes):  # other files may have the columns that these lack
        warn_of_missing(files, [name for name in declared if name in whole.names])
    known = KnownFiles("read_parquet", where, {file.path: file.known for file in files})
    by_path = {file.path: file for file in files}
    encoded = [name for name, type_ in declared.items() if types.is_dictionary(type_) and is_textual(type_.value_type)]
    as_dictionaries = tuple(dict.fromkeys([*dictionary, *encoded]))
    read = _Columns(whole, frozenset(declared), as_dictionaries, {})
    return ParquetSource(known, by_path, read, batch_rows, split_by)


read_parquet.suffixes = SUFFIXES["read_parquet"]  # type: ignore[attr-defined]  # for ``watch``


@dataclass(frozen=True, slots=True)
class _Columns:
    """What is read of the files.

    Attributes:
        schema: the columns of the stream.
        declared: those whose types the user declared.
        dictionary: those that are read as dictionaries where a file has text.
        samples: how often values repeat, of the columns for which the planner chose text or a dictionary.
    """

    schema: pa.Schema
    declared: frozenset[str]
    dictionary: tuple[str, ...]
    samples: Mapping[str, Sample]


class _Info(msgspec.Struct):
    """The entries of a split in a checkpoint that identify its part of a file.

    ``row_group`` is the first of ``row_groups`` neighbours.
    """

    footer: str
    row_group: Count
    row_groups: Count
    rows: Count

    @property
    def groups(self) -> range:
        """The row groups of the split."""
        return range(self.row_group, self.row_group + self.row_groups)


_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK: Final = b"org.apache.spark.version"
_PARTITION: Final = re.compile(r"[^=]+=.*")


def _info(split: Split) -> _Info:
    info: _Info = parsed(_Info, dict(split.info), f"read_parquet: split {excerpt(split.id)}")
    return info


class ParquetSource(Source):
    """The source that ``read_parquet`` makes. Picklable if its filesystem is."""

    def __init__(
        self,
        known: KnownFiles,
        files: Mapping[str, ParquetFooter],
        columns: _Columns,
        batch_rows: int | None,
        split_by: SplitBy,
        conditions: tuple[Condition, ...] = (),
    ) -> None:
        self.blocking = known.where.remote
        self._known = known
        self._files = files
        self._columns = columns
        self._batch_rows = batch_rows
        self._split_by = split_by
        self._conditions = conditions
        self._earliest: dict[tuple[str, int, int, str], int | None] = {}  # by file, row groups and column

    @property
    def schema(self) -> pa.Schema:
        return self._columns.schema

    def splits(self) -> tuple[Split, ...]:
        """Return the splits that have rows, file by file. The id of a run of row groups has the first of them."""
        return tuple(split for file in self._files.values() for split in self._splits_of(file) if split.info["rows"])

    def _splits_of(self, file: ParquetFooter) -> Iterator[Split]:
        info: dict[str, Json] = {**file.known.info, "footer": file.hash}
        for groups in file.sizes.splits(self._split_by):
            rows = sum(file.sizes.rows[group] for group in groups)
            part: dict[str, Json] = {"row_group": groups.start, "row_groups": len(groups), "rows": rows}
            name = file.path if self._split_by == "file" else f"{file.path}#{groups.start}"
            yield Split(name, {**info, **part})

    def earliest(self, split: Split, column: str) -> int | None:
        """Return the earliest time, from the statistics of the row groups; None: they have none."""
        file = self._files[self._known.own(split).path]
        groups = _info(split).groups
        place = file.path, groups.start, groups.stop, column
        if place not in self._earliest:
            known = column in file.types
            self._earliest[place] = earliest_time(file.metadata, column, groups) if known else None
        return self._earliest[place]

    def check(self, split: Split) -> None:
        self._checked(split)

    def _checked(self, split: Split) -> tuple[ParquetFooter, range]:
        """Return the file and the row groups of ``split``. Raises: InputChanged, CheckpointDamaged.

        Besides the identity of the file, the footer must be the same: it says where the row groups are.
        """
        info = _info(split)
        now = self._known.check(split)
        file = self._files[now.path]
        if file.known is not now:
            try:
                file = ParquetFooter.open(now.path, self._known.where)
            except SourceError as error:
                raise changed(split, f"it cannot be read any more: {error}") from error
        if file.hash != info.footer:
            raise changed(split, f"its footer had hash {excerpt(info.footer)} and has {file.hash}")
        groups = info.groups
        if groups.stop > file.metadata.num_row_groups:
            raise CheckpointDamaged(
                f"read_parquet: split {excerpt(split.id)}: there is no row group {groups.stop - 1}, only "
                f"{file.metadata.num_row_groups} of them"
            )
        return file, groups

    def parquet_files(self) -> ParquetFiles | str:
        """Return the files, if they are on this machine's file system, and other engines read the same values.

        Other engines cut the digits of INT96 times, and convert dates and times of the calendar that Spark had.
        """
        if self._known.where.remote:
            return "its files are in a filesystem of pyarrow's"
        for file in self._files.values():
            if _is_of_old_calendar(file.metadata.metadata or {}):
                return f"{file.path!r} was written by Spark with the calendar that it had before version 3"
            for field in self.schema:
                stored = file.types.get(field.name)
                if field.name in file.int96:
                    return f"{file.path!r} has the times of {field.name!r} as INT96, whose nanoseconds Spark cuts"
                if field.name in file.extensions:
                    return f"{file.path!r} has {field.name!r} as an extension type, whose storage Spark reads"
                if stored is None or types.is_null(stored) or not is_one_type(stored, field.type):
                    return f"{file.path!r} has {field.name!r} as {stored or 'no column'}, which is read as {field.type}"
        names = {name for file in self._files.values() for name in file.types}
        rows = sum(file.metadata.num_rows for file in self._files.values())
        return ParquetFiles([os.path.abspath(path) for path in self._files], sorted(names), rows)

    def identified_by(self, identity: InputIdentity) -> ParquetSource:
        return self._with(known=self._known.identified_by(identity))

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        row = parsed(Count | None, offset, f"read_parquet: the position in {excerpt(split.id)}") or 0
        file, groups = self._checked(split)
        columns = self._columns
        pruned = pruned_groups(file.metadata, groups, file.types, columns.schema, self._conditions)
        layout = file.sizes.layout(groups, self._batch_rows).without(pruned)
        where = self._known.where
        opener = ParquetOpener(file, columns.declared, columns.dictionary, self.may_be_text, where, context)
        return ParquetReader(split.id, layout, row, columns.schema, opener)

    def select(self, columns: Sequence[str]) -> ParquetSource:
        valid = frozenset(self.schema.names)
        for name in columns:
            if name not in valid:
                raise UnknownColumn(name, self.schema.names, f"read_parquet({self._known.first.path!r})")
        return self._with(columns=replace(self._columns, schema=_selected(self.schema, columns)))

    def read_as(self, schema: pa.Schema) -> ParquetSource:
        """Return the source with those types of ``schema`` that are one Parquet type with the types of its columns.

        A column without values takes any type. Columns keep their order, and others keep their types.
        """
        types_ = dict(zip(schema.names, schema.types, strict=True))
        fields = [field.with_type(self._type_as(field, types_.get(field.name, field.type))) for field in self.schema]
        return self._with(columns=replace(self._columns, schema=pa.schema(fields)))

    def _type_as(self, field: pa.Field, type_: pa.DataType) -> pa.DataType:
        if is_one_type(field.type, type_):
            return type_ if is_readable(field.type, type_) else field.type
        stored = [file for file in self._files.values() if field.name in file.types]
        return type_ if all(file.has_only_nulls(field.name) for file in stored) else field.type

    def schema_of_first(self, paths: Sequence[str]) -> pa.Schema:
        """Return the columns of the stream, each in the type of the first of ``paths`` that holds all files' values.

        Such a type stays the same if files of the same Parquet type, but of another layout or zone, come later.

        Args:
            paths: the files of the source, in an order in which later ones come last.
        """
        read = self._columns
        kinds = list({id(types_): types_ for types_ in (self._files[path].types for path in paths)}.values())

        def first(field: pa.Field) -> pa.Field:
            if field.name in read.declared:
                return field
            stored = [kind[field.name] for kind in kinds if field.name in kind]
            return field.with_type(next((type_ for type_ in stored if holds_all(type_, field.type)), field.type))

        schema = pa.schema([first(field) for field in self.schema])
        plain = [field.name for field in schema if not types.is_dictionary(field.type)]
        return encoded_schema(schema, [name for name in plain if name in read.dictionary])

    def encoded(self, columns: Sequence[str]) -> ParquetSource:
        """Return the source with dictionaries for the ``columns`` whose values repeat in the first row group."""
        read = self._columns
        measured = {name: self._sample(name) for name in columns if name not in read.dictionary}
        samples = {name: sample for name, sample in measured.items() if sample is not None}
        repeated = [name for name, sample in samples.items() if sample.repeats]
        schema = encoded_schema(read.schema, repeated) if repeated else read.schema
        dictionary = (*read.dictionary, *repeated)
        return self._with(columns=_Columns(schema, read.declared, dictionary, samples))

    @property
    def may_be_text(self) -> tuple[str, ...]:
        read = self._columns
        return tuple(name for name, sample in read.samples.items() if sample.repeats and name in read.schema.names)

    def _sample(self, column: str) -> Sample | None:
        """Return the size of a dictionary of the first rows; None: they cannot be read as a dictionary.

        The encodings in the footer do not tell: a writer that gives its dictionary up half way leaves both. An error is
        reported by the reader that meets it again.
        """
        null = pa.null()
        typed = (file for file in self._files.values() if file.types.get(column, null) != null)
        file, group = next(((f, group) for f in typed for group, rows in enumerate(f.sizes.rows) if rows), (None, 0))
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
        columns: _Columns | None = None,
        conditions: tuple[Condition, ...] | None = None,
    ) -> ParquetSource:
        return ParquetSource(
            known or self._known,
            self._files,
            columns or self._columns,
            self._batch_rows,
            self._split_by,
            self._conditions if conditions is None else conditions,
        )

    def choices(self) -> Sequence[Choice]:
        sizes = [file.sizes for file in self._files.values()]
        read = self._columns
        named = [name for name in read.dictionary if name not in read.samples and name in read.schema.names]
        return choices_of(sizes, len(self.splits()), self._batch_rows, named, read.samples, self._conditions)

    def __repr__(self) -> str:
        return repr(self._known)


def _is_of_old_calendar(notes: Mapping[bytes, bytes]) -> bool:
    """Return whether Spark takes the dates and times of a file for those of the Julian calendar before 1582."""
    major = notes.get(_SPARK, b"3").partition(b".")[0]
    return any(key in notes for key in _OLD_CALENDAR) or (major.isdigit() and int(major) < 3)


def _warn_of_partition_keys(files: Sequence[ParquetFooter]) -> None:
    folders = {folder for file in files for folder in os.path.dirname(file.path).split(os.sep)}
    keys = sorted({folder.partition("=")[0] for folder in folders if _PARTITION.fullmatch(folder)})
    lost = [key for key in keys if key not in files[0].types]
    if lost:
        warnings.warn(
            f"read_parquet: {files[0].path!r} lies in folders that are named by {lost}, which are not columns of the "
            f"files and will not be columns of the stream; read each folder as a source of its own and add the key "
            f"with with_columns(lit(...).alias({lost[0]!r})), or write it into the files",
            PartitionKeyWarning,
            stacklevel=user_frame(),
        )


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    chosen = frozenset(columns)
    return pa.schema([field for field in schema if field.name in chosen])
