"""A file system with injected failures, crashes and power losses, for tests of stores and sinks.

It works on real files. Before each primitive it calls ``fault(number, name, path)``, which may raise: an ``OSError``
for a failing disk, a ``Crash`` for a process that ends there. ``lose_power`` then also removes everything that was not
synced.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     files = FaultyFileSystem(crash_at(5))            # remove, create, write, sync, and no rename
...     try:
...         files.write_new(Path(directory) / "a", b"x")
...     except Crash as crash:
...         print(crash, files.names(Path(directory)))
operation 5: rename a.tmp ['a.tmp']
"""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dataflow.store.files import Buffer, FileSystem

__all__ = ["Crash", "Fault", "FaultyFileSystem", "crash_at", "fail_at", "fail_from", "no_fault"]

Fault = Callable[[int, str, Path], None]


class Crash(BaseException):
    """The process ends here; no exception handler of this library may catch it."""


def no_fault(number: int, name: str, path: Path) -> None:
    """Never fail."""


def crash_at(at: int) -> Fault:
    """Crash right before operation ``at`` (the first one is 1); a write is torn in the middle."""

    def fault(number: int, name: str, path: Path) -> None:
        if number == at:
            raise Crash(f"operation {number}: {name} {path.name}")

    return fault


def fail_at(at: int, code: int = errno.ENOSPC) -> Fault:
    """Fail operation ``at`` with the errno ``code``, once."""

    def fault(number: int, name: str, path: Path) -> None:
        if number == at:
            raise OSError(code, os.strerror(code), str(path))

    return fault


def fail_from(at: int, code: int = errno.ENOSPC) -> Fault:
    """Fail operation ``at`` and all later ones with the errno ``code``."""

    def fault(number: int, name: str, path: Path) -> None:
        if number >= at:
            raise OSError(code, os.strerror(code), str(path))

    return fault


@dataclass(slots=True)
class _Pending:
    """A change of a directory entry that is not durable; ``undo`` reverts it."""

    directory: Path
    undo: Callable[[], None]


class FaultyFileSystem(FileSystem):
    """A file system that calls ``fault`` before each primitive; ``log`` lists the calls. Not thread-safe."""

    def __init__(self, fault: Fault = no_fault) -> None:
        self.fault = fault
        self.log: list[tuple[str, Path]] = []
        self._pending: list[_Pending] = []
        self._unsynced: dict[int, int] = {}  # inode -> how many of its bytes are durable

    def _step(self, name: str, path: Path) -> None:
        self.log.append((name, path))
        self.fault(len(self.log), name, path)

    def make_directory(self, path: Path) -> None:
        self._step("make_directory", path)
        if not path.exists():
            os.mkdir(path)
            self._pending.append(_Pending(path.parent, lambda: shutil.rmtree(path, ignore_errors=True)))
            self.sync_directory(path.parent)
        super().make_directory(path)

    def create(self, path: Path) -> io.FileIO:
        self._step("create", path)
        file = super().create(path)
        self._unsynced[os.fstat(file.fileno()).st_ino] = 0
        self._pending.append(_Pending(path.parent, lambda: path.unlink(missing_ok=True)))
        return file

    def write(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        try:
            self._step("write", Path(str(file.name)))
        except BaseException:
            super().write(file, memoryview(data)[: len(data) // 2], offset)
            raise
        self._unsynced.setdefault(os.fstat(file.fileno()).st_ino, offset)
        return super().write(file, data, offset)

    def sync(self, file: io.FileIO) -> None:
        self._step("sync", Path(str(file.name)))
        self._unsynced.pop(os.fstat(file.fileno()).st_ino, None)

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        replaced = target.read_bytes() if target.exists() else None
        super().rename(source, target)

        def forget_target() -> None:
            if target.exists():
                if not source.exists():
                    os.link(target, source)
                target.unlink()
            if replaced is not None:
                target.write_bytes(replaced)

        def remember_source() -> None:
            if target.exists() and not source.exists():
                os.link(target, source)

        self._pending.append(_Pending(target.parent, forget_target))
        if source.parent != target.parent:
            self._pending.append(_Pending(source.parent, remember_source))

    def remove(self, path: Path) -> None:
        self._step("remove", path)
        content = path.read_bytes() if path.exists() else None
        super().remove(path)
        if content is not None:

            def undo() -> None:
                path.write_bytes(content)

            self._pending.append(_Pending(path.parent, undo))

    def remove_directory(self, path: Path) -> None:
        self._step("remove_directory", path)
        existed = path.exists()
        super().remove_directory(path)
        if existed and not path.exists():
            self._pending = [pending for pending in self._pending if pending.directory != path]
            self._pending.append(_Pending(path.parent, lambda: path.mkdir(exist_ok=True)))

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory", path)
        self._pending = [pending for pending in self._pending if pending.directory != path]

    def read(self, path: Path) -> bytes:
        self._step("read", path)
        return super().read(path)

    def lose_power(self, root: Path, seed: int) -> None:
        """Revert changes below ``root`` that are not durable: unsynced bytes, and the last few directory entries.

        Seed 0 reverts all of them. Even seeds keep some, the oldest ones, as a journal does; odd seeds keep any.
        """
        dice = random.Random(f"power failure {seed}")  # small integers alone would give similar sequences
        for path in sorted(root.rglob("*")):
            durable = self._unsynced.get(path.stat().st_ino)
            if durable is not None and path.is_file():
                size = path.stat().st_size
                os.truncate(path, durable if seed == 0 else dice.randint(min(durable, size), size))
        first = 0 if seed == 0 else dice.randint(0, len(self._pending))
        lost = [pending for pending in self._pending if dice.random() < 0.5] if seed % 2 else self._pending[first:]
        for pending in reversed(lost):
            pending.undo()
        self._pending.clear()
        self._unsynced.clear()
