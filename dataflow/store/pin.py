"""Pins: a checkpoint that is being read, by a restore or by a command, is not deleted meanwhile.

A pin is a shared ``flock`` on the manifest; a deletion takes an exclusive one first. The kernel releases both when a
process is killed, so a pin is never stale, and a reader needs no right to write. The manifest names all objects of the
checkpoint, older ones included, so the pin of one file keeps them all (see ``references``).

Where the file system has no locks, reading works without pins. A reader then finds out from ``exists`` that the
checkpoint was deleted.
"""

from __future__ import annotations

import errno
import fcntl
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dataflow.errors import CheckpointPinned
from dataflow.store.files import FileSystem, NotAFile, is_entry_of, storing

__all__ = ["Pin", "lock_descriptor", "pinned", "unpinned"]

_UNSUPPORTED: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.ENOSYS}
"""Errors of file systems without locks, or (EBADF) without locks on files that are open for reading."""


class Pin:
    """A manifest that is open for reading, and pinned where the file system has locks."""

    def __init__(self, manifest: Path, file: io.FileIO | None) -> None:
        self._manifest = manifest
        self._file = file

    @property
    def exists(self) -> bool:
        """Whether the manifest is still there, and the same. True if there was no manifest to pin."""
        return self._file is None or is_entry_of(self._file, self._manifest)


@contextmanager
def pinned(manifest: Path, files: FileSystem) -> Iterator[Pin]:
    """Keep the checkpoint of ``manifest`` from being deleted in the ``with`` block.

    A manifest that is missing, or is no regular file, is not pinned; reading it raises. If the checkpoint is being
    deleted at this moment, the pin does not ``exist``.

    Raises: StoreError.
    """
    with storing("read", manifest):
        try:
            file = files.open(manifest)
        except (FileNotFoundError, NotADirectoryError, NotAFile):
            file = None
    if file is None:
        yield Pin(manifest, None)
        return
    with file:
        lock_descriptor(file.fileno(), fcntl.LOCK_SH)  # waits for a deletion that has begun, which does not take long
        try:
            yield Pin(manifest, file)
        finally:
            lock_descriptor(file.fileno(), fcntl.LOCK_UN)  # close() alone would leave it to children forked meanwhile


@contextmanager
def unpinned(manifest: Path, files: FileSystem, what: str) -> Iterator[None]:
    """Delete ``manifest`` in the ``with`` block, while no reader can pin it; ``what`` is for the message.

    Raises: CheckpointPinned if it is pinned; OSError.
    """
    try:
        file = files.open(manifest)
    except (FileNotFoundError, NotADirectoryError, NotAFile, PermissionError):
        yield
        return
    with file:
        try:
            lock_descriptor(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointPinned(
                f"{what} is not deleted, because a restore or a command reads it: wait until that has ended, then "
                "delete it again"
            ) from None
        yield


def lock_descriptor(descriptor: int, operation: int) -> None:
    """Lock an open file, if its file system has locks. Raises: BlockingIOError; other errors of the disk."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
