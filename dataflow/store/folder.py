"""One checkpoint on disk: a folder of parts, with the manifest written last. It may be moved, and read by its path.

chk-00000007/counts-0.12.part  ...  manifest.json

The number in the name of a part is the fencing token of the job that wrote it (see ``lock``). A job that lost the
directory without noticing, and writes late, has another token: it cannot replace a part of its successor.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dataflow.errors import CheckpointDamaged, NoCheckpoint
from dataflow.store.files import DISK, TEMPORARY, Buffer, FileSystem, NotAFile, is_directory, storing
from dataflow.store.manifest import Manifest, PartHandle, check_part, decode, encode, part_handle, part_of
from dataflow.untrusted import plain_name

__all__ = ["MANIFEST", "CheckpointFolder"]

log = logging.getLogger("dataflow.store")

MANIFEST: Final = "manifest.json"
_OURS: Final = (".part", ".part" + TEMPORARY, MANIFEST, MANIFEST + TEMPORARY)


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

    def write(self, task: str, data: Buffer, token: int = 0) -> PartHandle:
        """Write one part durably; ``token`` is the fencing token of the writer (0: there is no other writer).

        Raises: StoreError.
        """
        handle = part_handle(task, data, token)
        with storing("write", self.path / handle.file):
            self._files.make_directory(self.path)
            self._files.write_new(self.path / handle.file, data)
        return handle

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
        """Return a part, verified. Raises: CheckpointDamaged, StoreError."""
        path = self.path / plain_name(handle.file, f"{self.path}: the part of task {handle.task!r}")
        with storing("read", path):
            size = self._files.size(path)
            if size is not None and size != handle.size:  # detected without reading the file, which may be large
                raise CheckpointDamaged(
                    f"{path}: the part of task {handle.task!r} had {handle.size} bytes when it was written, "
                    f"found {size}"
                )
            try:
                data = self._files.read(path)
            except FileNotFoundError as error:
                raise CheckpointDamaged(
                    f"{path}: the part of task {handle.task!r} is missing; it had {handle.size} bytes"
                ) from error
            except NotAFile as error:
                raise CheckpointDamaged(
                    f"{path}: expected the part of task {handle.task!r}, but {error.strerror}"
                ) from error
        return check_part(handle, data, str(path))

    def remains(self, task: str, limit: int | None = None) -> Iterator[bytes]:
        """Yield the readable parts of ``task`` in a folder without a manifest; they are not verified.

        Parts of more than ``limit`` bytes are left out.
        """
        try:
            names = [name for name in self._files.names(self.path) if part_of(name, task)]
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
        """Read every part and return the manifest. Raises the same as ``manifest`` and ``read``."""
        manifest = self.manifest()
        for handle in manifest.parts:
            self.read(handle)
        return manifest

    def remove_parts(self, parts: Iterable[PartHandle]) -> None:
        """Delete these parts, and the folder if it is empty then. Raises: StoreError."""
        with storing("clean up", self.path):
            for handle in parts:
                self._files.remove(self.path / handle.file)
            self._files.remove_directory(self.path)

    def remove(self) -> None:
        """Delete the checkpoint, manifest first and durably; foreign files stay. Raises: StoreError.

        If the folder is a symbolic link, only the link is deleted.
        """
        with storing("delete", self.path):
            if not is_directory(self.path):
                if self.path.is_symlink():
                    self._files.remove(self.path)
                return
            if self.exists:
                self._remove(self.path / MANIFEST)
                self._files.sync_directory(self.path)
            for name in self._files.names(self.path):
                if name.endswith(_OURS):
                    self._remove(self.path / name)
            self._files.remove_directory(self.path)

    def _remove(self, path: Path) -> None:
        """Remove a file of ours; a directory in its place is not ours, and is removed only if it is empty."""
        if is_directory(path):
            self._files.remove_directory(path)
        else:
            self._files.remove(path)
