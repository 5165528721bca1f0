"""The position of a reader of a watched directory, as checkpoints store it."""

from __future__ import annotations

from typing import Any

import msgspec

from dataflow.contracts.source import Json
from dataflow.untrusted import Count, Time, parsed

__all__ = ["BegunFile", "WatchPosition"]


class _BegunSplit(msgspec.Struct):
    id: str
    info: dict[str, Any]


class BegunFile(msgspec.Struct):
    """The file that is being read, its split, and the position of its own reader."""

    name: str
    bytes: Count
    modified: Time | None
    split: _BegunSplit
    offset: Any


class _Done(msgspec.Struct, array_like=True):
    """The identity of a file that was read."""

    bytes: Count
    modified: Time | None
    content: str | None


class WatchPosition(msgspec.Struct):
    """A position: the names that were read, the identities of the last of them, and the file that is being read.

    ``names`` is the text of a ``NameSet``, and ``directory`` the number of the directory in which these names were.
    """

    names: str
    directory: int | None
    done: dict[str, _Done]
    file: BegunFile | None

    @classmethod
    def of(cls, offset: Json, directory: str) -> WatchPosition:
        """Return the position that a checkpoint stored; None: the beginning. Raises: CheckpointDamaged."""
        if offset is None:
            return cls(names="", directory=None, done={}, file=None)
        position: WatchPosition = parsed(cls, offset, f"watch({directory!r}): the position")
        return position
