"""Notes in the job's directory of the subtask that each worker is running, to name it if the worker dies silently.

If a function calls ``os._exit``, on a signal, or out of memory, Spark only sees a closed socket. A note is a few bytes
in a file that the process keeps open: writing it takes microseconds, and it is never synced to disk.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import Vertex
from dataflow.runners.spark.job_directory import JobDirectory

__all__ = ["clear_notes", "unfinished_work", "wait_until_idle", "working_on"]

_WIDTH: Final = 1_000
_PAUSE: Final = 0.05
"""Seconds between two reads of the notes."""


@contextmanager
def working_on(directory: JobDirectory, vertex: Vertex, subtask: int) -> Iterator[None]:
    """Note that this process runs a subtask of ``vertex`` while inside. Errors of the disk are ignored."""
    note = json.dumps([task_id(vertex.name, subtask), [node.name for node in vertex.nodes]])
    _write(directory.path, note if len(note) <= _WIDTH else json.dumps([task_id(vertex.name, subtask), []]))
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise  # the process may end, and the note names what it was doing
    except BaseException:  # the error names the subtask itself; a worker that continues is idle
        _write(directory.path, "")
        raise
    _write(directory.path, "")


def _write(directory: Path, note: str) -> None:
    with suppress(OSError):
        os.pwrite(_file(directory, os.getpid()), note.encode().ljust(_WIDTH), 0)


@lru_cache(maxsize=8)
def _file(directory: Path, pid: int) -> int:
    folder = directory / "working"
    folder.mkdir(exist_ok=True)
    return os.open(folder / f"{socket.gethostname()}-{pid}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def clear_notes(directory: JobDirectory) -> None:
    """Clear all notes when a job starts. The files stay, because running workers keep them open."""
    for file in (directory.path / "working").glob("*-*"):
        os.truncate(file, 0)


def wait_until_idle(directory: JobDirectory, seconds: float) -> bool:
    """Wait until no process on this machine runs a subtask. Return False if one still does after ``seconds``."""
    deadline = time.monotonic() + seconds
    while _busy(directory):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _busy(directory: JobDirectory) -> bool:
    """Return whether a living process on this machine has a note."""
    for file in (directory.path / "working").glob(f"{socket.gethostname()}-*"):
        with suppress(OSError, ValueError):
            if file.read_bytes().strip() and _is_running(int(file.name.rpartition("-")[2])):
                return True
    return False


def unfinished_work(directory: JobDirectory) -> list[tuple[str, list[str]]]:
    """Return the subtasks, with their operators, that processes did not finish.

    Of processes on this machine those that are dead; of processes elsewhere all that have not cleared their note.
    """
    unfinished = []
    for file in sorted((directory.path / "working").glob("*-*")):
        host, _, pid = file.name.rpartition("-")
        with suppress(OSError, ValueError):
            note = file.read_bytes().strip()
            if note and not (host == socket.gethostname() and _is_running(int(pid))):
                task, operators = json.loads(note)
                unfinished.append((task, operators))
    return unfinished


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
