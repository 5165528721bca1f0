"""What a tree of processes uses: CPU seconds so far, and the most memory at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Peak", "cpu_seconds", "watched"]

_EVERY = 0.5
"""Seconds between two looks at memory."""


def _tree() -> Iterator[int]:
    found = [os.getpid()]
    for pid in found:
        yield pid
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue


def cpu_seconds() -> float:
    """CPU seconds of this process and everything below it, children that ended included."""
    total = 0
    for pid in _tree():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


class Peak:
    """The most bytes that the whole tree had in memory at a time, pages that processes share counted once."""

    def __init__(self) -> None:
        self.size = 0

    def look(self) -> None:
        """Count what there is now."""
        self.size = max(self.size, sum(map(_resident, _tree())))


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


@contextmanager
def watched() -> Iterator[Peak]:
    """The peak while inside."""
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            peak.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()
        peak.look()
