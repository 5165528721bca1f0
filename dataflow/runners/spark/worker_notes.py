"""What each worker is at, noted in the directory of the job, so that a death without a word can be told by name.

A function that calls ``os._exit``, a signal, or memory that ran out leave Spark with a closed socket. A note is a few
bytes in a file that a process keeps open: it costs microseconds, and is never made durable.
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

from dataflow.planning.physical_plan import Vertex, task_id
from dataflow.runners.spark.job_directory import Home

__all__ = ["at_work", "forget", "left_at_work", "until_idle"]

_WIDTH: Final = 1_000
_PAUSE: Final = 0.05
"""Seconds between two looks at the notes."""


@contextmanager
def at_work(home: Home, vertex: Vertex, subtask: int) -> Iterator[None]:
    """While inside, this process is at a subtask of ``vertex``. A disk that refuses the note stops nobody."""
    note = json.dumps([task_id(vertex.name, subtask), [node.name for node in vertex.nodes]])
    _write(home.path, note if len(note) <= _WIDTH else json.dumps([task_id(vertex.name, subtask), []]))
    yield
    _write(home.path, "")  # an error says itself where it was; the note of who died stays


def _write(home: Path, note: str) -> None:
    with suppress(OSError):
        os.pwrite(_file(home, os.getpid()), note.encode().ljust(_WIDTH), 0)


@lru_cache(maxsize=8)
def _file(home: Path, pid: int) -> int:
    folder = home / "working"
    folder.mkdir(exist_ok=True)
    return os.open(folder / f"{socket.gethostname()}-{pid}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def forget(home: Home) -> None:
    """Nobody is at work: a job begins. The files stay, for workers that live on keep them open."""
    for file in (home.path / "working").glob("*-*"):
        os.truncate(file, 0)


def until_idle(home: Home, seconds: float) -> bool:
    """Wait until no process on this machine works on a subtask. Returns: False if one still does after ``seconds``."""
    deadline = time.monotonic() + seconds
    while _busy(home):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _busy(home: Home) -> bool:
    for file in (home.path / "working").glob(f"{socket.gethostname()}-*"):
        with suppress(OSError, ValueError):
            if file.read_bytes().strip() and _lives(int(file.name.rpartition("-")[2])):
                return True
    return False


def left_at_work(home: Home) -> list[tuple[str, list[str]]]:
    """The subtasks, with their operators, at which processes died: on this machine those that are no more, elsewhere
    all that have not said that they are through."""
    found = []
    for file in sorted((home.path / "working").glob("*-*")):
        host, _, pid = file.name.rpartition("-")
        with suppress(OSError, ValueError):
            note = file.read_bytes().strip()
            if note and not (host == socket.gethostname() and _lives(int(pid))):
                task, operators = json.loads(note)
                found.append((task, operators))
    return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
