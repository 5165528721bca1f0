"""Lines on standard error that say how many loops are compiled.

There is no estimate of the time: it depends on the processor and on what else the machine does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dataflow.kernel_cache.two_processes import Missing

__all__ = ["CompileProgress"]

_EVERY: Final = 5.0
"""Seconds between two lines: on a quiet machine most jobs need no more than the first one."""
_NUMBERS: Final = {1: "one process", 2: "two processes"}


class CompileProgress:
    """Counts the loops that are compiled, and writes a line at the beginning, and then every 5 s if a module is done.

    Args:
        prefix: begins each line.
        advice: ends the first line.
        least: the number of missing loops from which on lines are written.
        now: returns the time in seconds.

    >>> times = iter([0, 6])
    >>> progress = CompileProgress("example: ", now=lambda: next(times))
    >>> sys.stderr = sys.stdout  # for this example
    >>> progress.begin(Missing({"a": 40, "b": 17}), 2)
    example: compiling 57 loops in two processes
    >>> progress.compiled("a")
    example: compiled 40 of 57 loops in 6 s
    """

    def __init__(
        self, prefix: str = "", advice: str = "", least: int = 0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._prefix, self._advice, self._least = prefix, advice, least
        self._now = now
        self._lock = threading.Lock()  # guards what follows: two threads say which module is compiled
        self._missing: Missing | None = None
        self._began = self._said = 0.0
        self.done = 0
        """The number of loops that are compiled."""

    def begin(self, missing: Missing, processes: int) -> None:
        """Say what is compiled, and remember it."""
        with self._lock:
            self._missing = missing
            self._began = self._said = self._now()
        self._say(f"compiling {missing.loops} loops in {_NUMBERS[processes]}{self._advice}")

    def compiled(self, module: str) -> None:
        """Count the loops of a module, and say so if the last line is some time ago."""
        with self._lock:
            assert self._missing is not None, f"{module} is compiled before the beginning"
            self.done += self._missing.by_module[module]
            now = self._now()
            if now - self._said < _EVERY or self.done == self._missing.loops:
                return
            self._said = now
            line = f"compiled {self.done} of {self._missing.loops} loops in {now - self._began:.0f} s"
        self._say(line)

    def __str__(self) -> str:
        """Return the number of compiled loops, for a line that shows more."""
        return "" if self._missing is None else f"{self.done} of {self._missing.loops} loops"

    def _say(self, line: str) -> None:
        if self._missing is None or self._missing.loops < self._least or sys.stderr is None:
            return
        with suppress(OSError, ValueError):  # nothing reads the stream, or it is closed
            print(f"{self._prefix}{line}", file=sys.stderr, flush=True)
