"""One real demonstration, over fewer flights, for all tests that look at what it leaves behind.

Of one mode by default, and of all with ``-m soak``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands import barrierflow
from tests.seeds import in_soak


@dataclass(frozen=True)
class Shown:
    """A demonstration: the modes it was asked for, its directory and its report."""

    asked: list[str]
    folder: Path
    report: dict[str, Any]

    def mode(self, name: str) -> dict[str, Any]:
        return next(mode for mode in self.report["modes"] if mode["mode"] == name)


ONE = ("--mode", "unaligned")
"""The mode of which the demonstration reports most; each takes seven seconds. Tests of ``compare`` have more modes."""


@pytest.fixture(scope="session", params=[ONE, *in_soak(())], ids=["one mode", "all modes"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = barrierflow("demo", "--flights", "40000", *request.param, "--json", "--directory", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Shown(list(request.param[1::2]), folder, json.loads(done.stdout))
