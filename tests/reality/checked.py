"""Run a script with each of its jobs checked for liveness: python checked.py SCRIPT ARGUMENT ..."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tests.liveness import check_every_job

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    check_every_job()
    runpy.run_path(sys.argv[0], run_name="__main__")
