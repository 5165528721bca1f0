"""One real demonstration, over fewer flights, for all tests that look at what it leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import barrierflow


@dataclass(frozen=True)
class Shown:
    """A demonstration: its directory and its report."""

    folder: Path
    report: dict[str, Any]

    def mode(self, name: str) -> dict[str, Any]:
        return next(mode for mode in self.report["modes"] if mode["mode"] == name)


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = barrierflow("demo", "--flights", "40000", "--json", "--directory", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Shown(folder, json.loads(done.stdout))
