"""Commit lists: ``_commits/n.json`` names the files of checkpoint n, and is written once all of them are in place.

With the lists, readers get all of a checkpoint or nothing of it, and a sink recognises its own files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, cast

import msgspec

from dataflow.contracts.sink import Handle
from dataflow.errors import CheckpointDamaged, StoreError
from dataflow.store.files import TEMPORARY, FileSystem, storing
from dataflow.untrusted import Count, excerpt, parsed, plain_name
from operators.sinks.formats import SUFFIXES, Form, is_folder

__all__ = ["STAGED", "CommitLists", "CommittedFile", "Transaction", "checkpoint_in"]

STAGED: Final = ".staged"
_ENDINGS: Final = "|".join(re.escape(suffix) for suffixes in SUFFIXES.values() for suffix in suffixes)
_FINAL: Final = re.compile(rf"part-([0-9]{{8,18}})-[0-9]{{5,18}}-[0-9]{{4,18}}(?:{_ENDINGS})")
"""The names of final files: checkpoint, subtask, and a number."""


def checkpoint_in(name: str) -> int | None:
    """Return the checkpoint in the name of a final file, which may begin with partition folders; None: not our name.

    >>> checkpoint_in("k=a/part-00000007-00000-0000.parquet"), checkpoint_in("theirs.parquet")
    (7, None)
    """
    *folders, file = name.split("/")
    match = _FINAL.fullmatch(file) if all([is_folder(folder) for folder in folders]) else None
    return int(match[1]) if match else None


class CommittedFile(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A final file: name, size, checksum (xxh3-64 as 16 hex digits), the run that wrote it, and how to read it.

    The name may begin with partition folders.
    """

    file: str
    rows: Count
    size: Count
    xxh3: str
    run: str
    form: Form | None = None  # None: Parquet, which describes itself

    @property
    def format(self) -> str:
        """The name of its format."""
        return "parquet" if self.form is None else self.form.format

    def check(self, where: str) -> None:
        """Check that the file has a name that the library's sinks use, in as many partition folders as its form has.

        Raises: CheckpointDamaged, naming ``where`` the name was read.
        """
        endings = SUFFIXES.get(self.format)  # a format of a later version raises an error by name where it is used
        *folders, name = self.file.split("/")
        levels = 0 if self.form is None else self.form.levels
        misplaced = len(folders) != levels or not all([is_folder(folder) for folder in folders])
        if misplaced or _FINAL.fullmatch(name) is None or (endings is not None and not name.endswith(endings)):
            raise CheckpointDamaged(
                f"{where}: expected the name of a file of format {excerpt(self.format)} such as "
                f"part-00000007-00000-0000, found {excerpt(self.file)}"
            )


class Transaction(CommittedFile, frozen=True, kw_only=True):
    """A prepared file: the final file, and its present name."""

    staged: str

    @classmethod
    def of(cls, handle: Handle, where: str) -> Transaction:
        """Return the transaction of a ``handle`` from a checkpoint.

        Raises: CheckpointDamaged, naming ``where`` it was read, unless both files are in the directories of the sink.
        """
        found: Transaction = parsed(cls, dict(handle), where)
        found.check(where)
        if not plain_name(found.staged, f"{where}: the staged file").endswith(STAGED):
            raise CheckpointDamaged(f"{where}: expected a staged file (*{STAGED}), found {excerpt(found.staged)}")
        return found

    def handle(self) -> Handle:
        """Return the transaction as a checkpoint stores it."""
        return cast(Handle, msgspec.to_builtins(self))

    def committed(self) -> CommittedFile:
        """Return the final file as the commit list stores it."""
        return CommittedFile(self.file, self.rows, self.size, self.xxh3, self.run, self.form)


class _CommitList(msgspec.Struct, frozen=True):
    format: int
    checkpoint: int
    files: tuple[CommittedFile, ...]


class CommitLists:
    """The commit lists of the output in ``output``. Every method raises StoreError if the disk fails."""

    def __init__(self, output: Path, files: FileSystem) -> None:
        self.path = output / "_commits"
        self._files = files

    def all(self) -> dict[int, tuple[CommittedFile, ...]]:
        """Return the files that each checkpoint committed, by its id."""
        with storing("read", self.path):
            if not self.path.is_dir():
                return {}
            if self.path.is_symlink():
                raise StoreError(f"{self.path} is a symbolic link, which is not followed: replace it by the directory")
            ids = sorted(int(name[:-5]) for name in self._files.names(self.path) if _is_commit(name))
            return {checkpoint: self._read(checkpoint) for checkpoint in ids}

    def of(self, checkpoint: int) -> tuple[CommittedFile, ...]:
        """Return the files of ``checkpoint``; none if it has no list."""
        if self._files.size(self.path / f"{checkpoint}.json") is None:
            return ()
        with storing("read", self.path):
            return self._read(checkpoint)

    def write(self, checkpoint: int, files: Iterable[CommittedFile]) -> None:
        """Write the list of ``checkpoint``, replacing any existing one, durably."""
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
        """Remove incomplete lists that a crash left."""
        with storing("clean up", self.path):
            for name in self._files.names(self.path):
                if name.endswith(TEMPORARY):
                    self._files.remove(self.path / name)

    def _read(self, checkpoint: int) -> tuple[CommittedFile, ...]:
        path = self.path / f"{checkpoint}.json"
        try:
            listed = msgspec.json.decode(self._files.read(path), type=_CommitList).files
            for committed in listed:
                committed.check("one of its files")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, CheckpointDamaged) as error:
            raise StoreError(f"{path}: expected the files of checkpoint {checkpoint}, found {error}") from error
        return listed


def _is_commit(name: str) -> bool:
    return re.fullmatch(r"(0|[1-9][0-9]{0,17})\.json", name) is not None
