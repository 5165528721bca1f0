"""Measurements in processes of their own: JSON in, JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["ROOT", "run_child", "run_program"]

ROOT = Path(__file__).parents[1]


def run_child(module: str, task: DataclassInstance) -> dict[str, Any]:
    """Run ``module`` as a program with ``task`` as JSON on its standard input, and return its last line as JSON.

    Raises: RuntimeError with the standard error of the child, if it failed.
    """
    return run_program(["-m", module], asdict(task), f"{module} failed on {task}")


def run_program(program: Sequence[str], task: Mapping[str, Any], failed: str, tree: Path = ROOT) -> dict[str, Any]:
    """Run a program of Python's with the library of the checkout ``tree``, as ``run_child`` does.

    Args:
        program: the arguments of the interpreter.
        task: what the program reads, as JSON, on its standard input.
        failed: begins the error if it fails.
        tree: the folder of the checkout, where the program runs.

    Raises: RuntimeError with the standard error of the program, if it failed.
    """
    done = subprocess.run(
        [sys.executable, *program],
        input=json.dumps(task),
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{failed} (exit code {done.returncode}):\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
