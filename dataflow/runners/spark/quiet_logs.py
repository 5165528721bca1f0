"""A filter of stderr that drops Spark's and py4j's noise.

A session that we start prints the output of users' functions in its workers, and nothing else; Spark reports problems
as exceptions. Its JVM and its workers write directly to the stderr of this process. So known noise is removed from the
stream itself: log levels take effect too late for some of it, and do not apply to the rest.
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

__all__ = ["MicroBatchRejected", "drop_noise", "is_spark_handler", "suppress_noise"]

_STDERR: Final = 2
_ONE: Final = threading.Lock()
"""Guards descriptor 2: if two threads replaced it at a time, the second would restore the pipe of the first."""
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


class MicroBatchRejected(RuntimeError):
    """Raised to make Spark abort a micro-batch; the driver has the reason."""


def is_spark_handler(handler: object) -> bool:
    """Return whether PySpark installed this signal handler, which calls the JVM from wherever it interrupts."""
    return str(getattr(handler, "__module__", "")).startswith("pyspark")


@contextmanager
def suppress_noise() -> Iterator[None]:
    """Drop the noise that processes started inside, and their children, write to our stderr as long as they live.

    The output of this process itself is filtered in the same way while inside.
    """
    logging.getLogger("py4j.clientserver").addFilter(_FILTER)
    with _ONE:
        try:
            terminal = os.dup(_STDERR)
        except OSError:  # closed: there is nothing to filter
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
        for line in drop_noise(source):
            try:
                target.write(line)
            except OSError:  # the terminal is gone; keep reading, so that no writer blocks
                continue


def drop_noise(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines that are no noise; an empty line directly after noise is noise.

    >>> list(drop_noise(iter([b"Setting default log level to WARN\\n", b"\\n", b"mine\\n", b"\\n"])))
    [b'mine\\n', b'\\n']
    """
    dropped = False
    for line in _drop_orphans(lines):
        dropped = _NOISE.match(line) is not None or (dropped and not line.strip())
        if not dropped:
            yield line


def _drop_orphans(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Drop the tracebacks of workers whose query has stopped since Spark started them.

    >>> orphan = [_TRACEBACK, b'  File ".../transform_with_state_driver_worker.py"\\n', b"X: [CANNOT_OPEN_SOCKET]\\n"]
    >>> list(_drop_orphans(iter([*orphan, b"mine\\n", _TRACEBACK, b"  File mine\\n", b"ValueError\\n"])))[0::3]
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
    """Drops py4j's log records of ``MicroBatchRejected``: py4j logs every exception of a function it calls."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], MicroBatchRejected))


_FILTER: Final = _Filter()
