"""One interface to the files of this machine and of any pyarrow filesystem, for all formats.

Paths on this machine go through ``os`` and ``open``, so errors are Python's own. All others go through ``pyarrow.fs``,
which also wraps fsspec's filesystems. Both raise OSError for a file that cannot be read.

>>> places = Files(fs.SubTreeFileSystem("/", fs.LocalFileSystem()))
>>> places.status("no/such/file")
Traceback (most recent call last):
...
FileNotFoundError: [Errno 2] No such file or directory: 'no/such/file'
"""

from __future__ import annotations

import errno
import os
import stat
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow as pa
import xxhash
from pyarrow import fs

from dataflow.errors import ConfigurationError, SourceError
from operators.sources.archives import unpacked

__all__ = ["CODECS", "WHOLE", "Entry", "Files", "Status", "as_filesystem", "check_text", "ends_hash", "file_infos"]

WHOLE: Final = 1 << 20
"""Files of up to this many bytes are hashed whole."""
_ENDS: Final = 1 << 16
Entry: TypeAlias = "os.DirEntry[str] | fs.FileInfo"
_SPECIAL: Final = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
CODECS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""pyarrow's names of the codecs of text files, by suffix."""


@dataclass(frozen=True, slots=True)
class Status:
    """A file as it is now: its name within its folder, its size, and when it was modified (ns; None: unknown)."""

    name: str
    bytes: int
    modified: int | None


def as_filesystem(given: Any) -> fs.FileSystem | None:
    """Return a user's ``filesystem=`` as pyarrow's (fsspec's is wrapped), or None for this machine's.

    Raises: ConfigurationError for anything else.
    """
    if given is None or isinstance(given, fs.FileSystem):
        return None if isinstance(given, fs.LocalFileSystem) else given
    if hasattr(given, "protocol") and hasattr(given, "find"):  # the interface of fsspec, which need not be installed
        return fs.PyFileSystem(fs.FSSpecHandler(given))
    raise ConfigurationError(
        f"filesystem= takes a pyarrow.fs.FileSystem or an fsspec filesystem, got a {type(given).__qualname__}"
    )


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one filesystem; None: this machine's. Picklable if the filesystem is."""

    filesystem: fs.FileSystem | None = None

    @property
    def remote(self) -> bool:
        """Whether reading may wait for a network, so that tasks need threads of their own."""
        return self.filesystem is not None

    def status(self, path: str) -> Status:
        """Return the status of the file at ``path``. Raises: OSError if there is no such file."""
        if self.filesystem is None:
            check_text(path)
            status = os.stat(path)
            return Status(os.path.basename(path), status.st_size, _known_time(status.st_mtime_ns))
        info = self.filesystem.get_file_info(path)
        if info.type is not fs.FileType.File:
            number = errno.ENOENT if info.type is fs.FileType.NotFound else errno.EISDIR
            raise OSError(number, os.strerror(number), path)
        return _status(info)

    def listed(self, directory: str) -> dict[str, Entry]:
        """Return the entries of ``directory`` by name, without their status. Raises: OSError if it cannot be listed."""
        if self.filesystem is not None:
            return {info.base_name: info for info in file_infos(self.filesystem, fs.FileSelector(directory))}
        with os.scandir(directory) as entries:
            return {entry.name: entry for entry in entries}

    def status_of(self, entry: Entry) -> Status | None:
        """Return the status of a listed file; None if it is gone, or is not a file. Raises: OSError."""
        if isinstance(entry, fs.FileInfo):
            return _status(entry) if entry.type is fs.FileType.File else None
        try:
            status = entry.stat()
        except FileNotFoundError:  # renamed or removed since it was listed, or a link to nowhere
            return None
        return (
            Status(entry.name, status.st_size, _known_time(status.st_mtime_ns))
            if stat.S_ISREG(status.st_mode)
            else None
        )

    def check_regular(self, path: str) -> None:
        """Raise SourceError for a pipe, socket or device of this machine, which cannot be read twice."""
        try:
            mode = stat.S_IFREG if self.filesystem is not None else os.stat(path).st_mode
        except OSError:  # whoever opens the file says why
            return
        if kind := _SPECIAL.get(stat.S_IFMT(mode)):
            raise SourceError(
                f"{path!r}: expected a regular file, found a {kind}; write its data to a file first, and read that"
            )

    def directory(self, path: str) -> int | None:
        """Return a number that identifies the directory at ``path``; None: unknown. Raises: OSError."""
        return os.stat(path).st_ino if self.filesystem is None else None

    def join(self, directory: str, name: str) -> str:
        """Return the path of a listed file."""
        return os.path.join(directory, name) if self.filesystem is None else f"{directory.rstrip('/')}/{name}"

    def open(self, path: str) -> BinaryIO:
        """Open the file as a stream of bytes that can seek."""
        if self.filesystem is None:
            return open(path, "rb")
        return self.filesystem.open_input_file(path)

    def open_text(self, path: str, at: int) -> BinaryIO:
        """Open the file at byte ``at``. If its suffix names a codec, decompress it, from its beginning up to there."""
        codec = compression(path)
        if codec is None:
            raw = self.handle(path)
            raw.seek(at)
            return raw
        stream = unpacked(self.handle(path), codec)
        while at > 0 and (skipped := len(stream.read(min(at, 1 << 20)))):
            at -= skipped
        return stream

    def is_empty(self, path: str) -> bool:
        """Return whether a file has nothing but line ends and a mark (BOM), decompressed. Raises: OSError."""
        with self.open_text(path, 0) as stream:
            read = stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
            while not read.strip(b"\r\n"):
                read = stream.read(1 << 16)
                if not read:
                    return True
        return False

    def handle(self, path: str) -> Any:
        """Open the file for pyarrow. Dropping the handle closes it without a warning, as when a process dies."""
        if self.filesystem is not None:
            return self.filesystem.open_input_file(path)
        check_text(path)
        return pa.OSFile(path)


