"""A savepoint: a copy of one checkpoint in a directory of its own, which needs nothing else and which no job changes.

    path/counts-0.12.0.part  ...  manifest.json

Objects are copied and synced first, then the manifest, of kind "savepoint". So the directory is a savepoint if, and
only if, it has a manifest: a crash at any time leaves objects without one, and the next savepoint there deletes them.
Bytes are copied, not linked, because a link would share damage with the original. They are verified on the way.

Objects of older checkpoints that the manifest names are copied, too, under names that say which one wrote them.

Invariant: no file is written or deleted before ``reserve`` has locked the directory, and found nothing of others in it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dataflow.errors import CheckpointError, CheckpointsExist, ConfigurationError, DirectoryInUse
from dataflow.protocol.events import BarrierKind
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import STREAM_ON_SPARK, DirectoryStore
from dataflow.store.files import DISK, FileSystem, storing
from dataflow.store.folder import MANIFEST, CheckpointFolder, folder_name, is_ours
from dataflow.store.lock import FENCE
from dataflow.store.manifest import PartHandle
from dataflow.store.pin import lock_descriptor

__all__ = ["Export", "SavepointStore"]

_HELD: Final = (FENCE, f"_staging/{FENCE}", STREAM_ON_SPARK)
"""Files by which directories are recognised that jobs write to: checkpoints, outputs, streams on Spark."""
_SHOWN: Final = 5
"""How many foreign files an error names."""


def _nothing() -> None:
    """Do nothing."""


class Export:
    """The directory ``path`` of one savepoint: reserved, then filled once, then released.

    Args:
        path: the user's path of the directory.
        avoid: directories that are written to by the job, which may not hold ``path``.
        files: the file system.

    Raises: ConfigurationError if ``path`` is no path.

    >>> import tempfile, dataflow as flow
    >>> from dataflow.store.manifest import FORMAT, Manifest
    >>> store = flow.MemoryStore()
    >>> parts = (store.write(7, "counts-0", b"state"),)
    >>> store.commit(Manifest(format=FORMAT, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
    ...                       guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32,
    ...                       parts=parts))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     export = Export(os.path.join(directory, "copy"))
    ...     export.reserve()
    ...     export.copy(store, 7)
    ...     export.release()
    ...     CheckpointFolder(export.path).verify().kind, sorted(os.listdir(export.path))
    ('savepoint', ['counts-0.0.0.part', 'manifest.json'])
    """

    def __init__(self, path: object, avoid: Iterable[str] = (), files: FileSystem = DISK) -> None:
        text = path.__fspath__() if isinstance(path, os.PathLike) else path
        if not isinstance(text, str) or not text or "\0" in text:
            raise ConfigurationError(f"savepoint(path): expected the path of a directory, got {path!r}")
        self.path = Path(os.path.realpath(text))  # the user's path may be a symbolic link
        self._avoid = [Path(os.path.realpath(directory)) for directory in avoid]
        self._files = files
        self._made: list[Path] = []  # directories that did not exist, the deepest first
        self._descriptor: int | None = None

    def reserve(self) -> None:
        """Make the directory, lock it, and check that it is empty, or has nothing but objects without a manifest.

        Raises: ConfigurationError for a file, a directory with other files, or one inside of a directory that a job
        writes to; CheckpointsExist for a savepoint; DirectoryInUse if another savepoint is being copied there;
        StoreError if it cannot be made. Then nothing has changed.
        """
        self._refuse_inside()
        path = self.path
        if os.path.exists(path) and not os.path.isdir(path):
            raise ConfigurationError(f"a savepoint needs a directory of its own, but {path} is a file: name a new one")
        self._made = [each for each in (path, *path.parents) if not os.path.exists(each)]
        try:
            with storing("make", path):
                self._files.make_directories(path)
                self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    lock_descriptor(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise DirectoryInUse(
                        f"another savepoint is being copied to {path}: name another directory"
                    ) from None
            self._refuse_content()
        except BaseException:
            self.release()
            self._remove_made()
            raise

    def copy(
        self,
        store: CheckpointStore,
        checkpoint: int,
        step: Callable[[], None] = _nothing,
        claim: Callable[[], None] = _nothing,
    ) -> None:
        """Copy a complete checkpoint of ``store`` here; the savepoint is durable on return.

        Args:
            store: the store.
            checkpoint: the id of the checkpoint, which is not deleted meanwhile.
            step: called before each step and each piece of an object; it may raise to end the copy.
            claim: called once, before the manifest is written; it may raise to end the copy.

        Raises: the errors of ``step`` and ``claim``; CheckpointError, often StoreError or CheckpointDamaged, naming the
        checkpoint and the path. Then the files written here are deleted again, if the disk allows it.
        """
        assert self._descriptor is not None, f"{self.path} is not reserved"
        try:
            self._copy(store, checkpoint, step, claim)
        except CheckpointError as error:
            self.discard()
            raise type(error)(
                f"checkpoint {checkpoint} of {store.location} could not be copied to {self.path}, where there is no "
                f"savepoint now: {error}"
            ) from error
        except Exception:
            self.discard()
            raise

    def _copy(
        self, store: CheckpointStore, checkpoint: int, step: Callable[[], None], claim: Callable[[], None]
    ) -> None:
        files, path = self._files, self.path
        with storing("clean up", path):
            for name in files.names(path):  # of an export that a crash ended
                step()
                files.remove(path / name)
        with store.pin(checkpoint):
            manifest = store.manifest(checkpoint)
            parts = []
            for handle in manifest.parts:
                step()
                part = _copied(handle)
                pieces = store.pieces(checkpoint, handle)
                with storing("write", path / part.file), files.create(path / part.file) as file:
                    offset = 0
                    for piece in pieces:
                        offset = files.write_all(file, piece, offset)
                        step()
                    files.sync(file)
                parts.append(part)
        step()
        with storing("sync", path):
            files.sync_directory(path)
        claim()
        exported = msgspec.structs.replace(manifest, kind=BarrierKind.SAVEPOINT.value, parts=tuple(parts))
        CheckpointFolder(path, files=files).commit(exported)
        step()

    def discard(self) -> None:
        """Delete what was written, if the disk allows it, and the directory if it is new and empty then."""
        with suppress(OSError):
            names = [name for name in self._files.names(self.path) if is_ours(name)]
            for name in sorted(names, key=lambda name: name != MANIFEST):
                self._files.remove(self.path / name)
        self._remove_made()

    def abandon(self) -> None:
        """Delete the directory if it is new: nothing was written to it."""
        self._remove_made()

    def release(self) -> None:
        """Unlock the directory, if it is locked."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                lock_descriptor(descriptor, fcntl.LOCK_UN)  # close() alone would leave it to children forked meanwhile
            finally:
                os.close(descriptor)

    def _refuse_inside(self) -> None:
        for directory in (self.path, *self.path.parents):
            if directory in self._avoid or any([os.path.lexists(directory / name) for name in _HELD]):
                where = "is" if directory == self.path else "is inside of"
                raise ConfigurationError(
                    f"a savepoint needs a directory of its own, but {self.path} {where} {directory}, where a job keeps "
                    "its checkpoints or writes its output: name another directory"
                )

    def _refuse_content(self) -> None:
        with storing("list", self.path):
            names = self._files.names(self.path)
        if MANIFEST in names:
            raise CheckpointsExist(
                f"{self.path} already is a savepoint or a checkpoint, and is not replaced: name a new directory, or "
                "delete it first"
            )
        foreign = [name for name in names if not is_ours(name)]
        if foreign:
            more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
            raise ConfigurationError(
                f"a savepoint needs a new or empty directory, but {self.path} has {', '.join(foreign[:_SHOWN])}{more}"
            )

    def _remove_made(self) -> None:
        with suppress(OSError):
            for directory in self._made:
                self._files.remove_directory(directory)


class SavepointStore(DirectoryStore):
    """The directory of one savepoint, or the folder of one checkpoint, for reading."""

    def open(self, run_id: str = "run") -> None:
        """Raise ConfigurationError: a savepoint is never changed."""
        raise ConfigurationError(
            f"{self.location} is a savepoint or a single checkpoint, in which nothing is deleted: delete the directory"
        )

    def folder(self, checkpoint: int) -> CheckpointFolder:
        """Return the directory itself.

        Args:
            checkpoint: not used.
        """
        return CheckpointFolder(self._path, files=self._files)

    def _folders(self) -> list[int]:
        return [CheckpointFolder(self._path, files=self._files).manifest().checkpoint]


def _copied(handle: PartHandle) -> PartHandle:
    """Return the handle of the copy of an object."""
    if not handle.is_elsewhere:
        return handle
    return msgspec.structs.replace(handle, file=f"{folder_name(handle.checkpoint)}.{handle.file}", copied=True)
