"""A directory in which new files appear, as an unbounded source: each file is read once, by the reader of its format.

Invariant: a file is *done* (in ``done``, or at or below ``mark`` in the order of reading), being read, or to come. The
mark exists so that a position stays small: of the files done, only the latest in that order are remembered by name.
The mark never passes a file that waits: it moves to the least of the files done, and all that wait come behind the
one that was done last.
"""

from __future__ import annotations

import fnmatch
import inspect
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import xxhash

from dataflow.clock import Duration, microseconds
from dataflow.errors import CheckpointDamaged, ConfigurationError, InputChanged, SchemaMismatch, SourceError
from dataflow.row_errors import ERRORS, OnError, errors_schema
from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.untrusted import Count, Time, excerpt, is_plain_name, parsed
from operators.sources.files import Files, Status
from operators.sources.paths import resolve
from operators.sources.text_source import check_known, given_types, selected

__all__ = ["WatchSource", "watch"]

_UNFINISHED: Final = (".tmp", ".staged", ".part", "~")


def watch(
    directory: str | os.PathLike[str],
    read: Callable[..., Source],
    *,
    pattern: str = "*",
    every: Duration = "1s",
    splits: int = 1,
    remember: int = 10_000,
    filesystem: Any = None,
    **options: Any,
) -> WatchSource:
    """The rows of the files in ``directory``, and of those that will appear in it; it does not end.

    ``read`` is what reads one file (``read_csv``, ``read_json``, ``read_ipc``, ``read_parquet``), with ``options``. All
    files have the columns of the first one; where there is none yet, ``schema=`` is among the options and has them all.

    Files come in the order in which they were last modified, then by name, each read to its end before the next; what
    stands in folders below is not seen. Names that begin with ``_`` or ``.``, or end in ``.tmp``, ``.staged``,
    ``.part`` or ``~`` are left alone, as are those that ``pattern`` (``"*.csv"``) does not fit. A file must appear
    whole: write it under such a name, or elsewhere on the same disk, and rename it.

    The directory is listed when a reader has nothing left, at most once in ``every``. ``splits`` deals the files out by
    a hash of their names, so that as many subtasks can read. A file that was read may be removed, after two more
    checkpoints. The names of the ``remember`` latest in each split that are still there are kept in checkpoints; what
    comes later with a time of modification before all of these counts as read, so it is not.

    Raises: SourceError for a directory that cannot be listed; InputChanged, while it runs, for a file that changed
    since it was read or begun; SchemaMismatch for one with other columns; what ``read`` raises.

    >>> import pathlib, tempfile
    >>> from operators.sources.csv_files import read_csv
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = pathlib.Path(folder.name, "1.csv").write_text("x\\n1\\n")
    >>> source = watch(folder.name, read_csv, pattern="*.csv", every="10s")
    >>> source.bounded, source.schema.names
    (False, ['x'])
    >>> folder.cleanup()
    """
    if splits < 1 or remember < 1:
        raise ConfigurationError(f"watch: splits and remember are at least 1, got {splits} and {remember}")
    where, path = resolve(directory, filesystem)
    look = _Look(path, where, pattern, microseconds(every, "watch(every=)"), remember)
    accepted = inspect.signature(read).parameters
    if "split_by" in accepted:
        options = {**options, "split_by": "file"}
    if "filesystem" in accepted and where.filesystem is not None:
        options = {**options, "filesystem": where.filesystem}
    files = sorted(look.files(), key=_order)
    if files:
        first = read(where.join(path, files[0].name), **options)
        schema, sides = first.schema, first.sides
    elif options.get("schema") is not None:
        schema = _given(options)
        aside = OnError.of(options.get("on_error", OnError.FAIL), "watch") is OnError.SIDE
        sides = {ERRORS: errors_schema()} if aside else {}
    else:
        raise SourceError(
            f"watch({path!r}): there is no file yet to infer columns from; "
            + ("give schema=" if "schema" in accepted else "put a first one there, perhaps without rows")
        )
    if "schema" in accepted:  # types are not inferred anew from each file
        options = {**options, "schema": schema}
    return WatchSource(look, read, options, schema, sides, splits)


def _given(options: Mapping[str, Any]) -> pa.Schema:
    whole = pa.schema(given_types(options["schema"]))
    columns = options.get("columns")
    check_known("watch", columns or (), whole.names)
    return whole if columns is None else selected(whole, columns)


