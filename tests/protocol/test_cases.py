"""The facts of ``cases.toml``, each through the real channels, gate and handler."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dataflow.testing import Replay, replay

CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("cases.toml").read_text())
PARAMETERS = [pytest.param(mode, case, id=f"{mode}: {case['name']}") for mode, cases in CASES.items() for case in cases]


def run(mode: str, case: dict[str, Any]) -> Replay:
    return replay(mode, case["channels"], case["script"], end_of_input=case.get("end_of_input", "aligned"))


@pytest.mark.parametrize(("mode", "case"), PARAMETERS)
def test_the_replay_of_a_case_gives_its_facts(mode: str, case: dict[str, Any]) -> None:
    seen = run(mode, case)
    assert seen.log == case["log"].split()
    assert seen.captured == {}
    assert seen.duplicated == {int(n): rows for n, rows in case.get("duplicated", {}).items()}
    if "sent" in case:
        assert seen.sent == case["sent"].split()
    if "blocked" in case:
        assert seen.blocked == [tuple(entry) for entry in case["blocked"]]


def test_no_two_cases_have_the_same_name() -> None:
    names = [parameter.id for parameter in PARAMETERS]
    assert len(set(names)) == len(names)
