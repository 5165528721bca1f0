"""The side of the running job: takes requests for savepoints, from processes of its own user only.

A thread waits for connections, and each connection has a short-lived thread of its own, because a savepoint may take
long, and a second command may stop the job meanwhile. All are daemon threads: none keeps a process alive. A job that
cannot have a socket runs without one, and its LOCK says why.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dataflow.clock import Clock
from dataflow.errors import DataflowError, DirectoryInUse
from dataflow.runners.control_socket.messages import (
    Accepted,
    BadMessage,
    Connection,
    SavepointFailed,
    SavepointRequest,
    SavepointTaken,
)
from dataflow.runners.control_socket.private_socket import PeerOf, listen, peer_of, remove

if TYPE_CHECKING:
    from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
    from dataflow.store.directory import DirectoryStore

__all__ = ["ControlServer", "Savepoints"]

log = logging.getLogger("dataflow.local")

_MOST: Final = 32
"""Connections at a time; more are closed at once."""
_REQUEST: Final = 5_000_000
"""Microseconds in which a request must come."""
_ANSWER: Final = 5_000_000
"""Microseconds in which an answer must be taken."""
_FAREWELL: Final = 2.0
"""Seconds that a job which has ended waits until the outcomes of its last savepoints are sent."""
_PAUSE: Final = 1.0
"""Seconds before the next try if no connection can be accepted, because the process has no more descriptors."""


class Savepoints(Protocol):
    """The savepoints of a running job. The calls wait, and any thread may make them."""

    def take(self, path: str, timeout: int | None) -> Checkpoint:
        """Take a savepoint within ``timeout`` microseconds. Raises: what `LocalJob.savepoint` raises."""
        ...

    def stop(self, path: str, timeout: int | None, *, drain: bool) -> Checkpoint:
        """Take a savepoint with which the job stops. Raises: what `LocalJob.stop` raises; then the job continues."""
        ...

    def wait_until_over(self) -> None:
        """Return when the job has ended and its directory is unlocked."""
        ...


class ControlServer:
    """Listens for a job that has ``store`` open. It serves requests from ``start`` until ``close``.

    Args:
        store: the open store, whose LOCK names the socket.
        clock: the clock for deadlines.
        peer: returns who is at the other end of a connection.
    """

    def __init__(self, store: DirectoryStore, clock: Clock, peer: PeerOf = peer_of) -> None:
        self._store = store
        self._directory = Path(store.location).absolute()
        self._clock = clock
        self._peer = peer
        self._process = os.getpid()
        #: Guards all below, and is notified when an outcome was sent.
        self._changed = threading.Condition()
        self._closed = False
        self._connections: set[socket.socket] = set()
        self._without_request: set[socket.socket] = set()  # connections from which no request has come
        self._owed = 0  # outcomes of accepted requests that are not sent yet
        self._waiter: threading.Thread | None = None
        self._folder: str | None = None
        self._listener: socket.socket | None = None
        try:
            self._folder, self._listener = listen()
            store.announce(socket=self._folder)
            atexit.register(self._remove)
        except (OSError, DataflowError) as error:
            self._do_without(error)

    def start(self, savepoints: Savepoints) -> None:
        """Begin to take requests, unless the job is over already."""
        with self._changed:
            if self._closed or self._listener is None:
                return
            waiter = threading.Thread(
                target=self._accept, args=(self._listener, savepoints), name="dataflow-requests", daemon=True
            )
            try:
                waiter.start()
            except RuntimeError as error:  # the system has no more threads
                self._do_without(error)
            else:
                self._waiter = waiter

    def _do_without(self, error: Exception) -> None:
        """Continue without a socket, because the job does not depend on it."""
        self._remove()
        log.info("the job in %s takes no requests: %s", self._directory, error)
        with suppress(DataflowError):
            self._store.announce(no_socket=str(error))

    def close(self) -> None:
        """Take no more requests, and remove the socket. Wait shortly until the outcomes of the last ones are sent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            self._remove()
            for connected in self._without_request:
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)  # wakes its thread
            self._changed.wait_for(lambda: not self._owed, _FAREWELL)
        if self._waiter is not None:
            self._waiter.join(_FAREWELL)

    def _remove(self) -> None:
        """Stop to listen, and remove the socket; a forked child leaves it to its parent."""
        if os.getpid() != self._process:
            return
        atexit.unregister(self._remove)
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), which close() does not
            self._listener.close()
        if self._folder is not None:
            remove(self._folder)

    # --- the thread that waits for connections

    def _accept(self, listener: socket.socket, savepoints: Savepoints) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError as error:
                with self._changed:
                    if self._closed or self._changed.wait_for(lambda: self._closed, _PAUSE):
                        return
                log.debug("no connection could be accepted: %s", error)
                continue
            serve = threading.Thread(
                target=self._serve, args=(connected, savepoints), name="dataflow-request", daemon=True
            )
            with self._changed:
                welcome = not self._closed and len(self._connections) < _MOST
                if welcome:
                    self._connections.add(connected)
                    self._without_request.add(connected)
            try:
                if welcome:
                    serve.start()
                    continue
            except RuntimeError:  # the system has no more threads
                self._forget(connected)
            connected.close()

    # --- a thread for each connection

    def _serve(self, connected: socket.socket, savepoints: Savepoints) -> None:
        connection = Connection(connected, self._clock)
        try:
            uid = self._peer(connected).uid
            if uid != os.geteuid():
                self._refuse(connection, f"expected a process of user {os.geteuid()}, found one of user {uid}")
                return
            try:
                request: SavepointRequest = connection.receive(SavepointRequest, within=_REQUEST)
            except BadMessage as error:
                self._refuse(connection, f"expected a request for a savepoint: {error}")
                return
            with self._changed:
                self._without_request.discard(connected)
                self._owed += 1
            self._take(connection, request, savepoints)
        except (OSError, EOFError) as error:
            log.debug("a process that asked for a savepoint has gone: %s", error)
        finally:
            self._forget(connected)
            connection.close()

    def _forget(self, connected: socket.socket) -> None:
        with self._changed:
            self._connections.discard(connected)
            self._without_request.discard(connected)

    def _refuse(self, connection: Connection, message: str) -> None:
        connection.send(SavepointFailed(message), within=_ANSWER)
        connection.wait_for_end(within=_ANSWER)  # closing before all was read would also drop what was sent

    def _take(self, connection: Connection, request: SavepointRequest, savepoints: Savepoints) -> None:
        """Carry out a request. Its outcome does not depend on whether the process that asked still waits."""
        try:
            connection.send(Accepted(), within=_ANSWER)
            outcome = self._outcome(request, savepoints)
            with suppress(OSError):
                connection.send(outcome, within=_ANSWER)
        finally:
            with self._changed:
                self._owed -= 1
                self._changed.notify_all()
        if isinstance(outcome, SavepointTaken) and outcome.stopped:
            savepoints.wait_until_over()  # closing tells the process that the directory is unlocked

    def _outcome(self, request: SavepointRequest, savepoints: Savepoints) -> SavepointTaken | SavepointFailed:
        try:
            self._check_directory(request)
            if request.stop:
                taken = savepoints.stop(request.path, request.timeout, drain=request.drain)
            else:
                taken = savepoints.take(request.path, request.timeout)
        except Exception as error:
            return SavepointFailed.of(error)
        return SavepointTaken(
            checkpoint=taken.id,
            job=taken.job_id,
            pipeline=taken.pipeline,
            path=request.path,
            bytes=sum(part.size for part in taken.objects),
            mode=taken.mode.value,
            guarantee=taken.guarantee.value,
            stopped=request.stop,
        )

    def _check_directory(self, request: SavepointRequest) -> None:
        """Check that the request is for this job. Raises: DirectoryInUse."""
        own = os.stat(self._directory)
        if (own.st_dev, own.st_ino) != (request.device, request.inode):
            raise DirectoryInUse(
                f"the LOCK of that directory is a copy: the job of process {self._process} runs in {self._directory}; "
                "name this directory"
            )
