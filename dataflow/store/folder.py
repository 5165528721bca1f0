"""One checkpoint on disk: a folder of objects, with the manifest written last.

    chk-00000007/counts-0.12.0.part counts-0.12.1.part  ...  manifest.json

The numbers in the name of an object are the fencing token of the job that wrote it (see ``lock``), and its part. A job
that lost the directory without noticing, and writes late, has another token: it cannot replace an object of its
successor.

While a checkpoint is read, a pin on its manifest keeps it from being deleted (see ``pin``).

A manifest may name objects of older checkpoints. They are in the folders beside this one, which need not have a
manifest any more. A checkpoint that names none may be moved alone, and read by its path. So may a savepoint: objects
of older checkpoints were copied into its folder (see ``export``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import xxhash

from dataflow.errors import CheckpointDamaged, CheckpointIncomplete, NoCheckpoint
from dataflow.store.files import DISK, TEMPORARY, Buffer, Content, FileSystem, NotAFile, is_directory, storing
from dataflow.store.manifest import (
    STATE,
    Checked,
    Manifest,
    PartHandle,
    check_part,
    check_sums,
    decode,
    encode,
    is_state_of,
    part_file,
)
from dataflow.store.pin import Pin, pinned, unpinned
from dataflow.untrusted import plain_name

__all__ = ["COPY_ALL", "MANIFEST", "CheckpointFolder", "folder_name", "is_ours"]

log = logging.getLogger("dataflow.store")

MANIFEST: Final = "manifest.json"
COPY_ALL: Final = (
    ": copy or restore the whole checkpoint directory, not a single folder (a savepoint can be copied alone)"
)
_PIECE: Final = 1 << 20
"""Bytes of a piece: few enough to stay in the processor's cache while they are read, checked and written."""
_SHOWN: Final = 5
"""How many missing objects an error names."""
_OURS: Final = (".part", ".part" + TEMPORARY, MANIFEST, MANIFEST + TEMPORARY)


def folder_name(checkpoint: int) -> str:
    """Return the name of the folder of a checkpoint.

    >>> folder_name(7)
    'chk-00000007'
    """
    return f"chk-{checkpoint:08d}"


def is_ours(name: str) -> bool:
    """Return whether a file of this name in the folder of a checkpoint belongs to the checkpoint.

    >>> is_ours("counts-0.12.0.part"), is_ours("manifest.json"), is_ours("notes.txt")
    (True, True, False)
    """
    return name.endswith(_OURS)


