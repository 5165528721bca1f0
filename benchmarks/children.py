"""Measurements in processes of their own: JSON in, JSON out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["run_child"]

ROOT = Path(__file__).parents[1]


def run_child(module: str, task: DataclassInstance) -> dict[str, Any]:
    """Run ``module`` as a program with ``task`` as JSON on its standard input, and return its last line as JSON.

    Raises: RuntimeError with the standard error of the child, if it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(asdict(task)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed with exit code {done.returncode} on {task}:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
