"""One real demonstration, over fewer flights, for all tests that look at what it leaves behind.

Of two modes by default, and of all with ``-m soak``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import barrierflow


@dataclass(frozen=True)
class Shown:
    """A demonstration: the modes it was asked for, its directory and its report."""

    asked: list[str]
    folder: Path
    report: dict[str, Any]

    def mode(self, name: str) -> dict[str, Any]:
        return next(mode for mode in self.report["modes"] if mode["mode"] == name)


TWO = ("--mode", "unaligned", "--mode", "unaligned-persisted")
"""The modes that the other tests of killed processes tell least about; each takes some ten seconds."""


@pytest.fixture(scope="session", params=[TWO, pytest.param((), marks=pytest.mark.soak)], ids=["two modes", "all modes"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = barrierflow("demo", "--flights", "40000", *request.param, "--json", "--directory", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Shown(list(request.param[1::2]), folder, json.loads(done.stdout))
