"""One real demonstration, over fewer flights, for all tests that look at what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

Barrierflow = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Shown:
    """A demonstration: its directory and its report."""

    folder: Path
    report: dict[str, Any]

    def mode(self, name: str) -> dict[str, Any]:
        return next(mode for mode in self.report["modes"] if mode["mode"] == name)


@pytest.fixture(scope="session")
def barrierflow() -> Barrierflow:
    """The command line in a process of its own."""

    def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dataflow", *map(str, arguments)]
        options = {"env": dict(os.environ), "cwd": ROOT, "timeout": 120} | options
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    return run


@pytest.fixture(scope="session")
def shown(barrierflow: Barrierflow, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = barrierflow("demo", "--flights", "40000", "--json", "--directory", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Shown(folder, json.loads(done.stdout))
