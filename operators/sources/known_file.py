"""A file as it was when a source was made, so that a restore can tell whether it still is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dataflow.errors import InputChanged, SourceError
from dataflow.source import Split
from operators.sources.files import Files, Status

__all__ = ["UNREADABLE", "KnownFile", "check_unmoved"]

UNREADABLE: Final = (OSError, pa.ArrowException)  # what pyarrow raises for a file that is not as it should be


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

    @staticmethod
    def check(label: str, split: Split, where: Files) -> None:
        """Raises: InputChanged unless the file has the size and the ends that it had."""
        lost = f"the checkpoint was taken over {split.id!r}, which is not what it was"
        try:
            now = KnownFile.look(label, str(split.info["path"]), where).split.info
        except SourceError as error:
            raise InputChanged(f"{lost}: it cannot be read any more: {error}") from error
        if now["bytes"] != split.info["bytes"]:
            raise InputChanged(f"{lost}: it had {split.info['bytes']} bytes and has {now['bytes']}")
        if now["content"] != split.info["content"]:
            raise InputChanged(f"{lost}: its ends had hash {split.info['content']} and have {now['content']}")


def check_unmoved(label: str, split: Split, files: Sequence[KnownFile], where: Files) -> None:
    """Raises: InputChanged as ``KnownFile.check`` does; only a file that was touched since is read again."""
    known = next((file for file in files if file.split == split), None)
    try:
        if known is not None and where.status(known.path) == known.status:
            return
    except OSError:
        pass  # which ``check`` will say
    KnownFile.check(label, split, where)
