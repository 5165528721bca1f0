"""The one place that makes files durable: every write, sync, rename and removal of ours goes through a ``FileSystem``.

A file that must survive is written beside its place, synced, renamed, and then its directory is synced: before the
rename nobody sees it, after the last step no power failure can take it away. Tests (and the simulator) subclass
``FileSystem`` and fail, or crash, at any one of its primitives; everything above runs unchanged.

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

__all__ = ["DISK", "TEMPORARY", "Buffer", "FileSystem", "PlainSync", "storing"]

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
}


class FileSystem:
    """The primitives. Each raises ``OSError`` and leaves nothing half-visible under the name it was asked for.

    The elementary ones (what a faulty file system overrides): ``make_directory create write sync rename remove
    remove_directory sync_directory read``. Thread-safe: an instance holds no state.
    """

    def make_directory(self, path: Path) -> None:
        """Make ``path``, whose parent exists, unless it is there; its entry in the parent is durable afterwards."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not path.is_dir():
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
        """The whole content."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def size(self, path: Path) -> int | None:
        """The size of a regular file in bytes; None where there is none."""
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def make_directories(self, path: Path) -> None:
        """Make ``path`` and whatever is missing above it, durably."""
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
        advice = _ADVICE.get(error.errno or 0, "")
        raise StoreError(f"cannot {doing} {path}: {error.strerror or error}{advice and f' ({advice})'}") from error
