"""The lock of a directory: it ends with its process, and a fencing token stops a holder that lost it unnoticed.

The lock is ``flock`` on ``LOCK``: the kernel releases it when the process is killed, so it is never stale. A holder may
lose the lock without noticing (the file was deleted, or a network file system lost it). The *fencing token* covers
that: each owner durably raises the number in ``FENCE``, and before each commit it stops unless its own number is still
there (M. Kleppmann, "How to do distributed locking", 2016).

This code assumes: no second job takes over between the check of the token and the rename after it. POSIX cannot do both
in one atomic step.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dataflow.clock import Clock
from dataflow.errors import DirectoryInUse, StoreError
from dataflow.store.files import FileSystem, storing

__all__ = ["FENCE", "DirectoryLock"]

LOCK: Final = "LOCK"
FENCE: Final = "FENCE"
_MAX_TOKEN: Final = 2**62


class DirectoryLock:
    """The right to write into ``guards``, held from ``acquire`` to ``release``; the lock's files are in ``directory``.

    Programs started meanwhile do not inherit the lock (``os.open`` sets O_CLOEXEC). A forked child does: it keeps the
    lock if the parent is killed, but not if the parent releases it.
    """

    def __init__(self, directory: Path, *, files: FileSystem, clock: Clock, guards: Path | None = None) -> None:
        self._directory = directory
        self._guards = directory if guards is None else guards
        self._files = files
        self._clock = clock
        self._descriptor: int | None = None
        self._token = 0

    @property
    def held(self) -> bool:
        """Whether ``acquire`` succeeded; ``check`` verifies that the lock is still ours."""
        return self._descriptor is not None

    def acquire(self, run_id: str) -> None:
        """Take the lock and raise the fencing token.

        Raises: DirectoryInUse naming the holder; StoreError if the directory cannot be written.
        """
        if self.held:
            raise DirectoryInUse(f"{self._guards} is already open in this object: close it first")
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "run": run_id,
            "since": self._clock.wall(),
        }
        with storing("lock", self._directory / LOCK):
            self._descriptor = self._flock(owner)
        try:
            self._token = self._fence().get("token", 0) + 1
            fence = self._directory / FENCE
            with storing("write", fence):
                self._files.write_new(fence, json.dumps({"token": self._token, **owner}).encode())
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """Check that the lock is still ours.

        Raises: StoreError if it was not acquired; DirectoryInUse if another job has taken over.
        """
        if not self.held:
            raise StoreError(f"{self._guards} is not open for writing: call open() first")
        fence = self._fence()
        if fence.get("token") != self._token:
            raise DirectoryInUse(
                f"{self._guards} was taken over by {_describe(fence)} (token {fence.get('token')}, ours is "
                f"{self._token}): this job may not write there any more; stop it"
            )

    @property
    def token(self) -> int:
        """The fencing token of this owner: higher than every earlier owner's; 0 before ``acquire``."""
        return self._token

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # close() alone would leave it to children forked meanwhile
            finally:
                os.close(descriptor)

    def _flock(self, owner: dict[str, Any]) -> int:
        path = self._directory / LOCK
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                if os.fstat(descriptor).st_nlink > 1:  # written to below, under every name
                    raise StoreError(f"{path}: expected a file with one name, found other hard links; remove it")
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = _parse(os.pread(descriptor, 4096, 0))
                    raise DirectoryInUse(
                        f"{self._guards} is in use by {_describe(holder)}: wait for that job, or use another directory"
                    ) from None
                if _same_file(descriptor, path):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(owner).encode(), 0)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the file was deleted before we locked it: that lock protects nothing

    def _fence(self) -> dict[str, Any]:
        path = self._directory / FENCE
        with storing("read", path):
            try:
                data = self._files.read(path)
            except FileNotFoundError:
                return {}
        fence = _parse(data)
        if not (isinstance(fence.get("token"), int) and 0 <= fence["token"] < _MAX_TOKEN):
            raise StoreError(
                f'{path}: expected {{"token": n, ...}}, found {data[:80]!r}; delete it if no job runs here'
            )
        return fence


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _parse(data: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _describe(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    since = owner.get("since")
    if isinstance(since, int | float):
        with suppress(ValueError, OverflowError, OSError):
            since = datetime.fromtimestamp(since, UTC).isoformat(" ", "seconds")
    return f"process {owner.get('pid')} on {owner.get('host')} (run {owner.get('run')!r}, since {since})"
