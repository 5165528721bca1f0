"""The identity of files: detects, on a restore and whenever a split is opened, whether a file has changed.

A file is known by its size, its time of modification and a hash (xxh3) of its content: of all of it up to 1 MiB, else
of its first and its last 64 KiB. It has changed if

1. its size or its hash differs, or
2. its time differs, unless the hash covers the whole file or the user asked for ``input_identity="content"``.

A time may be unknown, because the file system has none; then it never counts as different. An edit of a large file that
keeps its size and its ends and sets the old time again is not noticed.

A file is hashed once, when the source is made, which opens it anyway. After that it is enough to compare its size and
time for as long as these do not change.

A checkpoint says which file a split is, and it is untrusted. So a source only reads files that it found itself: the
path in a checkpoint only chooses among them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, BinaryIO, Final

import msgspec
import pyarrow as pa

from dataflow.contracts.source import InputIdentity, Json, Split
from dataflow.errors import InputChanged, SourceError
from dataflow.untrusted import Count, Time, excerpt, parsed
from operators.sources.files import WHOLE, Files, Status, ends_hash

__all__ = ["UNREADABLE", "FileIdentity", "KnownFile", "KnownFiles", "changed"]

UNREADABLE: Final = (OSError, pa.ArrowException)  # pyarrow's errors for a missing or damaged file


class _Info(msgspec.Struct):
    """The entries of a split in a checkpoint that identify its file."""

    bytes: Count
    modified: Time | None
    content: Annotated[str, msgspec.Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file. ``modified`` (nanoseconds) and ``content`` (a hash, in hex) are None if unknown."""

    bytes: int
    modified: int | None
    content: str | None

    def difference(self, now: FileIdentity, by: InputIdentity) -> str | None:
        """Return how ``now`` differs from this identity, as a clause for messages; None: it is the same file.

        >>> before = FileIdentity(2 << 20, 1_000_000_000, "a1")
        >>> print(before.difference(FileIdentity(2 << 20, 2_000_000_000, "b2"), "mtime"))
        its ends had hash a1 and have b2
        >>> print(before.difference(FileIdentity(2 << 20, 2_000_000_000, "a1"), "content"))
        None
        """
        if now.bytes != self.bytes:
            return f"it had {self.bytes} bytes and has {now.bytes}"
        if self.content is not None and now.content != self.content:
            hashed = "its content had hash {} and has {}" if self.whole else "its ends had hash {} and have {}"
            return hashed.format(self.content, now.content)
        if by == "content" or self.whole or None in (self.modified, now.modified) or self.modified == now.modified:
            return None
        return (
            f"it was last modified at {_time(self.modified)} and now at {_time(now.modified)}; if it was only copied, "
            'run with Checkpointing(input_identity="content"), which compares size and content alone'
        )

    @property
    def whole(self) -> bool:
        """Whether the hash covers the whole file, so that its time of modification does not matter."""
        return self.content is not None and self.bytes <= WHOLE


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it was when a source was made, or when it was last checked."""

    path: str
    identity: FileIdentity

    @classmethod
    def look(cls, label: str, path: str, where: Files) -> KnownFile:
        """Return the file as it is now. Raises: SourceError if it cannot be read."""
        try:
            status = where.status(path)
            with where.open(path) as raw:
                return cls.of(path, status, raw)
        except UNREADABLE as error:
            raise SourceError(f"{label}: cannot read {path!r}: {error}; replace or remove it") from error

    @classmethod
    def of(cls, path: str, status: Status, raw: BinaryIO) -> KnownFile:
        """Return the file that is open as ``raw``. Raises: OSError."""
        return cls(path, FileIdentity(status.bytes, status.modified, ends_hash(raw, whole=status.bytes <= WHOLE)))

    def untouched(self, status: Status) -> bool:
        """Return whether ``status`` shows that the file was not touched; False if there are no times."""
        known = (self.identity.bytes, self.identity.modified)
        return status.modified is not None and (status.bytes, status.modified) == known

    @property
    def info(self) -> dict[str, Json]:
        """The identity as the ``info`` of a split."""
        identity = self.identity
        return {
            "path": self.path,
            "bytes": identity.bytes,
            "modified": identity.modified,
            "content": identity.content,
        }

    @property
    def split(self) -> Split:
        """The whole file as a split."""
        return Split(self.path, self.info)


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files of a source. ``label`` is the function that reads them; ``by`` is the user's ``input_identity``."""

    label: str
    where: Files
    files: Mapping[str, KnownFile]
    by: InputIdentity = "mtime"

    @classmethod
    def look(cls, label: str, paths: Sequence[str], where: Files) -> KnownFiles:
        """Return the files as they are now. Raises: SourceError for one that cannot be read."""
        return cls(label, where, {path: KnownFile.look(label, path, where) for path in paths})

    @property
    def first(self) -> KnownFile:
        return next(iter(self.files.values()))

    def identified_by(self, identity: InputIdentity) -> KnownFiles:
        return replace(self, by=identity)

    def check(self, split: Split) -> KnownFile:
        """Return the file of ``split`` as it is now. It is only read if it was touched since the source was made.

        Raises: InputChanged if it is none of this source's files, or has changed since the job first listed it;
        CheckpointDamaged for a split without a size.
        """
        known = self.own(split)
        info = parsed(_Info, dict(split.info), f"{self.label}: split {excerpt(split.id)}")
        then = FileIdentity(info.bytes, info.modified, info.content)
        try:
            if not known.untouched(self.where.status(known.path)):
                known = KnownFile.look(self.label, known.path, self.where)
        except (SourceError, *UNREADABLE) as error:
            raise changed(split, f"it cannot be read any more: {error}") from error
        if difference := then.difference(known.identity, self.by):
            raise changed(split, difference)
        return known

    def own(self, split: Split) -> KnownFile:
        """Return the file that ``split`` is in. On this machine its path may be written in another way.

        Raises: InputChanged if it is none of these files.
        """
        path = split.info.get("path")
        if isinstance(path, str) and "\0" not in path:
            known = self.files.get(path)
            if known is None and not self.where.remote:
                same = os.path.abspath(path)
                known = next((file for file in self.files.values() if os.path.abspath(file.path) == same), None)
            if known is not None:
                return known
        raise changed(split, f"{excerpt(path)} is not among the files that {self.label} finds now")

    def __repr__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.label}({self.first.path!r}{more})"


def changed(split: Split, difference: str) -> InputChanged:
    """Return the error for a file that is no longer as it was when the job began, with the ``difference``."""
    return InputChanged(
        f"the job began with {excerpt(split.id)}, which has changed since: {difference}; restore the "
        "file, or make the source again and start over in a new checkpoint directory"
    )


def _time(nanoseconds: int | None) -> str:
    """Return a time for messages, to the nanosecond."""
    assert nanoseconds is not None, "a time that is unknown differs from no other"
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime(1970, 1, 1) + timedelta(seconds=seconds)}.{fraction:09} UTC"
