"""A file as it was when a source was made, so that a restore can tell whether it still is.

A checkpoint says which file a split is, and anybody may have written that. So the files that a source reads are those
it found itself: the path in a checkpoint only chooses among them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from dataflow.errors import InputChanged, SourceError
from dataflow.source import Split
from dataflow.untrusted import excerpt
from operators.sources.files import Files, Status

__all__ = ["UNREADABLE", "KnownFile", "check_unmoved", "own_file"]

UNREADABLE: Final = (OSError, pa.ArrowException)  # what pyarrow raises for a file that is not as it should be


class HasPath(Protocol):
    """A file that a source found."""

    @property
    def path(self) -> str: ...


_File = TypeVar("_File", bound=HasPath)


def own_file(label: str, split: Split, files: Iterable[_File], where: Files) -> _File:
    """Return the one of ``files``, which the source found itself, that ``split`` of a checkpoint is in.

    Args:
        label: the function that made the source, for messages.
        split: from a checkpoint; its ``info`` names a path.
        files: what the source found in its own directory, pattern or list.
        where: the filesystem they are in. On this machine another way to write the same path will do.

    Raises:
        InputChanged: it is in none of them.
    """
    path = split.info.get("path")
    if isinstance(path, str) and "\0" not in path:
        known = list(files)
        found = next((file for file in known if file.path == path), None)
        if found is None and not where.remote:
            same = os.path.abspath(path)
            found = next((file for file in known if os.path.abspath(file.path) == same), None)
        if found is not None:
            return found
    raise InputChanged(
        f"{label}: the checkpoint was taken over {excerpt(split.id)} ({excerpt(path)}), which is not among the files "
        "of this source now: put it back, give the same paths, or start afresh"
    )


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it was when the source was made. ``content`` is a hash of its ends (see ``Files.content``)."""

    path: str
    status: Status
    content: str

    @classmethod
    def look(cls, label: str, path: str, where: Files) -> KnownFile:
        try:
            return cls(path, where.status(path), where.content(path))
        except UNREADABLE as error:
            raise SourceError(f"{label}: cannot read {path!r}: {error}; replace or remove it") from error

    @property
    def split(self) -> Split:
        return Split(self.path, {"path": self.path, "bytes": self.status.bytes, "content": self.content})

    def check(self, label: str, split: Split, where: Files) -> None:
        """Raises: InputChanged unless the file has the size and the ends that ``split`` says."""
        lost = f"the checkpoint was taken over {excerpt(split.id)}, which is not what it was"
        try:
            now = KnownFile.look(label, self.path, where).split.info
        except SourceError as error:
            raise InputChanged(f"{lost}: it cannot be read any more: {error}") from error
        had = {what: split.info.get(what) for what in ("bytes", "content")}
        if now["bytes"] != had["bytes"]:
            raise InputChanged(f"{lost}: it had {excerpt(had['bytes'])} bytes and has {now['bytes']}")
        if now["content"] != had["content"]:
            raise InputChanged(f"{lost}: its ends had hash {excerpt(had['content'])} and have {now['content']}")


def check_unmoved(label: str, split: Split, files: Sequence[KnownFile], where: Files) -> str:
    """Return the path of the file that ``split`` is; only a file that was touched since is read again.

    Raises: InputChanged as ``own_file`` and ``KnownFile.check`` do.
    """
    known = own_file(label, split, files, where)
    try:
        unmoved = known.split.info == split.info and where.status(known.path) == known.status
    except OSError:
        unmoved = False  # which ``check`` will say
    if not unmoved:
        known.check(label, split, where)
    return known.path
