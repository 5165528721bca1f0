"""The lock of a directory: it ends with its process, and a fencing token stops a holder that lost it unnoticed.

The lock is ``flock`` on ``LOCK``: the kernel releases it when the process is killed, so it is never stale. A holder may
lose the lock without noticing (the file was deleted, or a network file system lost it). The *fencing token* covers
that: each owner durably raises the number in ``FENCE``, and before each commit it stops unless its own number is still
there (M. Kleppmann, "How to do distributed locking", 2016).

``LOCK`` names the holder, and the socket through which other processes reach it (``LockHolder``); it is empty if nobody
holds the lock, unless its last holder was killed.

This code assumes: no second job takes over between the check of the token and the rename after it. POSIX cannot do both
in one atomic step.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from dataflow.clock import Clock
from dataflow.errors import CheckpointDamaged, DirectoryInUse, StoreError
from dataflow.store.files import FileSystem, storing
from dataflow.untrusted import parsed

__all__ = ["FENCE", "DirectoryLock", "LockHolder", "read_holder"]

LOCK: Final = "LOCK"
FENCE: Final = "FENCE"
_MAX_TOKEN: Final = 2**62
_MAX_BYTES: Final = 65_536
"""Bytes of a lock file that are read: it holds a path, which may have 4,096 bytes, six times as many in JSON."""
_READS: Final = 10
"""Reads of a lock file, because one may find it half written."""


class LockHolder(msgspec.Struct, frozen=True):
    """The holder of a lock by its lock file, which anyone who may write to the directory can forge.

    Attributes:
        pid: its process.
        host: the host of the process.
        run: the run that it locks the directory for.
        socket: the directory of the socket through which it takes requests; None: it has none.
        no_socket: why it has no socket; None also if it does not say so, as long as it starts.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    host: str
    run: str = ""
    socket: str | None = None
    no_socket: str | None = None


def read_holder(directory: Path) -> LockHolder | None:
    """Return the holder of the lock of ``directory``; None: nobody holds it. A holder that was killed is still named.

    Nothing is locked, so a job that starts meanwhile is not disturbed.

    Raises: StoreError if the lock file cannot be read, or is none.
    """
    path = directory / LOCK
    for reads_left in reversed(range(_READS)):
        with storing("read", path):
            try:
                data = _read_file(path)
            except FileNotFoundError:
                return None
        if not data:
            return None
        try:
            holder: LockHolder = parsed(LockHolder, _parse(data), str(path))
        except CheckpointDamaged as error:
            if not reads_left:
                raise StoreError(f"{error}: expected the lock file of a job, found {data[:80]!r}") from error
        else:
            return holder
    raise AssertionError("the last read returns or raises")


def _read_file(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{path}: expected a file, found something else; remove it")
        return os.pread(descriptor, _MAX_BYTES, 0)
    finally:
        os.close(descriptor)


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
        self._owner: dict[str, Any] = {}  # as written to LOCK, while the lock is held
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

    def announce(self, **entries: str) -> None:
        """Write ``entries`` of `LockHolder` into the lock file, beside the owner.

        Raises: StoreError if the lock is not held, or the file cannot be written.
        """
        if self._descriptor is None:
            raise StoreError(f"{self._guards} is not open for writing: call open() first")
        with storing("write", self._directory / LOCK):
            self._write_owner(self._descriptor, self._owner | entries)

    def release(self) -> None:
        """Release the lock, if it is held, and empty the lock file."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                with suppress(OSError):  # a full disk, for example: readers see that nobody listens any more
                    if _parse(os.pread(descriptor, _MAX_BYTES, 0)) == self._owner:  # else a job took over unnoticed
                        os.ftruncate(descriptor, 0)
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
                    holder = _parse(os.pread(descriptor, _MAX_BYTES, 0))
                    raise DirectoryInUse(
                        f"{self._guards} is in use by {_describe(holder)}: wait for that job, or use another directory"
                    ) from None
                if _same_file(descriptor, path):
                    self._write_owner(descriptor, owner)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the file was deleted before we locked it: that lock protects nothing

    def _write_owner(self, descriptor: int, owner: dict[str, Any]) -> None:
        data = json.dumps(owner).encode()
        if os.pwrite(descriptor, data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(descriptor, len(data))
        self._owner = owner

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
