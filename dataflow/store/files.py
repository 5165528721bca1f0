"""The one place that makes files durable: every write, sync, rename and removal of ours goes through a ``FileSystem``.

A file that must survive is written beside its place, synced, renamed, and then its directory is synced: before the
rename nobody sees it, after the last step no power failure can take it away. Tests (and the simulator) subclass
``FileSystem`` and fail, or crash, at any one of its primitives; everything above runs unchanged.

The library never makes symbolic links. So one in the place of its files or directories was planted, and is not
followed.

Assumes: rename replaces atomically within one file system; a synced directory keeps its entries (POSIX).

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     DISK.write_new(Path(directory) / "greeting", b"hello ", b"world")
...     DISK.read(Path(directory) / "greeting"), DISK.names(Path(directory))
(b'hello world', ['greeting'])
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dataflow.errors import StoreError

__all__ = [
    "DISK",
    "TEMPORARY",
    "Buffer",
    "FileSystem",
    "NotAFile",
    "PlainSync",
    "is_directory",
    "is_entry_of",
    "storing",
]

Buffer = bytes | bytearray | memoryview
"""Bytes in one piece. What is passed in is only read; an Arrow buffer goes in as ``memoryview(buffer)``."""

TEMPORARY: Final = ".tmp"
"""The ending of a file that ``write_new`` has not finished; after a crash it may be removed by whoever owns it."""

_ADVICE: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the quota is used up: free some space",
    errno.EFBIG: "the file size limit is reached: raise it (ulimit -f)",
    errno.EACCES: "permission denied: check who owns the directory",
    errno.EPERM: "not permitted: check who owns the directory",
    errno.EROFS: "the file system is read-only: choose another directory",
    errno.ENOENT: "it does not exist: create the parent directory, or check the path",
    errno.ENOTDIR: "a part of the path is a file: choose another path",
    errno.EEXIST: "it is in the way: move it, or choose another path",
    errno.EIO: "the device failed: check it before going on",
    errno.ELOOP: "it is a symbolic link, which is not followed here: put the file itself in its place",
}


class NotAFile(OSError):
    """A symbolic link, a directory or a device where a regular file is expected."""


class FileSystem:
    """The primitives. Each raises ``OSError`` and leaves nothing half-visible under the name it was asked for.

    The elementary ones (what a faulty file system overrides): ``make_directory create write sync rename remove
    remove_directory sync_directory read``. Thread-safe: an instance holds no state.
    """

    def make_directory(self, path: Path) -> None:
        """Make ``path``, whose parent exists, unless it is there; its entry in the parent is durable afterwards.

        Raises: FileExistsError where something else is there, a symbolic link included.
        """
        try:
            os.mkdir(path)
        except FileExistsError:
            if not is_directory(path):
                raise
            return
        self.sync_directory(path.parent)

    def create(self, path: Path) -> io.FileIO:
        """A new empty file, open for writing; ``FileExistsError`` where there is one."""
        return io.FileIO(path, "xb")

    def write(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        """Write some of ``data`` at ``offset`` and answer how many bytes; the rest is for the next call."""
        return os.pwrite(file.fileno(), data, offset)

    def sync(self, file: io.FileIO) -> None:
        """What was written is on the device. After an error nothing about the file's content may be assumed."""
        if sys.platform == "darwin":  # there fsync stops at the drive's cache
            import fcntl

            try:
                fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
                return
            except OSError as error:
                if error.errno not in {errno.ENOTSUP, errno.EINVAL}:  # network file systems do not know it
                    raise
        os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Atomically give ``source`` the name ``target``, replacing it; durable after ``sync_directory`` of both."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; fine where there is none."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory if it is empty; fine where there is none, or where something is left in it."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def sync_directory(self, path: Path) -> None:
        """Entries made, renamed and removed in ``path`` so far are on the device."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that does not sync directories at all
                raise
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        """Return the whole content of a regular file. Raises: NotAFile for anything else, without waiting for it."""
        with self.open(path) as file:
            return file.readall()

    def open(self, path: Path) -> io.FileIO:
        """Open a regular file for reading. Raises: NotAFile for anything else, without waiting for it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise NotAFile(errno.ELOOP, "it is a symbolic link", str(path)) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotAFile(errno.EINVAL, "it is not a regular file", str(path))
        return io.FileIO(descriptor, "rb")

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def size(self, path: Path) -> int | None:
        """The size of a regular file in bytes; None where there is none. Symbolic links are none."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def make_directories(self, path: Path) -> None:
        """Make ``path``, which the user chose, and missing directories above it, durably."""
        if path.is_dir():
            return
        if not path.parent.exists():
            self.make_directories(path.parent)
        self.make_directory(path)

    def write_all(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        """Write all of ``data`` at ``offset``; the offset behind it."""
        view = memoryview(data).cast("B")
        while view:
            written = self.write(file, view, offset)
            view, offset = view[written:], offset + written
        return offset

    def write_new(self, path: Path, *pieces: Buffer) -> None:
        """Put a file with these bytes at ``path``, whole or not at all, replacing what was there; durable on return.

        After an error the old file, or the new one, is there; a crash leaves at most a ``.tmp`` file beside it.
        """
        temporary = path.with_name(path.name + TEMPORARY)
        self.remove(temporary)
        try:
            with self.create(temporary) as file:
                offset = 0
                for piece in pieces:
                    offset = self.write_all(file, piece, offset)
                self.sync(file)
            self.rename(temporary, path)
            self.sync_directory(path.parent)
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise


def is_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory itself, and not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_entry_of(file: io.FileIO, path: Path) -> bool:
    """Return whether ``path`` names the file that is open as ``file``, and not one that took its place since."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


class PlainSync(FileSystem):
    """``fsync`` and no more: on macOS much faster, and only as durable as the drive's cache."""

    def sync(self, file: io.FileIO) -> None:
        os.fsync(file.fileno())


DISK: Final = FileSystem()
"""The real file system."""


@contextmanager
def storing(doing: str, path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StoreError`` that says what was tried, where, and what to do about it."""
    try:
        yield
    except OSError as error:
        advice = "" if isinstance(error, NotAFile) else _ADVICE.get(error.errno or 0, "")
        raise StoreError(f"cannot {doing} {path}: {error.strerror or error}{advice and f' ({advice})'}") from error
