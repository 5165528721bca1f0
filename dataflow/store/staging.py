"""A file of a two-phase sink that is written bit by bit and loses nothing if a write fails.

A failed write raises nothing: the bytes wait in memory, up to ``limit`` of them, and are written again later. Only
``sync`` raises. A failed *sync* is worse than a failed write, because the kernel may have dropped the pages and may
report success for the next sync (Rebello et al., "Can applications recover from fsync failures?", ATC 2020). So after
one the file is suspect: the next ``sync`` reads it back, compares its checksum with that of the bytes written, and only
if they are equal copies it to a new file, which is then synced.

Guarantees: after ``sync`` returned, exactly the bytes written are durable in ``path``. StoreError: it failed, nothing
is lost, call ``sync`` again. SinkBroken: bytes are lost.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import xxhash

from dataflow.errors import SinkBroken, StoreError
from dataflow.store.files import DISK, Buffer, FileSystem, is_entry_of, is_same_file, storing

__all__ = ["StagedFile"]

_CHUNK: Final = 1 << 20


class StagedFile:
    """A new file at ``path``, in an existing directory; at most ``limit`` bytes wait in memory if writes fail.

    It has the methods that pyarrow requires of a writable file object.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     staged = StagedFile(Path(directory) / "a.staged")
    ...     written = staged.write(b"rows")
    ...     staged.sync()
    ...     staged.abandon()
    ...     staged.path.read_bytes()
    b'rows'
    """

    closed = False  # pyarrow reads it

    def __init__(self, path: Path, *, files: FileSystem = DISK, limit: int = 64 << 20) -> None:
        self.path = path
        self._files = files
        self._limit = limit
        self._file: io.FileIO | None = None
        self._waiting = bytearray()
        self._on_disk = 0
        self._checksum = xxhash.xxh3_64()
        self._suspect = False
        self._discarded = False
        self._released: os.stat_result | None = None

    @property
    def size(self) -> int:
        """Bytes written so far, including those that wait in memory."""
        return self._on_disk + len(self._waiting)

    @property
    def xxh3(self) -> str:
        """The xxh3-64 of the bytes written so far, as 16 hex digits."""
        return self._checksum.hexdigest()

    def write(self, data: Buffer) -> int:
        """Write ``data``, or keep it in memory. Raises: SinkBroken if more than ``limit`` bytes would have to wait."""
        if self._discarded:  # pyarrow writes the footer when a writer is dropped
            return len(data)
        self._checksum.update(data)
        before = len(self._waiting)
        self._waiting += data
        if before // _CHUNK != len(self._waiting) // _CHUNK:
            try:
                with storing("write", self.path):
                    self._drain()
            except StoreError as error:
                if len(self._waiting) > self._limit:
                    raise SinkBroken(
                        f"{self.path}: {len(self._waiting)} bytes wait because writes fail, and at most {self._limit} "
                        f"may wait: restart from the last checkpoint when the disk has room ({error})"
                    ) from error
        return len(data)

    def tell(self) -> int:
        """Return the position after the last byte written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: only ``sync`` makes bytes durable."""

    def close(self) -> None:
        """Do nothing: pyarrow has finished with the file, but the sink has not."""

    def sync(self) -> None:
        """Make all bytes and the directory entry durable. Raises: StoreError, SinkBroken. May be repeated."""
        assert not self._discarded, f"{self.path} was discarded"
        if self._released is not None:
            return
        with storing("stage", self.path):
            self._drain()
            if self._suspect:
                self._rewrite()
            assert self._file is not None, "a drained file is open"
            try:
                self._files.sync(self._file)
            except OSError:
                self._suspect = True
                raise
            self._files.sync_directory(self.path.parent)

    @property
    def in_place(self) -> bool:
        """Whether ``path`` names the open file, and not another one that replaced it."""
        if self._released is not None:
            return is_same_file(self._released, self.path)
        return self._file is not None and not self._file.closed and is_entry_of(self._file, self.path)

    def release(self) -> None:
        """Close the synced file, so that it needs no descriptor any more. Nothing may be written after it."""
        assert self._file is not None, "a synced file is open"
        self._released = os.fstat(self._file.fileno())
        self._file.close()

    def check_in_place(self) -> None:
        """Check that the synced file still has its name.

        Raises: SinkBroken if ``path`` names another file, or none: a job that took the directory over deleted ours.
        """
        if not self.in_place:
            raise SinkBroken(
                f"{self.path}: the {self.size} bytes staged there are no longer there: another job took the directory "
                "over, or the file was removed; restart from the last checkpoint"
            )

    def discard(self) -> None:
        """Close the file and remove it, if the disk allows it and ``path`` still names it.

        If it stays, the sink's next recovery removes it.
        """
        in_place = self.in_place
        self.abandon()
        self._waiting.clear()
        if in_place:
            with suppress(OSError):
                self._files.remove(self.path)

    def abandon(self) -> None:
        """Close the file and leave it in place, as a dying process does."""
        if self._file is not None:
            self._file.close()
        self._discarded = True

    def _drain(self) -> None:
        if self._file is None:
            self._file, self.path = _create(self._files, self.path)
        while self._waiting:
            with memoryview(self._waiting)[:_CHUNK] as head:
                written = self._files.write(self._file, head, self._on_disk)
            del self._waiting[:written]
            self._on_disk += written

    def _rewrite(self) -> None:
        """Copy a suspect file, and verify that it still holds the bytes written."""
        old, checksum, offset = self.path, xxhash.xxh3_64(), 0
        file, path = _create(self._files, self.path)
        try:
            with open(old, "rb") as source:
                while chunk := source.read(_CHUNK):
                    checksum.update(chunk)
                    offset = self._files.write_all(file, chunk, offset)
        except OSError:
            file.close()
            with suppress(OSError):
                self._files.remove(path)
            raise
        if checksum.intdigest() != self._checksum.intdigest():
            file.close()
            raise SinkBroken(
                f"{old}: {self.size} bytes were written, could not be synced, and read back differently: the device "
                "failed; check it, then restart from the last checkpoint"
            )
        assert self._file is not None, "a suspect file was open"
        in_place = is_entry_of(self._file, old)
        self._file.close()
        self._file, self.path, self._suspect = file, path, False
        if in_place:
            self._files.remove(old)


def _create(files: FileSystem, wanted: Path) -> tuple[io.FileIO, Path]:
    """Create a file named like ``wanted``, with a number if that name is taken: a zombie may still write there."""
    stem = wanted.name.partition(".")[0]
    for again in count():
        path = wanted if again == 0 else wanted.with_name(f"{stem}.{again}{wanted.suffix}")
        try:
            return files.create(path), path
        except FileExistsError:
            continue
    raise AssertionError("count() does not end")
