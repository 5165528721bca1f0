"""Restores of forged checkpoints end in one of the ways that the threat model allows: see ``docs/security.md``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forged.forging import allowed
from tests.forged.pipelines import PIPELINES

ROOT = Path(__file__).parents[2]
SOAK = [
    pytest.param(name, first, first + 100, "threads" if first == 1000 else "simulated", marks=pytest.mark.soak)
    for name in sorted(PIPELINES)
    for first in range(100, 1100, 100)
]


def outcomes(directory: Path, name: str, first: int, last: int, runner: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.forged.forging", str(directory), name, str(first), str(last), runner]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "first", "last", "runner"), [("keyed", 0, 5, "simulated"), *SOAK])
def test_a_forged_checkpoint_does_nothing_but_end_in_an_error_or_a_wrong_result(
    tmp_path: Path, name: str, first: int, last: int, runner: str
) -> None:
    found = outcomes(tmp_path / "job", name, first, last, runner)
    assert len(found) == last - first
    assert [outcome for outcome in found if outcome["wrong"]] == []


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({"signal": 11}, "killed by signal 11"),
        ({"hangs": True}, "it hangs"),
        ({"touched": ["home/.profile"]}, "changed files of others"),
        ({"leaked": "out/part"}, "read a file of others"),
        ({"memory": 3_200_000_000}, "took 3,200,000,000 bytes"),
        ({"error": "KeyError: 'rows'", "expected": False}, "raised KeyError"),
    ],
)
def test_forbidden_outcomes_are_named(outcome: dict[str, Any], said: str) -> None:
    harmless = {"signal": 0, "touched": [], "leaked": None, "memory": 0, "error": None, "expected": True}
    assert allowed(harmless) is None
    assert said in str(allowed({**harmless, **outcome}))
