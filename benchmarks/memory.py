"""The resident memory of this process: now, and at its highest."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_rss", "resident"]

_STATUS = Path("/proc/self/status")


def peak_rss() -> int:
    """Return the highest resident memory so far, in bytes: on Linux of this program alone, elsewhere of the process."""
    if _STATUS.exists():
        (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        return int(kib) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Return the resident memory now, in bytes; where the system does not tell, the highest so far."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return peak_rss()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> int:
    """Let ``peak_rss`` begin again at the present memory, which is returned; elsewhere than on Linux it goes on."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")  # see proc(5): resets the peak resident set size
    return resident()
