"""A directory in which new files appear, as an unbounded source: the reader of their format reads each file once."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dataflow.clock import Duration, microseconds
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.source import Condition, InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import (
    FilesLeftOutWarning,
    InputChanged,
    SchemaMismatch,
    SourceError,
    check_count,
    user_frame,
)
from dataflow.state.dictionaries import encoded_schema
from dataflow.untrusted import excerpt
from operators.sources.files import Files
from operators.sources.known_file import UNREADABLE
from operators.sources.name_set import NameSet
from operators.sources.parquet import ParquetSource
from operators.sources.parquet_values import readable_type
from operators.sources.paths import resolve
from operators.sources.text_source import KnownTypes, check_known, given_names, given_types, selected
from operators.sources.watch_reader import WatchReader
from operators.sources.watched_directory import WatchedDirectory, reading_order

__all__ = ["WatchSource", "watch"]


def watch(
    directory: str | os.PathLike[str],
    read: Callable[..., Source],
    *,
    pattern: str | None = None,
    every: Duration = "1s",
    splits: int = 1,
    remember: int = 10_000,
    filesystem: Any = None,
    **options: Any,
) -> WatchSource:
    """Read the files in ``directory``, and those that will appear in it; the source does not end.

    All files have the columns of the first one that is not empty. Parquet files have the same Parquet types, as in
    ``read_parquet``: a column without values in some of the files that are there at the start has the type that the
    others have (with a function of your own, the type that the first file has). If there is no file yet, the options
    must include ``schema=`` with all columns.

    New files of one listing are read in the order of their time of modification, then of their names, each to its end
    before the next. Files in folders below are not read. Names that begin with ``_`` or ``.``, or end in ``.tmp``,
    ``.staged``, ``.part`` or ``~`` are ignored. A file must appear whole: write it under such a name, or elsewhere on
    the same disk, and rename it.

    The directory is listed when a reader has nothing left to read. A file that was read may be removed after two more
    checkpoints. A file that is removed or renamed before it is begun is not read under its old name.

    A file is new if its name is new. Times do not matter, so ``mv``, ``cp -p`` and ``rsync -t`` may bring old files. A
    checkpoint keeps a 64-bit hash of each name that was read and is still there: 8 bytes a name in memory and 11 in
    each checkpoint, so 11 MB for a million files; every listing hashes all names. Move files away once they are read.
    Two of a million names have the same hash with a probability of 3e-8; the second one is then not read. A name that
    goes and comes back is read again if a listing missed it. If another directory takes the place of this one, no name
    is forgotten until a file in the new directory was read.

    At every listing, the ``remember`` files of each split that were read last are checked for changes: by size and time
    of modification, and, if these differ, by content, as other sources recognise their files
    (``Checkpointing(input_identity=)``). Each of them takes about 60 bytes in a checkpoint. A change of any other file
    that was read is not noticed.

    Args:
        directory: a path or URI, as in ``read_csv``.
        read: the function that reads one file: ``read_csv``, ``read_json``, ``read_ipc`` or ``read_parquet``.
        pattern: files whose names do not match it (``"*.csv"``) are ignored. None: files whose names do not end, in
            upper case or lower, as those of the format do, are left out; a FilesLeftOutWarning names them once. A
            function of your own reads all files.
        every: the least time between two listings, such as ``"10s"``.
        splits: how many subtasks can read; a hash of its name assigns each file to one.
        remember: how many files of each split are checked for changes.
        filesystem: as in ``read_csv``.
        **options: further arguments of ``read``.

    Returns: an unbounded, replayable source.

    Raises: SourceError for a directory that cannot be listed, and a file that cannot be opened; InputChanged, while it
    runs, for a file that changed since it was read or begun; SchemaMismatch for one with other columns; what ``read``
    raises.

    >>> import pathlib, tempfile
    >>> from operators.sources.csv_files import read_csv
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = pathlib.Path(folder.name, "1.csv").write_text("x\\n1\\n")
    >>> source = watch(folder.name, read_csv, pattern="*.csv", every="10s")
    >>> source.bounded, source.schema.names
    (False, ['x'])
    >>> folder.cleanup()
    """
    check_count("watch: splits", splits)
    check_count("watch: remember", remember)
    where, path = resolve(directory, filesystem)
    suffixes = _attribute(read, "suffixes")
    watched = WatchedDirectory(path, where, pattern, suffixes, microseconds(every, "watch(every=)"), remember)
    accepted = inspect.signature(read).parameters
    if "split_by" in accepted:
        options = {**options, "split_by": "file"}
    if "filesystem" in accepted and where.filesystem is not None:
        options = {**options, "filesystem": where.filesystem}
    if suffixes and options.get("schema") is not None:
        types = given_types(options["schema"])
        options = {**options, "schema": KnownTypes(pa.schema(types), tuple(types))}
    listing = watched.listing()
    if left_out := watched.left_out(listing, NameSet()):
        warnings.warn(watched.named(left_out), FilesLeftOutWarning, stacklevel=user_frame())
        watched = replace(watched, warned=True)
    files = sorted(watched.wanted(listing, NameSet()), key=reading_order)
    if files:
        there = [where.join(path, file.name) for file in files]
        first = read(_first_with_rows(there, where), **options)
        schema, sides = first.schema, first.sides
        if isinstance(first, ParquetSource):
            if suffixes:  # a function of the user's reads one file
                whole = read(there, **options)
                assert isinstance(whole, ParquetSource), f"{read} read Parquet files as {whole}"
                schema = whole.schema_of_first(there)
        elif "schema" in accepted:  # types are not inferred anew from each file
            options = {**options, "schema": KnownTypes(schema, given_names(options.get("schema")))}
    elif options.get("schema") is not None:
        schema = _given(options)
        aside = OnError.of(options.get("on_error", OnError.FAIL), "watch") is OnError.SIDE
        sides = {ERRORS: errors_schema()} if aside else {}
    else:
        raise SourceError(
            f"watch({path!r}): there is no file yet to infer columns from; "
            + ("give schema=" if "schema" in accepted else "put a first file there, which may have no rows")
        )
    return WatchSource(watched, read, options, schema, sides, splits)


def _attribute(read: Callable[..., Source], name: str) -> tuple[str, ...]:
    """Return an attribute of a reader of the library, which may be in a ``functools.partial``."""
    attribute: tuple[str, ...] = getattr(getattr(read, "func", read), name, ())
    return attribute


def _first_with_rows(paths: Sequence[str], where: Files) -> str:
    """Return the first file that is not empty, or the first one if all are; one that cannot be read is not empty."""
    for path in paths:
        try:
            if not where.is_empty(path):
                return path
        except UNREADABLE:  # the reader of its format says why
            return path
    return paths[0]


def _given(options: Mapping[str, Any]) -> pa.Schema:
    whole = encoded_schema(pa.schema(given_types(options["schema"])), options.get("dictionary", ()))
    columns = options.get("columns")
    check_known("watch", columns or (), whole.names)
    return whole if columns is None else selected(whole, columns)


def _listed(columns: Mapping[str, pa.DataType]) -> str:
    return "{" + ", ".join([f"{name!r}: {type_}" for name, type_ in columns.items()]) + "}"


def _declaring(found: Mapping[str, pa.DataType], expected: Mapping[str, pa.DataType]) -> str:
    """Return how to read Parquet files with the columns ``expected``, and one with those ``found``, as one stream."""
    changed = [name for name in found if name in expected and found[name] != expected[name]]
    hopeless = [name for name in changed if readable_type([found[name], expected[name]]) is None]
    condition = f", if the files before it have no values of {', '.join(map(repr, hopeless))}" if hopeless else ""
    return f"; or declare the types of all columns with schema= and start in a new checkpoint directory{condition}"


class WatchSource(Source):
    """The source that ``watch`` makes. Picklable if its filesystem is and ``read`` is a function of a module."""

    bounded = False

    def __init__(
        self,
        watched: WatchedDirectory,
        read: Callable[..., Source],
        options: Mapping[str, Any],
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        splits: int,
        columns: Sequence[str] | None = None,
        identity: InputIdentity = "mtime",
        conditions: Sequence[Condition] = (),
    ) -> None:
        self.identity = identity
        self.blocking = watched.where.remote
        self._watched = watched
        self._read = read
        self._options = dict(options)
        self._whole = schema
        self._sides = dict(sides)
        self._splits = splits
        self._conditions = tuple(conditions)
        self._columns = schema.names if columns is None else selected(schema, columns).names

    @property
    def schema(self) -> pa.Schema:
        return selected(self._whole, self._columns)

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return self._sides

    @property
    def kernels(self) -> Sequence[str]:
        kernels = getattr(self._read, "kernels", None)  # of the function: there may be no file yet
        return () if kernels is None else tuple(kernels(**self._options))

    def splits(self) -> tuple[Split, ...]:
        return tuple(
            Split(f"{self._watched.path}#{part}", {"part": part, "parts": self._splits}) for part in range(self._splits)
        )

    def check(self, split: Split) -> None:
        if split not in self.splits():
            raise InputChanged(
                f"watch: the checkpoint was taken over {excerpt(split.id)}, one of {excerpt(split.info.get('parts'))} "
                f"splits; this is {self._watched.path!r} in {self._splits}: give the same directory and splits="
            )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        part = self.splits().index(split)  # not the checkpoint's number, which may be 1.0
        watched = replace(self._watched, part=part, parts=self._splits)
        return WatchReader(watched, self, offset, context, context.repeated.get(split.id))

    def open(self, path: str) -> Source:
        """Return the source of one file. Raises: SchemaMismatch if it has other columns."""
        source = self._read(path, **self._options).identified_by(self.identity)
        if isinstance(source, ParquetSource):  # files of several writers may differ in Arrow's notes on their types
            source = source.read_as(self._whole)
        found = {field.name: field.type for field in source.schema}
        expected = {field.name: field.type for field in self._whole}
        if found != expected:
            raise SchemaMismatch(
                f"watch: {path!r} has columns {_listed(found)}, expected {_listed(expected)} as in the files before it "
                f"(or schema=); move it elsewhere, or choose the columns they share with columns=[...]"
                f"{_declaring(found, expected) if isinstance(source, ParquetSource) else ''}"
            )
        return source.select(self._columns).skipping(self._conditions)

    def select(self, columns: Sequence[str]) -> WatchSource:
        check_known(repr(self), columns, self.schema.names)
        return self._with(columns, self.identity, self._conditions)

    def skipping(self, conditions: Sequence[Condition]) -> WatchSource:
        return self._with(self._columns, self.identity, (*self._conditions, *conditions))

    def identified_by(self, identity: InputIdentity) -> WatchSource:
        return self._with(self._columns, identity, self._conditions)

    def _with(self, columns: Sequence[str], identity: InputIdentity, conditions: Sequence[Condition]) -> WatchSource:
        source = (self._watched, self._read, self._options, self._whole, self._sides, self._splits)
        return WatchSource(*source, columns, identity, conditions)

    def __repr__(self) -> str:
        return f"watch({self._watched.path!r})"
