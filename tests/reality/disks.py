"""A real disk that is full when it is told to be, for as many threads as like."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

from dataflow.store.files import Buffer, FileSystem

__all__ = ["FullDisk"]


class FullDisk(FileSystem):
    """Refuses with ENOSPC, before it is done, each operation for which ``refuse(number, name)`` is true.

    Only operations after ``armed`` was set count; a refused write has written half of its bytes.
    """

    def __init__(self, refuse: Callable[[int, str], bool]) -> None:
        self.armed = False
        self.log: list[str] = []
        self.refused: list[str] = []
        self._refuse = refuse
        self._lock = threading.Lock()  # guards the log

    def _step(self, name: str, path: Path) -> None:
        if not self.armed:
            return
        with self._lock:
            self.log.append(name)
            refused = self._refuse(len(self.log), name)
            if refused:
                self.refused.append(f"{name} {path.name}")
        if refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def create(self, path: Path) -> io.FileIO:
        self._step("create", path)
        return super().create(path)

    def write(self, file: io.FileIO, data: Buffer, offset: int) -> int:
        try:
            self._step("write", Path(str(file.name)))
        except OSError:
            super().write(file, memoryview(data)[: len(data) // 2], offset)
            raise
        return super().write(file, data, offset)

    def sync(self, file: io.FileIO) -> None:
        self._step("sync", Path(str(file.name)))
        super().sync(file)

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory", path)
        super().sync_directory(path)
