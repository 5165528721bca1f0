"""Commands and ``flow.Checkpoint`` read forged checkpoints, or refuse them: see ``docs/security.md``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.forged.pipelines import PIPELINES

MORE = [pytest.param("keyed", 5, 15, marks=pytest.mark.extended)]
SOAK = [pytest.param(name, 100, 400, marks=pytest.mark.soak) for name in sorted(PIPELINES)]


@pytest.mark.parametrize(("name", "first", "last"), [("keyed", 0, 5), *MORE, *SOAK])
def test_a_forged_checkpoint_is_read_or_refused(name: str, first: int, last: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.forged.reading", str(tmp_path / "job"), name, str(first), str(last)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == last - first
    assert [outcome for outcome in found if outcome["wrong"]] == []
