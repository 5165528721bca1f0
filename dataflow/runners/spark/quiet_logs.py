"""What Spark and py4j print that says nothing to a user, and how it is kept off the terminal.

A session that we start prints what users' functions print in its workers, and nothing else: Spark says what it has to
say as an exception. Its JVM and its workers write straight to the standard error of this process, so what is known to
be noise is taken out of the stream itself; log levels come too late for some of it, and do not reach the rest.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["Told", "hushed", "is_sparks", "without_noise"]

_STDERR: Final = 2
_ONE: Final = threading.Lock()
"""Guards descriptor 2: of two that replace it at a time, the second would put the first one's pipe back for good."""
_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|Using Spark's default log4j profile"
    rb"|Setting (default|Spark) log level to "
    rb"|To adjust logging level use "
    rb"|\S+ \S+ WARN (NativeCodeLoader|Utils): "
    rb"|(Starting )?Streaming TransformWithStateInPandas Python worker"
)

_TRACEBACK: Final = b"Traceback (most recent call last):\n"
_ORPHAN: Final = b"transform_with_state_driver_worker.py"


class Told(RuntimeError):
    """Raised to make Spark give a micro-batch up, where somebody else has the reason."""


def is_sparks(handler: object) -> bool:
    """Whether a handler of signals is one that PySpark installed: it calls the JVM from wherever it strikes."""
    return str(getattr(handler, "__module__", "")).startswith("pyspark")


@contextmanager
def hushed() -> Iterator[None]:
    """Processes that are started inside, and theirs, write to our standard error as long as they live, less the noise.

    What this process itself writes meanwhile goes the same way.
    """
    logging.getLogger("py4j.clientserver").addFilter(_FILTER)
    with _ONE:
        try:
            terminal = os.dup(_STDERR)
        except OSError:  # closed: there is nobody to spare
            yield
            return
        reading, writing = os.pipe()
        threading.Thread(target=_pump, args=(reading, os.dup(terminal)), name="spark-stderr", daemon=True).start()
        _flush()
        os.dup2(writing, _STDERR)
        os.close(writing)
        try:
            yield
        finally:
            _flush()
            os.dup2(terminal, _STDERR)
            os.close(terminal)


def _flush() -> None:
    with suppress(AttributeError, ValueError):  # none, or closed; others may write to descriptor 2 all the same
        sys.stderr.flush()


def _pump(reading: int, terminal: int) -> None:
    with open(reading, "rb") as source, open(terminal, "wb", buffering=0) as target:
        for line in without_noise(source):
            try:
                target.write(line)
            except OSError:  # the terminal is gone; who writes must not wait for it
                continue


def without_noise(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines worth showing; an empty one right behind noise is part of it.

    >>> list(without_noise(iter([b"Setting default log level to WARN\\n", b"\\n", b"mine\\n", b"\\n"])))
    [b'mine\\n', b'\\n']
    """
    dropped = False
    for line in _without_orphans(lines):
        dropped = _NOISE.match(line) is not None or (dropped and not line.strip())
        if not dropped:
            yield line


def _without_orphans(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Drop the tracebacks of workers that Spark started for a query which has stopped since.

    >>> orphan = [_TRACEBACK, b'  File ".../transform_with_state_driver_worker.py"\\n', b"X: [CANNOT_OPEN_SOCKET]\\n"]
    >>> list(_without_orphans(iter([*orphan, b"mine\\n", _TRACEBACK, b"  File mine\\n", b"ValueError\\n"])))[0::3]
    [b'mine\\n', b'ValueError\\n']
    """
    held: list[bytes] = []
    for line in lines:
        if held and not line.startswith(b" "):
            orphan = b"CANNOT_OPEN_SOCKET" in line and any([_ORPHAN in each for each in held])
            if not orphan:
                yield from held
            held = []
            if orphan:
                continue
        if held or line == _TRACEBACK:
            held.append(line)
        else:
            yield line
    yield from held


class _Filter(logging.Filter):
    """py4j prints with its stack whatever a function raises that it called."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], Told))


_FILTER: Final = _Filter()
