"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "barrierflow"]

ROOT = Path(__file__).parents[1]


def barrierflow(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``barrierflow`` with ``arguments``; ``cwd`` may be anywhere."""
    command = [sys.executable, "-m", "dataflow", *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    options = {"env": os.environ | {"PYTHONPATH": path}, "cwd": ROOT, "timeout": 300} | options
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
