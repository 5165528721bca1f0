"""A directory in which new files appear, as an unbounded source: each file is read once, by the reader of its format.

Invariant: a file is *read* (the hash of its name is in ``_read``), being read, or to come. A listing alone moves files
between these: a name that is not in ``_read`` is to come, whatever its time, and a name that is no longer listed leaves
``_read``. So a position has 8 bytes for each file that was read and is still there.

This code assumes that a directory which can be listed lists all that is in it. Another directory may be in its place
for a while (a mount that is missing): what is listed then says nothing about the files that were read, so no name is
dropped until the directory is back, or a file that was read is in the other one.
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
import numpy as np
import pyarrow as pa

from dataflow.clock import Duration, microseconds
from dataflow.errors import (
    CheckpointDamaged,
    ConfigurationError,
    InputChanged,
    InputMissingWarning,
    NewInputWarning,
    SchemaMismatch,
    SourceError,
)
from dataflow.row_errors import ERRORS, OnError, errors_schema
from dataflow.source import END, EndOfSplit, InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.untrusted import Count, Time, excerpt, is_plain_name, parsed
from operators.sources.files import Entry, Files, Status
from operators.sources.known_file import UNREADABLE, FileIdentity, KnownFile
from operators.sources.name_set import Hashes, NameSet, hashes_of
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

    New files of one listing come in the order in which they were last modified, then by name, each read to its end
    before the next. Files in folders below are not read. Names that begin with ``_`` or ``.``, or end in ``.tmp``,
    ``.staged``, ``.part`` or ``~`` are left alone, as are those that ``pattern`` (``"*.csv"``) does not fit. A file
    must appear whole: write it under such a name, or elsewhere on the same disk, and rename it.

    The directory is listed when a reader has nothing left, at most once in ``every``. ``splits`` deals the files out by
    a hash of their names, so that as many subtasks can read. A file that was read may be removed, after two more
    checkpoints. One that is removed or renamed before it is begun is not read under its old name.

    A file is new if its name is. Times do not matter, so ``mv``, ``cp -p`` and ``rsync -t`` may bring old ones. A
    checkpoint keeps a 64-bit hash of each name that was read and is still there: 8 bytes a name in memory and 11 in
    each checkpoint, so 11 MB for a million files; every listing hashes all names. Move files away that were read. Two
    of a million names have the same hash with a probability of 3e-8; the second one is then not read. A name that goes
    and comes back is read again, if a listing missed it. If another directory takes the place of this one, names stay
    read until a file of that one was read.

    The ``remember`` files of each split that were read last are compared with what they were, at every listing: by size
    and time of modification, and, where these differ, by content, as other sources recognise their files
    (``Checkpointing(input_identity=)``). Each of them takes about 60 bytes in a checkpoint. A change of any other file
    that was read is not noticed.

    Raises: SourceError for a directory that cannot be listed, and a file that cannot be opened; InputChanged, while it
    runs, for a file that changed since it was read or begun; SchemaMismatch for one with other columns; what ``read``
    raises. A checkpoint of an older version, without hashes, is restored by its own rule: a NewInputWarning has the
    number of files that count as read because of their old time.

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
    return file.modified or 0, file.name


@dataclass(frozen=True, slots=True)
class _Listing:
    """What was in a directory, with the hashes of the names.

    ``directory`` is its number; None if it was replaced meanwhile, or where a file system has no such numbers.
    """

    directory: int | None
    entries: Mapping[str, Entry]
    hashes: Hashes


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
        """Return the files there are now that are whole and wanted. Raises: SourceError."""
        return self.wanted(self.listing(), NameSet())

    def listing(self) -> _Listing:
        """Return all that is in the directory now. Raises: SourceError."""
        try:
            before = self.where.directory(self.directory)
            entries = self.where.listed(self.directory)
            after = self.where.directory(self.directory)
        except UNREADABLE as error:
            raise self._unlisted(error) from error
        return _Listing(before if before == after else None, entries, hashes_of(entries))

    def wanted(self, listing: _Listing, read: NameSet) -> list[Status]:
        """Return the listed files of this part that are whole, wanted and not in ``read``. Raises: SourceError."""
        mine = listing.hashes % np.uint64(self.parts) == np.uint64(self.part)
        new = np.flatnonzero(mine & ~read.contains(listing.hashes))
        names = list(listing.entries) if len(new) else []
        found = [self.status(listing.entries[names[at]]) for at in new.tolist() if self._whole(names[at])]
        return [file for file in found if file is not None]

    def wants(self, name: str) -> bool:
        """Return whether a file of this name is whole, and of this part."""
        return self._whole(name) and int(hashes_of([name])[0]) % self.parts == self.part

    def status(self, entry: Entry) -> Status | None:
        """Return the status of what was listed; None: it is gone, or no file. Raises: SourceError."""
        try:
            return self.where.status_of(entry)
        except OSError as error:
            raise self._unlisted(error) from error

    def _unlisted(self, error: Exception) -> SourceError:
        return SourceError(f"watch({self.directory!r}): cannot be listed: {error}; check the path")

    def _whole(self, name: str) -> bool:
        unfinished = name.startswith(("_", ".")) or name.endswith(_UNFINISHED)
        return not unfinished and fnmatch.fnmatchcase(name, self.pattern)

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
        identity: InputIdentity = "mtime",
    ) -> None:
        self.identity = identity
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

    @property
    def kernels(self) -> Sequence[str]:
        return getattr(self._read, "kernels", ())  # of the function: there may be no file yet

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
        part = self.splits().index(split)  # not what the checkpoint says: it may say 1.0
        look = replace(self._look, part=part, parts=self._splits)
        return _WatchReader(look, self, offset, context, context.repeated.get(split.id))

    def open(self, path: str) -> Source:
        """The source of one file. Raises: SchemaMismatch where it has other columns."""
        source = self._read(path, **self._options).identified_by(self.identity)
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
        return self._with(columns, self.identity)

    def identified_by(self, identity: InputIdentity) -> WatchSource:
        return self._with(self._columns, identity)

    def _with(self, columns: Sequence[str], identity: InputIdentity) -> WatchSource:
        return WatchSource(
            self._look, self._read, self._options, self._whole, self._sides, self._splits, columns, identity
        )

    def __repr__(self) -> str:
        return f"watch({self._look.directory!r})"


class _BegunSplit(msgspec.Struct):
    id: str
    info: dict[str, Any]


class _Begun(msgspec.Struct):
    """The file that is being read, in a position."""

    name: str
    bytes: Count
    split: _BegunSplit
    modified: Time | None = None
    offset: Any = None


class _Done(msgspec.Struct, array_like=True):
    """The identity of a file that was read."""

    bytes: Count
    modified: Time | None
    content: str | None = None


class _Position(msgspec.Struct):
    """See ``_WatchReader``. An older version has no ``names``, and no ``content`` in ``done``."""

    names: str | None = None
    directory: int | None = None
    done: dict[str, _Done] = {}
    file: _Begun | None = None
    mark: tuple[Time, str] | None = None

    @classmethod
    def of(cls, offset: Json, directory: str) -> _Position:
        if offset is None:
            return cls(names="")
        position: _Position = parsed(cls, offset, f"watch({directory!r}): the position")
        return position


class _WatchReader(SplitReader):
    """Reads file after file.

    A position is ``{"names", "directory", "done", "file"}``: the set of names that were read, the directory in which
    they were, the identities of the ``remember`` last of them, and the file that is being read. One of an older version
    has ``"mark"`` in the place of the set: until the first listing, files at or before it in the order of reading count
    as read. With ``until``, a position, files are read again that an earlier reader had read there.
    """

    def __init__(
        self, look: _Look, source: WatchSource, offset: Json, context: SourceContext, until: Json = None
    ) -> None:
        at = _Position.of(offset, look.directory)
        self._look = look
        self._source = source
        self._context = context
        self._names = source.schema.names
        self._mark: tuple[int, str] | None = at.mark
        self._read = self._names_read(at)
        self._until = None if until is None else _Position.of(until, look.directory)
        self._directory: int | None = at.directory
        self._warned = False
        self._done: dict[str, FileIdentity] = {
            name: FileIdentity(known.bytes, known.modified, known.content) for name, known in at.done.items()
        }
        self._waiting: deque[Status] = deque()
        self._due: int | None = None
        self._file: Status | None = None
        self._split: Split | None = None
        self._reader: SplitReader | None = None
        if at.file is not None:
            self._resume(at.file)

    def _names_read(self, at: _Position) -> NameSet:
        try:
            names = NameSet(at.names or "")
        except ValueError as error:
            raise CheckpointDamaged(
                f"watch({self._look.directory!r}): the names that were read are {error}; restore another checkpoint"
            ) from error
        if at.names is None:
            for name in at.done:
                names.add(name)
        return names

    def _resume(self, file: _Begun) -> None:
        """Continue in the file that a checkpoint was taken within: one that this reader would have begun itself."""
        if not (is_plain_name(file.name) and self._look.wants(file.name)):
            raise CheckpointDamaged(
                f"watch({self._look.directory!r}): the checkpoint was taken within {excerpt(file.name)}, which is not "
                "the name of a file that is read here"
            )
        path = self._look.path(file.name)
        split = Split(file.split.id, file.split.info)
        try:
            status = self._look.where.status(path)
            source = self._source.open(path)
        except (SourceError, *UNREADABLE) as error:
            raise InputChanged(f"watch: the checkpoint was taken within {path!r}: {error}") from error
        source.check(split)
        then = FileIdentity(file.bytes, file.modified, None)
        if "modified" not in split.info and then.difference(_unhashed(status), self._source.identity):
            raise self._changed(status)
        self._start(status, next(iter(source.splits()), split), source, file.offset)

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
        done: dict[str, Json] = {
            name: [known.bytes, known.modified, known.content] for name, known in self._done.items()
        }
        place: dict[str, Json] = {"names": self._read.stored, "directory": self._directory, "done": done}
        older: dict[str, Json] = {} if self._mark is None else {"mark": list(self._mark)}
        return {**place, "file": self._place(), **older}

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
        listing = self._look.listing()
        self._check_done(listing)
        self._forget_gone(listing)
        new = sorted(self._look.wanted(listing, self._read), key=_order)
        if self._mark is not None:
            new = self._after_mark(new, self._mark)
        return new if self._until is None else self._again(new)

    def _again(self, files: list[Status]) -> list[Status]:
        """Return of ``files`` those that were read, or begun, before ``until``, in the order in which they were."""
        assert self._until is not None, "only a repeated reader has files to read again"
        read, begun = self._names_read(self._until), self._until.file and self._until.file.name
        order = {name: number for number, name in enumerate(self._until.done)}
        was_read = read.contains(hashes_of(file.name for file in files))
        again = [file for file, found in zip(files, was_read, strict=True) if found or file.name == begun]
        return sorted(again, key=lambda file: (file.name == begun, order.get(file.name, -1)))

    def _check_done(self, listing: _Listing) -> None:
        """Raises: InputChanged for one of the files read last that is no longer what it was."""
        for name in [name for name in self._done if name in listing.entries]:
            status = self._look.status(listing.entries[name])
            if status is not None:
                self._done[name] = self._same(self._done[name], status)

    def _same(self, then: FileIdentity, status: Status) -> FileIdentity:
        """Return the identity of a file that was ``then``. It is hashed if its size or time differs from that.

        Raises: InputChanged, SourceError.
        """
        if (status.bytes, status.modified) == (then.bytes, then.modified):
            return then
        comparable = then.content is not None and status.bytes == then.bytes
        now = self._hashed(status) if comparable else _unhashed(status)
        if now is not None and then.difference(now, self._source.identity):
            raise self._changed(status)
        return now or then

    def _hashed(self, file: Status) -> FileIdentity | None:
        """Return the identity of a file with its hash; None: it is gone. Raises: SourceError."""
        try:
            return KnownFile.look("watch", self._look.path(file.name), self._look.where).identity
        except SourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def _forget_gone(self, listing: _Listing) -> None:
        """Drop the names that are gone, unless another directory is in the place of the one that they were in."""
        replaced = self._directory is not None and listing.directory != self._directory
        if replaced and len(self._read) and (listing.directory is None or not self._read.any_of(listing.hashes)):
            self._warn_of_another_directory()
            return
        self._directory, self._warned = listing.directory, False
        self._read.retain(listing.hashes)
        for name in [name for name in self._done if name not in listing.entries]:
            del self._done[name]

    def _warn_of_another_directory(self) -> None:
        """Say so once for each time that it happens."""
        if not self._warned:
            self._context.notify(
                InputMissingWarning,
                f"watch({self._look.directory!r}): another directory is there now, without any of the "
                f"{len(self._read)} files that were read; their names are kept, so none is read again if they come "
                "back",
            )
        self._warned = True

    def _after_mark(self, files: list[Status], mark: tuple[int, str]) -> list[Status]:
        """Return the files that the older version which left ``mark`` would read; the others count as read."""
        old = [file for file in files if _order(file) <= mark]
        for file in old:
            self._read.add(file.name)
        self._mark = None
        if old:
            self._context.notify(
                NewInputWarning,
                f"watch({self._look.directory!r}): the checkpoint is of an older version, which kept no names beyond "
                f"the last ones: {len(old)} files that were last modified at or before {mark[1]!r} count as read, the "
                f"first of them {old[0].name!r}; if one of them was not, put it there again under another name",
            )
        return files[len(old) :]

    def _begin(self, file: Status) -> None:
        path = self._look.path(file.name)
        try:
            source = self._source.open(path)
            splits = source.splits()
            if len(splits) > 1:
                raise ConfigurationError(f"watch: {file.name!r} comes in {len(splits)} splits; read= gives one a file")
            if splits:
                self._start(file, splits[0], source, None)
        except (SourceError, InputChanged):
            if self._until is not None or not self._is_gone(path):
                raise
            self._context.notify(
                InputMissingWarning, f"watch: {path!r} was removed or renamed after it was listed, and is not read"
            )
            return
        if not splits:  # no rows
            self._file = file
            self._end()

    def _is_gone(self, path: str) -> bool:
        try:
            self._look.where.status(path)
        except FileNotFoundError:
            return True
        except UNREADABLE:
            pass
        return False

    def _start(self, file: Status, split: Split, source: Source, offset: Json) -> None:
        self._reader = source.reader(split, offset, self._context)
        self._file, self._split = file, split

    def _end(self) -> None:
        assert self._file is not None, "a file was begun"
        file, split, reader = self._file, self._split, self._reader
        self._file = self._split = self._reader = None
        if reader is not None:
            reader.close()
        content: Any = None if split is None else split.info.get("content")
        known = FileIdentity(file.bytes, file.modified, content)
        try:
            known = self._same(known, self._look.where.status(self._look.path(file.name)))
            known = known if known.content is not None else self._hashed(file) or known
        except FileNotFoundError:
            pass  # removed while it was read: whole, for its reader came to the end
        except OSError as error:
            raise SourceError(
                f"watch: {file.name!r} was read, but whether it changed meanwhile cannot be seen: {error}; run the job "
                "again once the directory can be reached"
            ) from error
        self._read.add(file.name)  # the next listing drops it, if it is gone
        self._done[file.name] = known
        while len(self._done) > self._look.remember:
            del self._done[next(iter(self._done))]

    def _changed(self, now: Status) -> InputChanged:
        return InputChanged(
            f"watch: {self._look.path(now.name)!r} changed after it was read or begun: it has {now.bytes} bytes now; "
            f"let files appear whole, by renaming them, and under names of their own"
        )


def _unhashed(status: Status) -> FileIdentity:
    return FileIdentity(status.bytes, status.modified, None)
