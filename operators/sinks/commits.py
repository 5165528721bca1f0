"""Commit lists: ``_commits/n.json`` names the files of checkpoint n, written once all of them are in place.

They are how readers get all of a checkpoint or nothing of it, and how a sink knows which files are its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import msgspec

from dataflow.errors import StoreError
from dataflow.operator import Handle
from dataflow.store.files import TEMPORARY, FileSystem, storing
from operators.sinks.formats import Form

__all__ = ["CommitLists", "Committed", "Transaction"]


class Committed(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One final file: its name, what is in it (xxh3-64 as 16 hex digits), the run that wrote it, and how to read it."""

    file: str
    rows: int
    size: int
    xxh3: str
    run: str
    form: Form = Form()


class Transaction(Committed, frozen=True, kw_only=True):
    """A prepared file: what it will be, and what it is called now."""

    staged: str

    def handle(self) -> Handle:
        """As the checkpoint keeps it."""
        return cast(Handle, msgspec.to_builtins(self))

    def committed(self) -> Committed:
        """As the commit list has it."""
        return Committed(self.file, self.rows, self.size, self.xxh3, self.run, self.form)


class _CommitList(msgspec.Struct, frozen=True):
    format: int
    checkpoint: int
    files: tuple[Committed, ...]


class CommitLists:
    """The commit lists of the output in ``output``. Every method raises StoreError where the disk refuses."""

    def __init__(self, output: Path, files: FileSystem) -> None:
        self.path = output / "_commits"
        self._files = files

    def all(self) -> dict[int, tuple[Committed, ...]]:
        """The files each checkpoint committed, by id."""
        with storing("read", self.path):
            if not self.path.is_dir():
                return {}
            ids = sorted(int(name[:-5]) for name in self._files.names(self.path) if _is_commit(name))
            return {checkpoint: self._read(checkpoint) for checkpoint in ids}

    def of(self, checkpoint: int) -> tuple[Committed, ...]:
        """The files of ``checkpoint``; none where it has no list."""
        if self._files.size(self.path / f"{checkpoint}.json") is None:
            return ()
        with storing("read", self.path):
            return self._read(checkpoint)

    def write(self, checkpoint: int, files: Iterable[Committed]) -> None:
        """Put ``files`` in the place of the list of ``checkpoint``, durably."""
        path = self.path / f"{checkpoint}.json"
        content = msgspec.json.encode(_CommitList(1, checkpoint, tuple(sorted(set(files)))))
        with storing("write", path):
            self._files.write_new(path, msgspec.json.format(content, indent=1))

    def remove(self, checkpoints: Iterable[int]) -> None:
        """Remove the lists of ``checkpoints``."""
        with storing("clean up", self.path):
            for checkpoint in sorted(checkpoints):
                self._files.remove(self.path / f"{checkpoint}.json")
            self._files.sync_directory(self.path)

    def clean(self) -> None:
        """Remove what a crash left of a list that was being written."""
        with storing("clean up", self.path):
            for name in self._files.names(self.path):
                if name.endswith(TEMPORARY):
                    self._files.remove(self.path / name)

    def _read(self, checkpoint: int) -> tuple[Committed, ...]:
        path = self.path / f"{checkpoint}.json"
        try:
            return msgspec.json.decode(self._files.read(path), type=_CommitList).files
        except msgspec.MsgspecError as error:
            raise StoreError(f"{path}: expected the files of checkpoint {checkpoint}, found {error}") from error


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name[:-5].isdigit()
