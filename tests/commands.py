"""The command line in a process of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "barrierflow", "on_a_terminal"]

ROOT = Path(__file__).parents[1]


def barrierflow(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``barrierflow`` with ``arguments``; ``cwd`` may be anywhere."""
    command = [sys.executable, "-m", "dataflow", *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    options = {"env": os.environ | {"PYTHONPATH": path}, "cwd": ROOT, "timeout": 300} | options
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def on_a_terminal(words: list[str], variables: Mapping[str, str], *, out: bool = False) -> str:
    """Return the output of the command to a stderr, or a stdout, that is a terminal."""
    ours, theirs = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    environment = plain | {"TERM": "xterm", **variables}
    streams = {"stdout" if out else "stderr": theirs}
    subprocess.run([sys.executable, "-m", "dataflow", *words], cwd=ROOT, env=environment, check=False, **streams)
    os.close(theirs)
    with os.fdopen(ours, "rb") as terminal:
        return terminal.read1(65_536).decode()
