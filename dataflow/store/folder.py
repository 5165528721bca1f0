"""One checkpoint on disk: a folder of parts with a manifest written last. It can be moved and read by path alone.

chk-00000007/counts-0.part  ...  manifest.json
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dataflow.errors import CheckpointDamaged, NoCheckpoint
from dataflow.store.files import DISK, TEMPORARY, Buffer, FileSystem, storing
from dataflow.store.manifest import Manifest, PartHandle, check_part, decode, encode, part_file, part_handle

__all__ = ["MANIFEST", "CheckpointFolder"]

log = logging.getLogger("dataflow.store")

MANIFEST: Final = "manifest.json"
_OURS: Final = (".part", ".part" + TEMPORARY, MANIFEST, MANIFEST + TEMPORARY)


class CheckpointFolder:
    """The checkpoint in directory ``path`` (the path of its manifest will do, too)."""

    def __init__(self, path: str | Path, *, files: FileSystem = DISK) -> None:
        path = Path(path)
        self.path = path.parent if path.name == MANIFEST else path
        self._files = files

    @property
    def exists(self) -> bool:
        """A checkpoint exists iff its manifest does; a directory of that name counts as a damaged one.

        Raises: StoreError where nobody can tell.
        """
        with storing("look at", self.path / MANIFEST):
            return self._files.size(self.path / MANIFEST) is not None or (self.path / MANIFEST).is_dir()

    def write(self, task: str, data: Buffer) -> PartHandle:
        """Write one part, durably. Raises: StoreError."""
        handle = part_handle(task, data)
        with storing("write", self.path / handle.file):
            self._files.make_directory(self.path)
            self._files.write_new(self.path / handle.file, data)
        return handle

    def commit(self, manifest: Manifest) -> None:
        """Make the checkpoint exist. Raises: StoreError, after which it does not, as far as the disk obeys."""
        target = self.path / MANIFEST
        with storing("write", target):
            self._files.make_directory(self.path)
            self._files.sync_directory(self.path.parent)  # the folder itself, where an earlier attempt failed to
            try:
                self._files.write_new(target, encode(manifest))
            except OSError:
                self._files.remove(target)  # renamed, but perhaps not durable: take it back
                raise

    def manifest(self) -> Manifest:
        """Raises: NoCheckpoint, CheckpointDamaged, StoreError; CheckpointError for a newer format."""
        target = self.path / MANIFEST
        if not self.exists:
            inside = self._files.names(self.path) if self.path.is_dir() else "nothing: there is no such directory"
            raise NoCheckpoint(f"{self.path} is not a checkpoint: expected a {MANIFEST} in it, found {inside}")
        if target.is_dir():
            raise CheckpointDamaged(
                f"{target}: expected a file, found a directory: put the manifest back, if you have it"
            )
        with storing("read", target):
            return decode(self._files.read(target), str(target))

    def read(self, handle: PartHandle) -> bytes:
        """A part, verified. Raises: CheckpointDamaged, StoreError."""
        path = self.path / handle.file
        if Path(handle.file).name != handle.file:
            raise CheckpointDamaged(f"{self.path}: a part is a file beside the manifest, found {handle.file!r}")
        with storing("read", path):
            try:
                data = self._files.read(path)
            except FileNotFoundError as error:
                raise CheckpointDamaged(
                    f"{path}: the part of task {handle.task!r} is missing; it had {handle.size} bytes"
                ) from error
        return check_part(handle, data, str(path))

    def remains(self, task: str) -> bytes | None:
        """The part of ``task``, unverified, where no manifest says what it was; None where none can be read."""
        try:
            return self._files.read(self.path / part_file(task))
        except OSError as error:
            log.debug("%s has nothing of task %r to read: %s", self.path, task, error)
            return None

    def verify(self) -> Manifest:
        """Read everything. Raises what ``manifest`` and ``read`` raise."""
        manifest = self.manifest()
        for handle in manifest.parts:
            self.read(handle)
        return manifest

    def remove_parts(self, parts: Iterable[PartHandle]) -> None:
        """Delete these parts, and the folder with the last one. Raises: StoreError."""
        with storing("clean up", self.path):
            for handle in parts:
                self._files.remove(self.path / handle.file)
            self._files.remove_directory(self.path)

    def remove(self) -> None:
        """Delete the checkpoint, manifest first and durably; other people's files stay. Raises: StoreError."""
        with storing("delete", self.path):
            if not self.path.is_dir():
                return
            if self.exists:
                self._remove(self.path / MANIFEST)
                self._files.sync_directory(self.path)
            for name in self._files.names(self.path):
                if name.endswith(_OURS):
                    self._remove(self.path / name)
            self._files.remove_directory(self.path)

    def _remove(self, path: Path) -> None:
        """Remove a file of ours; a directory in its place only where it is empty, for it is not ours."""
        if path.is_dir():
            self._files.remove_directory(path)
        else:
            self._files.remove(path)
