"""The side that asks: finds the job that runs in a checkpoint directory, and asks it for a savepoint."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dataflow.clock import Clock, duration_text
from dataflow.errors import CheckpointError, JobUnreachable, NoCheckpoint
from dataflow.runners.control_socket.messages import (
    Accepted,
    Answer,
    BadMessage,
    Connection,
    SavepointFailed,
    SavepointRequest,
    SavepointTaken,
)
from dataflow.runners.control_socket.private_socket import PeerOf, connect, peer_of
from dataflow.store.directory import STREAM_ON_SPARK
from dataflow.store.lock import LockHolder, read_holder

__all__ = ["request_savepoint"]

_GREETING: Final = 15_000_000
"""Microseconds in which a job takes a request: it only reads it."""
_MORE: Final = 15_000_000
"""Microseconds that the outcome may come after the timeout of the savepoint, which the job applies itself."""
_ENDING: Final = 60_000_000
"""Microseconds in which a job that stopped with a savepoint unlocks its directory."""


def request_savepoint(
    directory: Path,
    path: Path,
    clock: Clock,
    *,
    stop: bool = False,
    drain: bool = False,
    timeout: int | None = None,
    tick: Callable[[], None] = lambda: None,
    peer: PeerOf = peer_of,
) -> SavepointTaken:
    """Ask the job that runs in ``directory`` for a savepoint, and return when it is complete.

    If this process is interrupted, the job continues with the savepoint.

    Args:
        directory: the checkpoint directory of the job.
        path: where to write the savepoint; relative to the current directory of this process.
        clock: the clock for deadlines.
        stop: also stop the job, and wait until its directory is unlocked.
        drain: before that, end the sources, and let windows and timers fire.
        timeout: microseconds after which the savepoint is given up; None: never.
        tick: called about twice a second.
        peer: returns who is at the other end of a connection.

    Raises: JobUnreachable if no job runs there that this process may ask; NoCheckpoint if there is no such directory;
        CheckpointError if the job refused, or the savepoint failed.
    """
    if not directory.is_dir():
        obstacle = "a file" if directory.exists() else "nothing"
        raise NoCheckpoint(
            f"expected a checkpoint directory at {directory}, found {obstacle}; give the directory that the job has as "
            "Checkpointing(location)"
        )
    holder = _holder(directory)
    assert holder.socket is not None, "checked by _holder"
    where = os.stat(directory)
    request = SavepointRequest(where.st_dev, where.st_ino, os.path.abspath(path), stop, drain, timeout)
    job = f"process {holder.pid} (run {holder.run!r}), which has {directory}"
    try:
        connected = connect(holder.socket)
    except JobUnreachable as error:
        raise JobUnreachable(f"{job}, cannot be asked: {error}") from error
    connection = Connection(connected, clock)
    try:
        _check_peer(connected, holder, job, peer)
        taken = _ask(connection, request, job, tick)
        if stop and not connection.wait_for_end(within=_ENDING):
            raise JobUnreachable(
                f"savepoint {taken.checkpoint} is complete in {taken.path}, but {job}, has not unlocked it in "
                f"{duration_text(_ENDING)}: look at its log"
            )
        return taken
    finally:
        connection.close()


def _holder(directory: Path) -> LockHolder:
    """Return the holder of the directory, which has a socket on this host. Raises: JobUnreachable; StoreError."""
    if (directory / STREAM_ON_SPARK).exists():
        raise JobUnreachable(
            f"{directory} is the directory of a stream on Spark, which takes no savepoints: stop the job, and continue "
            'it in its directory with restore="auto"'
        )
    holder = read_holder(directory)
    if holder is None:
        raise JobUnreachable(
            f"no job runs in {directory}: start it, or give the directory that it has as Checkpointing(location)"
        )
    host = socket.gethostname()
    if holder.host != host:
        raise JobUnreachable(
            f"the job in {directory} runs on host {holder.host!r} (process {holder.pid}, run {holder.run!r}), and this "
            f"is {host!r}: run the command there"
        )
    if not _is_alive(holder.pid):
        raise JobUnreachable(
            f"no job runs in {directory} any more: process {holder.pid} (run {holder.run!r}) has ended without "
            "unlocking it, as after SIGKILL; start the job again"
        )
    if holder.socket is None:
        why = holder.no_socket or (
            "it is still starting, or it is no job on threads: commands that delete checkpoints, and batches on Spark, "
            "take no savepoints"
        )
        raise JobUnreachable(f"process {holder.pid} (run {holder.run!r}), which has {directory}, has no socket: {why}")
    return holder


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # of another user; the check of the socket says so
    return True


def _check_peer(connected: socket.socket, holder: LockHolder, job: str, peer: PeerOf) -> None:
    """Check that the process of the LOCK listens, and that it is of this user. Raises: JobUnreachable."""
    found = peer(connected)
    if found.uid != os.geteuid():
        raise JobUnreachable(
            f"{job}, is of user {found.uid}, and this is user {os.geteuid()}: run the command as the user of the job"
        )
    if found.pid != holder.pid:
        raise JobUnreachable(
            f"{job}, cannot be asked: process {found.pid} listens in its place; run the command in the container of "
            "the job if it has one, else do not trust the LOCK"
        )


def _ask(connection: Connection, request: SavepointRequest, job: str, tick: Callable[[], None]) -> SavepointTaken:
    """Send the request and return the outcome. Raises: JobUnreachable; CheckpointError."""
    within = None if request.timeout is None else request.timeout + _MORE
    try:
        connection.send(request, within=_GREETING)
        answer = connection.receive(Answer, within=_GREETING, tick=tick)
        if isinstance(answer, Accepted):
            answer = connection.receive(Answer, within=within, tick=tick)
    except (EOFError, OSError) as error:
        raise JobUnreachable(
            f"{job}, ended before it said what became of the savepoint ({error or 'it closed the connection'}): there "
            f"is one if {request.path} has a manifest.json"
        ) from error
    except BadMessage as error:
        raise JobUnreachable(
            f"{job}, gave no answer that this version understands ({error}): look at its log, and for a manifest.json "
            f"in {request.path}"
        ) from error
    match answer:
        case SavepointTaken():
            return answer
        case SavepointFailed():
            failure = CheckpointError(answer.message)
            for note in answer.notes:
                failure.add_note(note)
            raise failure
        case _:
            raise JobUnreachable(f"{job}, answered twice that it takes the savepoint: look at its log")