def _order(file: Status) -> tuple[int, str]:
    return file.modified, file.name


@dataclass(frozen=True, slots=True)
class _Look:
    """What is looked at, and how often (microseconds); ``part`` of ``parts`` by the hash of names."""

    directory: str
    where: Files
    pattern: str
    every: int
    remember: int
    part: int = 0
    parts: int = 1

    def files(self) -> list[Status]:
        """The files there are now that are whole and wanted. Raises: SourceError."""
        try:
            found = self.where.listed(self.directory)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"watch({self.directory!r}): cannot be listed: {error}; check the path") from error
        return [file for file in found if self.wants(file.name)]

    def wants(self, name: str) -> bool:
        """Whether a file of this name is whole, and read here."""
        if name.startswith(("_", ".")) or name.endswith(_UNFINISHED) or not fnmatch.fnmatchcase(name, self.pattern):
            return False
        return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape")) % self.parts == self.part

    def path(self, name: str) -> str:
        return self.where.join(self.directory, name)


class WatchSource(Source):
    """See ``watch``. Picklable where its filesystem is, and ``read`` a function of a module."""

    bounded = False

    def __init__(
        self,
        look: _Look,
        read: Callable[..., Source],
        options: Mapping[str, Any],
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        splits: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.blocking = look.where.remote
        self._look = look
        self._read = read
        self._options = dict(options)
        self._whole = schema
        self._sides = dict(sides)
        self._splits = splits
        self._columns = schema.names if columns is None else [name for name in schema.names if name in columns]

    @property
    def schema(self) -> pa.Schema:
        return selected(self._whole, self._columns)

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return self._sides

    def splits(self) -> tuple[Split, ...]:
        return tuple(
            Split(f"{self._look.directory}#{part}", {"part": part, "parts": self._splits})
            for part in range(self._splits)
        )

    def check(self, split: Split) -> None:
        if split not in self.splits():
            raise InputChanged(
                f"watch: the checkpoint was taken over {excerpt(split.id)}, one of {excerpt(split.info.get('parts'))} "
                f"splits; this is {self._look.directory!r} in {self._splits}: give the same directory and splits="
            )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        part: Any = split.info["part"]
        look = replace(self._look, part=part, parts=self._splits)
        return _WatchReader(look, self, offset, context)

    def open(self, path: str) -> Source:
        """The source of one file. Raises: SchemaMismatch where it has other columns."""
        source = self._read(path, **self._options)
        found = {field.name: field.type for field in source.schema}
        expected = {field.name: field.type for field in self._whole}
        if found != expected:
            raise SchemaMismatch(
                f"watch: {path!r} has columns {found}, expected {expected} as in the first file (or schema=); move it "
                f"elsewhere, or choose the columns they share with columns=[...]"
            )
        return source.select(self._columns)

    def select(self, columns: Sequence[str]) -> WatchSource:
        check_known(repr(self), columns, self.schema.names)
        return WatchSource(self._look, self._read, self._options, self._whole, self._sides, self._splits, columns)

    def __repr__(self) -> str:
        return f"watch({self._look.directory!r})"


class _Begun(msgspec.Struct):
    """The file that is being read, in a position."""

    name: str
    bytes: Count
    modified: Time
    split: _BegunSplit
    offset: Any = None


class _BegunSplit(msgspec.Struct):
    id: str
    info: dict[str, Any]


class _Offset(msgspec.Struct):
    """A position; see the module's text."""

    mark: tuple[Time, str] | None = None
    done: dict[str, tuple[Count, Time]] = {}
    file: _Begun | None = None


class _WatchReader(SplitReader):
    """Reads file after file. ``done`` is replaced, never changed: positions that were given out share it."""

    def __init__(self, look: _Look, source: WatchSource, offset: Json, context: SourceContext) -> None:
        at = _Offset() if offset is None else parsed(_Offset, offset, f"watch({look.directory!r}): the position")
        self._look = look
        self._source = source
        self._context = context
        self._names = source.schema.names
        self._mark: tuple[int, str] | None = at.mark
        self._done: dict[str, Json] = {name: list(known) for name, known in at.done.items()}  # name: [bytes, modified]
        self._waiting: deque[Status] = deque()
        self._due: int | None = None
        self._file: Status | None = None
        self._split: Split | None = None
        self._reader: SplitReader | None = None
        if at.file is not None:
            self._resume(at.file)

    def _resume(self, file: _Begun) -> None:
        """Go on in the file that a checkpoint was taken within: one that this reader would have begun itself."""
        if not (is_plain_name(file.name) and self._look.wants(file.name)):
            raise CheckpointDamaged(
                f"watch({self._look.directory!r}): the checkpoint was taken within {excerpt(file.name)}, which is not "
                "the name of a file that is read here"
            )
        path = self._look.path(file.name)
        try:
            source = self._source.open(path)
        except SourceError as error:
            raise InputChanged(f"watch: the checkpoint was taken within {path!r}: {error}") from error
        self._file = Status(file.name, file.bytes, file.modified)
        self._split = Split(file.split.id, file.split.info)
        source.check(self._split)
        self._reader = source.reader(self._split, file.offset, self._context)

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        while True:
            if self._reader is not None:
                batch = self._reader.poll(max_rows)
                if batch is not END:
                    return batch if batch is None or batch.schema.names == self._names else batch.select(self._names)
                self._end()
            file = self._next()
            if file is None:
                return None
            self._begin(file)

    @property
    def mid_batch(self) -> bool:
        return self._reader is not None and self._reader.mid_batch

    def rejected(self) -> pa.RecordBatch | None:
        return None if self._reader is None else self._reader.rejected()

    @property
    def offset(self) -> Json:
        mark: Json = None if self._mark is None else list(self._mark)
        return {"mark": mark, "done": self._done, "file": self._place()}

    def _place(self) -> Json:
        if self._file is None or self._split is None or self._reader is None:
            return None
        file, split = self._file, self._split
        known: dict[str, Json] = {"name": file.name, "bytes": file.bytes, "modified": file.modified}
        return {**known, "split": {"id": split.id, "info": split.info}, "offset": self._reader.offset}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _next(self) -> Status | None:
        if not self._waiting and (self._due is None or self._context.clock.now() >= self._due):
            self._due = self._context.clock.now() + self._look.every
            self._waiting.extend(self._new())
        return self._waiting.popleft() if self._waiting else None

    def _new(self) -> list[Status]:
        files = self._look.files()
        for file in files:
            if file.name in self._done and self._done[file.name] != [file.bytes, file.modified]:
                raise self._changed(file)
        here = {file.name for file in files}
        if not here.issuperset(self._done):
            self._done = {name: known for name, known in self._done.items() if name in here}
        coming = [file for file in files if file.name not in self._done]
        return sorted([file for file in coming if self._mark is None or _order(file) > self._mark], key=_order)

    def _begin(self, file: Status) -> None:
        source = self._source.open(self._look.path(file.name))
        splits = source.splits()
        if len(splits) > 1:
            raise ConfigurationError(f"watch: {file.name!r} comes in {len(splits)} splits; read= gives one a file")
        self._file = file
        if not splits:  # no rows
            self._end()
            return
        self._split = splits[0]
        self._reader = source.reader(self._split, None, self._context)

    def _end(self) -> None:
        assert self._file is not None, "a file was begun"
        file, reader = self._file, self._reader
        self._file = self._split = self._reader = None
        if reader is not None:
            reader.close()
        try:
            now = self._look.where.status(self._look.path(file.name))
        except FileNotFoundError:
            return  # removed while it was read: whole, for its reader came to the end
        except OSError as error:
            raise SourceError(
                f"watch: {file.name!r} was read, but whether it changed meanwhile cannot be seen: {error}; run the job "
                "again once the directory can be reached"
            ) from error
        if now != file:
            raise self._changed(now)
        self._done = {**self._done, file.name: [file.bytes, file.modified]}
        if len(self._done) > self._look.remember:
            self._forget()

    def _forget(self) -> None:
        """Let the mark stand for the file that comes first in the order of reading."""
        order = {name: (int(known[1]), name) for name, known in self._done.items()}  # type: ignore[index,arg-type]
        first = min(order, key=order.__getitem__)
        self._mark = max(order[first], self._mark or order[first])
        self._done = {name: known for name, known in self._done.items() if name != first}

    def _changed(self, now: Status) -> InputChanged:
        return InputChanged(
            f"watch: {self._look.path(now.name)!r} changed after it was read or begun: it has {now.bytes} bytes now; "
            f"let files appear whole, by renaming them, and under names of their own"
        )