def ends_hash(raw: BinaryIO, *, whole: bool) -> str:
    """Return the xxh3, in hex, of the first and the last 64 KiB of an open file, or of all of a ``whole`` small one."""
    digest = xxhash.xxh3_64()
    raw.seek(0)
    digest.update(raw.read(WHOLE if whole else _ENDS))
    if not whole:
        size = raw.seek(0, os.SEEK_END)
        raw.seek(max(0, size - _ENDS))
        digest.update(raw.read(_ENDS))
    return digest.hexdigest()


def file_infos(filesystem: fs.FileSystem, selector: fs.FileSelector) -> list[fs.FileInfo]:
    """Return what is in a directory. Raises: OSError, also if a name in it is not UTF-8, which pyarrow cannot hold."""
    try:
        found: list[fs.FileInfo] = filesystem.get_file_info(selector)
        for info in found:
            _ = info.path  # decoded here
    except UnicodeError as error:
        raise OSError(errno.EILSEQ, f"a name in it is not UTF-8 ({error}); rename it", selector.base_dir) from error
    return found


def check_text(path: str) -> None:
    """Raise OSError for a name that is not UTF-8, which neither Arrow nor a checkpoint can hold."""
    if path.isascii():
        return
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not UTF-8; rename it", path) from None


def compression(path: str) -> str | None:
    """Return the codec that the suffix of ``path`` names, or None.

    >>> compression("bids.csv.gz"), compression("bids.csv")
    ('gzip', None)
    """
    return CODECS.get(os.path.splitext(path)[1].lower())


def _status(info: fs.FileInfo) -> Status:
    return Status(info.base_name, info.size, _known_time(info.mtime_ns))


def _known_time(nanoseconds: int | None) -> int | None:
    """Return the time of a file if 64 bits hold it, as a checkpoint and pyarrow do: from 1677 to 2262."""
    return nanoseconds if nanoseconds is not None and abs(nanoseconds) < 1 << 63 else None
