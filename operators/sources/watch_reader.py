"""The reader of a watched directory: lists it, and reads each new file once.

Invariant: a file is *read* (the hash of its name is in ``_read``), being read, or to come. A listing alone moves files
between these: a name that is not in ``_read`` is to come, and its time does not matter; a name that is no longer listed
leaves ``_read``. So a position has 8 bytes for each file that was read and is still there.

This code assumes that a directory which can be listed lists all that is in it. Another directory may take its place
for a while (a mount that is missing). Its listing says nothing about the files that were read, so no name is dropped
until the directory is back, or a file that was read is in the other one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import (
    CheckpointDamaged,
    CleanupFailedWarning,
    ConfigurationError,
    FilesLeftOutWarning,
    InputChanged,
    InputMissingWarning,
    SourceError,
    closing_raised,
)
from dataflow.untrusted import excerpt, is_plain_name
from operators.sources.files import Status
from operators.sources.known_file import UNREADABLE, FileIdentity, KnownFile
from operators.sources.name_set import NameSet, hashes_of
from operators.sources.watch_position import BegunFile, WatchPosition
from operators.sources.watched_directory import Listing, WatchedDirectory, reading_order

if TYPE_CHECKING:
    from operators.sources.watch import WatchSource

__all__ = ["WatchReader"]


class WatchReader(SplitReader):
    """Reads one file after another, from a ``WatchPosition``.

    With ``until``, a position, this reader reads again the files that an earlier reader had read there.
    """

    def __init__(
        self, watched: WatchedDirectory, source: WatchSource, offset: Json, context: SourceContext, until: Json = None
    ) -> None:
        at = WatchPosition.of(offset, watched.path)
        self._watched = watched
        self._source = source
        self._context = context
        self._names = source.schema.names
        self._read = self._names_read(at)
        self._until = None if until is None else WatchPosition.of(until, watched.path)
        self._directory: int | None = at.directory
        self._warned = False
        self._named_left_out = watched.warned
        self._done: dict[str, FileIdentity] = {
            name: FileIdentity(known.bytes, known.modified, known.content) for name, known in at.done.items()
        }
        self._waiting: deque[Status] = deque()
        self._due: int | None = None
        self._file: Status | None = None
        self._split: Split | None = None
        self._reader: SplitReader | None = None
        self._pruned = 0  # by the readers that were closed
        if at.file is not None:
            self._resume(at.file)

    def _names_read(self, at: WatchPosition) -> NameSet:
        try:
            return NameSet(at.names)
        except ValueError as error:
            raise CheckpointDamaged(
                f"watch({self._watched.path!r}): the names that were read are {error}; restore another checkpoint"
            ) from error

    def _resume(self, file: BegunFile) -> None:
        """Continue in the file that a checkpoint was taken within: one that this reader would have begun itself."""
        if not (is_plain_name(file.name) and self._watched.wants(file.name)):
            raise CheckpointDamaged(
                f"watch({self._watched.path!r}): the checkpoint was taken within {excerpt(file.name)}, which is not "
                "the name of a file that is read here"
            )
        path = self._watched.path_of(file.name)
        split = Split(file.split.id, file.split.info)
        try:
            status = self._watched.where.status(path)
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
    def next_poll(self) -> int | None:
        return self._due if self._reader is None else self._reader.next_poll

    @property
    def mid_batch(self) -> bool:
        return self._reader is not None and self._reader.mid_batch

    @property
    def rows_pruned(self) -> int:
        return self._pruned + (0 if self._reader is None else self._reader.rows_pruned)

    def rejected(self) -> pa.RecordBatch | None:
        return None if self._reader is None else self._reader.rejected()

    @property
    def offset(self) -> Json:
        done: dict[str, Json] = {
            name: [known.bytes, known.modified, known.content] for name, known in self._done.items()
        }
        place: dict[str, Json] = {"names": self._read.stored, "directory": self._directory, "done": done}
        return {**place, "file": self._place()}

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
            self._due = self._context.clock.now() + self._watched.every
            self._waiting.extend(self._new())
        return self._waiting.popleft() if self._waiting else None

    def _new(self) -> list[Status]:
        listing = self._watched.listing()
        self._check_done(listing)
        self._forget_gone(listing)
        self._name_left_out(listing)
        new = sorted(self._watched.wanted(listing, self._read), key=reading_order)
        return new if self._until is None else self._again(new)

    def _name_left_out(self, listing: Listing) -> None:
        """Warn once of files whose names have other suffixes."""
        if not self._named_left_out and (others := self._watched.left_out(listing, self._read)):
            self._context.notify(FilesLeftOutWarning, self._watched.named(others))
            self._named_left_out = True

    def _again(self, files: list[Status]) -> list[Status]:
        """Return of ``files`` those that were read, or begun, before ``until``, in the order in which they were."""
        assert self._until is not None, "only a repeated reader has files to read again"
        read, begun = self._names_read(self._until), self._until.file and self._until.file.name
        order = {name: number for number, name in enumerate(self._until.done)}
        was_read = read.contains(hashes_of(file.name for file in files))
        again = [file for file, found in zip(files, was_read, strict=True) if found or file.name == begun]
        return sorted(again, key=lambda file: (file.name == begun, order.get(file.name, -1)))

    def _check_done(self, listing: Listing) -> None:
        """Raise InputChanged if one of the files that were read last has changed."""
        for name in [name for name in self._done if name in listing.entries]:
            status = self._watched.status(listing.entries[name])
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
            return KnownFile.look("watch", self._watched.path_of(file.name), self._watched.where).identity
        except SourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def _forget_gone(self, listing: Listing) -> None:
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
        """Warn once for each time that it happens."""
        if not self._warned:
            self._context.notify(
                InputMissingWarning,
                f"watch({self._watched.path!r}): another directory is there now, without any of the "
                f"{len(self._read)} files that were read; their names are kept, so none is read again if they come "
                "back",
            )
        self._warned = True

    def _begin(self, file: Status) -> None:
        path = self._watched.path_of(file.name)
        try:
            source = self._source.open(path)
            splits = source.splits()
            if len(splits) > 1:
                raise ConfigurationError(f"watch: {file.name!r} has {len(splits)} splits; read= must make 1")
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
            self._watched.where.status(path)
        except FileNotFoundError:
            return True
        except UNREADABLE:
            pass
        return False

    def _start(self, file: Status, split: Split, source: Source, offset: Json) -> None:
        self._reader = source.reader(split, offset, self._context)
        self._file, self._split = file, split

    def _close(self, reader: SplitReader, file: Status) -> None:
        """Close the reader of a file. It has given its rows, so the job does not fail if it raises."""
        try:
            reader.close()
        except Exception as error:
            where = f"the reader of {self._watched.path_of(file.name)!r}"
            self._context.notify(CleanupFailedWarning, f"watch: {closing_raised(where, error)}")

    def _end(self) -> None:
        assert self._file is not None, "a file was begun"
        file, split, reader = self._file, self._split, self._reader
        self._file = self._split = self._reader = None
        if reader is not None:
            self._pruned += reader.rows_pruned
            self._close(reader, file)
        content: Any = None if split is None else split.info.get("content")
        known = FileIdentity(file.bytes, file.modified, content)
        try:
            known = self._same(known, self._watched.where.status(self._watched.path_of(file.name)))
            known = known if known.content is not None else self._hashed(file) or known
        except FileNotFoundError:
            pass  # removed while it was read: it was read whole, because its reader reached the end
        except OSError as error:
            raise SourceError(
                f"watch: {file.name!r} was read, but cannot be checked for changes: {error}; run the job "
                "again once the directory can be reached"
            ) from error
        self._read.add(file.name)  # the next listing drops it, if it is gone
        self._done[file.name] = known
        while len(self._done) > self._watched.remember:
            del self._done[next(iter(self._done))]

    def _changed(self, now: Status) -> InputChanged:
        return InputChanged(
            f"watch: {self._watched.path_of(now.name)!r} changed after it was read or begun: it has {now.bytes} "
            f"bytes now; let files appear whole, by renaming them, and under names of their own"
        )


def _unhashed(status: Status) -> FileIdentity:
    return FileIdentity(status.bytes, status.modified, None)
