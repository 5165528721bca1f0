"""The conditions of a measurement, which every report has: machine, versions, commit and load."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dataflow

__all__ = ["conditions"]

ROOT = Path(__file__).parents[1]


def conditions(packages: Iterable[str]) -> dict[str, Any]:
    """Return the machine, the versions of ``packages``, of Python and of this library, the commit, and the load.

    >>> sorted(conditions(["numpy"]))
    ['commit', 'load', 'machine', 'versions']
    """
    return {
        "machine": _machine(),
        "versions": {
            "barrierflow": dataflow.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "commit": _commit(),
        "load": os.getloadavg()[0],
    }


def _machine() -> dict[str, Any]:
    """Return the cores, processor, memory in bytes and system of this machine."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return {
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.processor(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def _commit() -> str | None:
    """The checkout's commit, with a plus where files differ from it; None outside of a checkout."""
    head = _git("rev-parse", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
