"""The one place that makes files durable: every write, sync, rename and removal goes through a ``FileSystem``.

A durable file is written under a temporary name, synced, renamed, and then its directory is synced. Before the rename
no reader sees it; after the last step it survives a power failure. Tests (and the simulator) subclass ``FileSystem``
and fail, or crash, at any one of its primitives; all other code runs unchanged.

The library never makes symbolic links. So a link in place of its files or directories was planted, and is not followed.

Assumes: rename replaces atomically within one file system; a synced directory keeps its entries (POSIX).

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     DISK.write_new(Path(directory) / "greeting", [b"hello ", b"world"])
...     DISK.read(Path(directory) / "greeting"), DISK.names(Path(directory))
(b'hello world', ['greeting'])
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dataflow.errors import StoreError

__all__ = [
    "DISK",
    "TEMPORARY",
    "Buffer",
    "Content",
    "FileSystem",
    "NotAFile",
    "is_directory",
    "is_entry_of",
    "pieces_of",
    "storing",
]

Buffer = bytes | bytearray | memoryview
"""Contiguous bytes, which callees only read. Pass an Arrow buffer as ``memoryview(buffer)``."""

Content = Buffer | Iterable[Buffer]
"""The content of a file: its bytes, or an iterable of pieces, each of which is valid until the next one is taken."""

TEMPORARY: Final = ".tmp"
"""The suffix of a file that ``write_new`` has not finished; after a crash its owner may remove it."""

_ADVICE: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the quota is used up: free some space",
    errno.EFBIG: "the file size limit is reached: raise it (ulimit -f)",
    errno.EACCES: "permission denied: check who owns the directory",
    errno.EPERM: "not permitted: check who owns the directory",
    errno.EROFS: "the file system is read-only: choose another directory",
    errno.ENOENT: "it does not exist: create the parent directory, or check the path",
    errno.ENOTDIR: "a part of the path is a file: choose another path",
    errno.EEXIST: "it already exists: move it, or choose another path",
    errno.EIO: "the device failed: check it before you run again",
    errno.ELOOP: "it is a symbolic link, which is not followed here: put the file itself in its place",
}


class NotAFile(OSError):
    """A symbolic link, a directory or a device instead of a regular file."""


class FileSystem:
    """The file operations. Each may raise ``OSError``, and then leaves nothing half-visible under its final name.

    The primitives, which a faulty file system overrides: ``make_directory create write sync rename remove
    remove_directory sync_directory read``. Thread-safe: an instance holds no state.
    """

    def make_directory(self, path: Path) -> None:
        """Make the directory ``path`` in an existing parent, unless it exists; its new entry is durable on return.

        Raises: FileExistsError if ``path`` is anything else, a symbolic link included.
        """
        try:
            os.mkdir(path)
        except FileExistsError:
            if not is_directory(path):
                raise
            return
        self.sync_directory(path.parent)

    def create(self, path: Path) -> io.FileIO:
        """Create an empty file and open it for writing. Raises: FileExistsError if it exists."""
        return io.FileIO(path, "xb")

    def write(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        """Write ``data`` at ``offset`` and return the number of bytes written; write the rest with the next call."""
        return os.pwrite(file.fileno(), data, offset)

    def sync(self, file: io.FileIO) -> None:
        """Make the bytes written durable. After an error nothing about the file's content may be assumed."""
        if sys.platform == "darwin":  # fsync does not flush the drive's cache on macOS
            import fcntl

            try:
                fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
                return
            except OSError as error:
                if error.errno not in {errno.ENOTSUP, errno.EINVAL}:  # network file systems do not support it
                    raise
        os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Atomically rename ``source``, replacing ``target``; durable after ``sync_directory`` of both parents."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory if it exists and is empty."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def sync_directory(self, path: Path) -> None:
        """Make the entries added, renamed and removed in ``path`` so far durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that cannot sync directories
                raise
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        """Return the whole content of a regular file. Raises: NotAFile for anything else, without blocking on it."""
        with self.open(path) as file:
            return file.readall()

    def open(self, path: Path) -> io.FileIO:
        """Open a regular file for reading. Raises: NotAFile for anything else, without blocking on it."""
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
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def size(self, path: Path) -> int | None:
        """Return the size of a regular file in bytes, or None if ``path`` is no regular file (a link, for example)."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def make_directories(self, path: Path) -> None:
        """Make the user's directory ``path``, and missing directories above it, durably."""
        if path.is_dir():
            return
        if not path.parent.exists():
            self.make_directories(path.parent)
        self.make_directory(path)

    def write_all(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        """Write all of ``data`` at ``offset``; return the offset after it."""
        view = memoryview(data).cast("B")
        while view:
            written = self.write(file, view, offset)
            view, offset = view[written:], offset + written
        return offset

    def write_new(self, path: Path, content: Content) -> None:
        """Write a file with ``content`` at ``path``, atomically, replacing an existing one; durable on return.

        After an error, also of the iterable, ``path`` is the old file or the new one. A crash leaves at most a ``.tmp``
        file beside it.
        """
        temporary = path.with_name(path.name + TEMPORARY)
        self.remove(temporary)
        try:
            with self.create(temporary) as file:
                offset = 0
                for piece in pieces_of(content):
                    offset = self.write_all(file, piece, offset)
                self.sync(file)
            self.rename(temporary, path)
            self.sync_directory(path.parent)
        except Exception:
            with suppress(OSError):
                self.remove(temporary)
            raise


def pieces_of(content: Content) -> Iterable[Buffer]:
    """Return the pieces of a content.

    >>> list(pieces_of(b"one")), list(pieces_of(iter([b"one", b"two"])))
    ([b'one'], [b'one', b'two'])
    """
    try:
        memoryview(content)  # type: ignore[arg-type]
    except TypeError:
        return content  # type: ignore[return-value]
    return [content]  # type: ignore[list-item]


def is_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory itself, and not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_entry_of(file: io.FileIO, path: Path) -> bool:
    """Return whether ``path`` names the open ``file``, and not another one that replaced it."""
    return is_same_file(os.fstat(file.fileno()), path)


def is_same_file(status: os.stat_result, path: Path) -> bool:
    """Return whether ``path`` names the file that had ``status``."""
    try:
        return os.path.samestat(status, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


DISK: Final = FileSystem()
"""The real file system."""


@contextmanager
def storing(doing: str, path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StoreError`` that names the operation, the path, the cause and a remedy."""
    try:
        yield
    except OSError as error:
        advice = "" if isinstance(error, NotAFile) else _ADVICE.get(error.errno or 0, "")
        raise StoreError(f"cannot {doing} {path}: {error.strerror or error}{advice and f' ({advice})'}") from error