class CheckpointFolder:
    """The checkpoint in directory ``path``, which may also be the path of its manifest."""

    def __init__(self, path: str | Path, *, files: FileSystem = DISK) -> None:
        path = Path(path)
        self.path = path.parent if path.name == MANIFEST else path
        self._files = files

    @property
    def exists(self) -> bool:
        """Whether the manifest exists; anything else of that name counts as a damaged manifest.

        Raises: StoreError if the folder cannot be read.
        """
        with storing("look at", self.path / MANIFEST):
            return self._files.size(self.path / MANIFEST) is not None or os.path.lexists(self.path / MANIFEST)

    @property
    def manifest_size(self) -> int:
        """The size of the manifest in bytes; 0 if there is none. Raises: StoreError."""
        with storing("look at", self.path / MANIFEST):
            return self._files.size(self.path / MANIFEST) or 0

    def write(self, task: str, content: Content, token: int = 0, part: int = STATE) -> PartHandle:
        """Write one object durably; ``token`` is the fencing token of the writer (0: there is no other writer).

        Raises: StoreError; errors of an iterable ``content``.
        """
        target, checked = self.path / part_file(task, token, part), Checked(content)
        with storing("write", target):
            self._files.make_directory(self.path)
            self._files.write_new(target, checked)
        return checked.handle(task, token, part)

    def commit(self, manifest: Manifest) -> None:
        """Make the checkpoint exist. Raises: StoreError, after which it does not exist, unless the disk fails again."""
        target = self.path / MANIFEST
        with storing("write", target):
            self._files.make_directory(self.path)
            self._files.sync_directory(self.path.parent)  # an earlier attempt may have failed to sync it
            try:
                self._files.write_new(target, encode(manifest))
            except OSError:
                self._files.remove(target)  # renamed, but perhaps not durable: revert it
                raise

    def manifest(self) -> Manifest:
        """Return the manifest.

        Raises: NoCheckpoint, CheckpointDamaged, StoreError; CheckpointError for a newer format.
        """
        target = self.path / MANIFEST
        if not self.exists:
            inside = self._files.names(self.path) if self.path.is_dir() else "nothing: there is no such directory"
            raise NoCheckpoint(f"{self.path} is not a checkpoint: expected a {MANIFEST} in it, found {inside}")
        with storing("read", target):
            try:
                data = self._files.read(target)
            except NotAFile as error:
                cause = "it is a directory" if target.is_dir() and not target.is_symlink() else error.strerror
                raise CheckpointDamaged(
                    f"{target}: expected a file, but {cause}: put the manifest back, if you have it"
                ) from error
        return decode(data, str(target))

    def read(self, handle: PartHandle) -> bytes:
        """Return an object, verified; of an older checkpoint, from the folder beside this one.

        Raises: CheckpointDamaged, CheckpointIncomplete, StoreError.
        """
        path = self.check_size(handle)  # without reading the file, which may be large
        with storing("read", path):
            try:
                data = self._files.read(path)
            except FileNotFoundError as error:
                raise _missing(path, handle) from error
            except NotAFile as error:
                raise _not_a_file(path, handle, error) from error
        return check_part(handle, data, str(path))

    def pieces(self, handle: PartHandle) -> Iterator[Buffer]:
        """Yield the bytes of an object, verified as by ``read``: an error comes at the end. A piece is valid until the
        next one is taken.

        Raises: CheckpointDamaged, CheckpointIncomplete, StoreError.
        """
        path = self.check_size(handle)
        size, checksum, room = 0, xxhash.xxh3_64(), memoryview(bytearray(_PIECE))
        with storing("read", path):
            try:
                file = self._files.open(path)
            except FileNotFoundError as error:
                raise _missing(path, handle) from error
            except NotAFile as error:
                raise _not_a_file(path, handle, error) from error
        with file:
            while True:
                with storing("read", path):
                    read = file.readinto(room)
                if not read:
                    break
                checksum.update(room[:read])
                size += read
                yield room[:read]
        check_sums(handle, size, checksum.hexdigest(), str(path))

    def check_size(self, handle: PartHandle) -> Path:
        """Check that an object is there with its size, and return its path; its bytes are not read.

        Raises: CheckpointDamaged, CheckpointIncomplete, StoreError.
        """
        path = self._path_of(handle)
        with storing("look at", path):
            size = self._files.size(path)
            if size is None:
                try:
                    self._files.open(path).close()
                except FileNotFoundError as error:
                    raise _missing(path, handle) from error
                except NotAFile as error:
                    raise _not_a_file(path, handle, error) from error
        if size != handle.size:
            raise CheckpointDamaged(
                f"{path}: the part of task {handle.task!r} had {handle.size} bytes when it was written, found {size}"
            )
        return path

    def pin(self) -> AbstractContextManager[Pin]:
        """Keep the checkpoint from being deleted in a ``with`` block. Raises: StoreError."""
        return pinned(self.path / MANIFEST, self._files)

    def check_complete(self, manifest: Manifest) -> None:
        """Check that the older objects that ``manifest`` names are there; they are not read.

        Raises: CheckpointIncomplete, naming those that are missing; CheckpointDamaged, StoreError.
        """
        older = [self._path_of(handle) for handle in manifest.parts if handle.is_elsewhere]
        with storing("look at", self.path.parent):
            missing = [path for path in older if self._files.size(path) is None]
        if missing:
            names = ", ".join(f"{path.parent.name}/{path.name}" for path in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise CheckpointIncomplete(
                f"checkpoint {manifest.checkpoint} in {self.path} needs {len(older)} objects of older checkpoints in "
                f"{self.path.parent}; missing are {names}{more}{COPY_ALL}"
            )

    def _path_of(self, handle: PartHandle) -> Path:
        """Return the path of an object. Raises: CheckpointDamaged for a name or a folder that was planted."""
        folder = self.path
        if handle.is_elsewhere:
            folder = self.path.parent / folder_name(handle.checkpoint)
            if folder.is_symlink():
                raise CheckpointDamaged(
                    f"{folder} is a symbolic link, which is not followed: move the folder here, with the part of task "
                    f"{handle.task!r}"
                )
        return folder / plain_name(handle.file, f"{self.path}: the part of task {handle.task!r}")

    def remains(self, task: str, limit: int | None = None) -> Iterator[bytes]:
        """Yield the readable states of ``task`` in a folder without a manifest; they are not verified.

        States of more than ``limit`` bytes are left out.
        """
        try:
            names = [name for name in self._files.names(self.path) if is_state_of(name, task)]
        except OSError as error:
            log.debug("%s cannot be listed: %s", self.path, error)
            return
        for name in names:
            try:
                if limit is None or (self._files.size(self.path / name) or 0) <= limit:
                    yield self._files.read(self.path / name)
            except OSError as error:
                log.debug("%s: the part of task %r cannot be read: %s", self.path / name, task, error)

    def verify(self) -> Manifest:
        """Read every object and return the manifest. Raises the same as ``manifest`` and ``read``."""
        manifest = self.manifest()
        self.check_complete(manifest)
        for handle in manifest.parts:
            self.read(handle)
        return manifest

    def files(self) -> list[tuple[str, int]]:
        """Return the manifest, the objects and temporary files in the folder, with their sizes, by name.

        Raises: StoreError.
        """
        with storing("list", self.path):
            if not is_directory(self.path):
                return []
            try:
                names = [name for name in self._files.names(self.path) if is_ours(name)]
            except FileNotFoundError:  # deleted meanwhile
                return []
            sizes = [(name, self._files.size(self.path / name)) for name in names]
        return [(name, size) for name, size in sizes if size is not None]

    def remove_parts(self, files: Iterable[str]) -> None:
        """Delete these objects, and the folder if it is empty then. Raises: StoreError."""
        with storing("clean up", self.path):
            for file in files:
                self._files.remove(self.path / file)
            self._files.remove_directory(self.path)

    def remove(self, kept: Callable[[str], bool] = lambda file: False) -> bool:
        """Delete the checkpoint: its manifest first and durably, then its objects but those ``kept``.

        Foreign files stay. If the folder is a symbolic link, only the link is deleted. Pins are ignored.

        Returns: whether anything was deleted. Raises: StoreError.
        """
        return self._remove_all(kept, nullcontext())

    def remove_unless_pinned(self, kept: Callable[[str], bool], what: str) -> bool:
        """Delete the checkpoint as ``remove`` does, unless it is being read; ``what`` is its name in the message.

        Raises: CheckpointPinned, after which nothing has changed; StoreError.
        """
        return self._remove_all(kept, unpinned(self.path / MANIFEST, self._files, what))

    def _remove_all(self, kept: Callable[[str], bool], deletion: AbstractContextManager[None]) -> bool:
        with storing("delete", self.path):
            if not is_directory(self.path):
                if self.path.is_symlink():
                    self._files.remove(self.path)
                    return True
                return False
            removed = self.exists
            if removed:
                with deletion:
                    self._remove(self.path / MANIFEST)
                    self._files.sync_directory(self.path)
            for name in self._files.names(self.path):
                if is_ours(name) and not kept(name):
                    self._remove(self.path / name)
                    removed = True
            self._files.remove_directory(self.path)
            return removed or not is_directory(self.path)

    def _remove(self, path: Path) -> None:
        """Remove a file of ours; a directory in its place is not ours, and is removed only if it is empty."""
        if is_directory(path):
            self._files.remove_directory(path)
        else:
            self._files.remove(path)


def _missing(path: Path, handle: PartHandle) -> CheckpointIncomplete:
    return CheckpointIncomplete(
        f"{path}: the part of task {handle.task!r} is missing; it had {handle.size} bytes"
        + (COPY_ALL if handle.is_elsewhere else "")
    )


def _not_a_file(path: Path, handle: PartHandle, error: NotAFile) -> CheckpointDamaged:
    return CheckpointDamaged(f"{path}: expected the part of task {handle.task!r}, but {error.strerror}")
