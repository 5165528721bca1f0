"""A Unix socket in a private directory, and the checks of who is at the other end.

The path of a socket may have about 100 bytes, so it is opened through the descriptor of its directory
(``/proc/self/fd``), however long the path of that is. The checked directory is then also the one that is used, whatever
its name means by then.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from dataflow.errors import JobUnreachable

__all__ = ["Peer", "PeerOf", "connect", "listen", "peer_of", "remove"]

_NAME: Final = "job"
_WAITING: Final = 128
"""Connections that may wait to be accepted. With more, connect() fails."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, as the kernel knows it."""

    pid: int
    uid: int


PeerOf = Callable[[socket.socket], Peer]


def peer_of(connected: socket.socket) -> Peer:
    """Return the process at the other end: the one that connected, or the one that listens."""
    pid, uid, _ = struct.unpack(
        "3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return Peer(pid, uid)


def listen() -> tuple[str, socket.socket]:
    """Make a private directory with a socket that listens; return both.

    Raises: OSError if there is no directory for it, or the system has no such sockets.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError("this system does not say who is at the other end of a socket")
    directory = tempfile.mkdtemp(prefix="barrierflow-job-")
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _opened(directory) as folder:
                listener.bind(_through(folder))
                os.chmod(_NAME, 0o600, dir_fd=folder)
            listener.listen(_WAITING)
        except BaseException:
            listener.close()
            raise
    except BaseException:
        remove(directory)
        raise
    return directory, listener


def remove(directory: str) -> None:
    """Remove the directory of a socket, if it is there."""
    with suppress(OSError):
        os.unlink(os.path.join(directory, _NAME))
    with suppress(OSError):
        os.rmdir(directory)


def connect(directory: str) -> socket.socket:
    """Connect to the socket in ``directory``, which must be private to this user.

    Raises: JobUnreachable if there is none, no process listens, or it is not private.
    """
    if not os.path.isabs(directory):
        raise JobUnreachable(f"expected the path of a directory with a socket, found {directory!r}")
    try:
        with _opened(directory) as folder:
            _check_private(folder, directory)
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connected.settimeout(_CONNECT)
                connected.connect(_through(folder))
            except BaseException:
                connected.close()
                raise
            return connected
    except FileNotFoundError:
        raise JobUnreachable(
            f"its socket is not in {directory}, where this process would see it: the job has just ended, or its "
            "temporary directory is private (a container, or PrivateTmp= of systemd); run the command there"
        ) from None
    except ConnectionRefusedError:
        raise JobUnreachable(f"nobody listens to its socket in {directory} any more") from None
    except BlockingIOError:
        raise JobUnreachable(
            f"{_WAITING} processes wait at its socket in {directory}: it may be stopped (SIGSTOP); try again later"
        ) from None
    except (OSError, ValueError) as error:
        raise JobUnreachable(f"its socket in {directory} cannot be used: {error}") from error


_CONNECT: Final = 10.0
"""Seconds that a connection may take; the kernel makes it without the job."""


def _check_private(folder: int, directory: str) -> None:
    """Check that only this user may have made the socket. Raises: JobUnreachable; OSError."""
    found, own = os.fstat(folder), os.geteuid()
    if found.st_uid != own:
        raise JobUnreachable(
            f"its socket is in {directory}, which is of user {found.st_uid}, and this is user {own}: run the command "
            "as the user of the job"
        )
    if found.st_mode & 0o077:
        raise JobUnreachable(
            f"its socket is in {directory}, which other users may enter (mode {stat.S_IMODE(found.st_mode):04o}, "
            "expected 0700): no job made it; do not trust the LOCK that names it"
        )
    entry = os.stat(_NAME, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISSOCK(entry.st_mode) or entry.st_uid != own:
        raise JobUnreachable(f"expected a socket of this user at {directory}/{_NAME}, found something else")


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _through(folder: int) -> str:
    return f"/proc/self/fd/{folder}/{_NAME}"
