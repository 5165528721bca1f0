"""Processes that compile loops beside this one: how one is started, and what it does.

A child is not a copy of this process. It starts an interpreter that has the same search path, and imports nothing of
the user's program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import IO

__all__ = ["compile_as_told", "start_python"]


def start_python(program: str, *, stdin: IO[str] | int, stdout: int) -> subprocess.Popen[str] | None:
    """Start an interpreter that runs ``program``; return None if that is impossible here.

    An interrupt of this process does not reach the new one, and what that says on standard error is dropped.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return None  # an application in one file, or an interpreter inside of another program
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
    except OSError:
        return None


def compile_as_told(temporary: str) -> None:
    """Write a line, import the modules named on standard input, and answer each with a line; the program of a child.

    The end of the input ends the process at once, even while it compiles: its parent is done, or dead. A module that
    cannot be imported is answered as well, because the parent imports it, too, and handles the error.

    Args:
        temporary: the folder that the parent writes, in case it is a temporary one.
    """
    from dataflow.kernel_cache.folders import use_temporary

    use_temporary(Path(temporary))
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever an import prints is no answer
    names: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(names,), daemon=True).start()
    name = "numba"
    while True:
        with suppress(Exception):
            import_module(name)
        print(name, file=answers, flush=True)
        name = names.get()


def _read(names: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        names.put(line.strip())
    os._exit(0)
