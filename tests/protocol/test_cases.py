"""The facts of the files of cases, each through the real channels, gate and handler."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dataflow.testing import Replay, replay

FILES = ("cases.toml", "unaligned_persisted_cases.toml", "aligned_timeout_cases.toml")
CASES: list[tuple[str, dict[str, Any]]] = [
    (mode, case)
    for file in FILES
    for mode, cases in tomllib.loads(Path(__file__).with_name(file).read_text()).items()
    for case in cases
]
PARAMETERS = [pytest.param(mode, case, id=f"{mode}: {case['name']}") for mode, case in CASES]
SETTINGS = ("timeout", "end_of_input", "aligned_edges")


def run(mode: str, case: dict[str, Any]) -> Replay:
    settings = {name: case[name] for name in SETTINGS if name in case}
    trigger_times = {int(n): at for n, at in case.get("trigger_times", {}).items()}
    return replay(mode, case["channels"], case["script"], trigger_times=trigger_times, **settings)


def rows(case: dict[str, Any], what: str) -> dict[int, dict[str, list[str]]]:
    return {int(n): channels for n, channels in case.get(what, {}).items()}


@pytest.mark.parametrize(("mode", "case"), PARAMETERS)
def test_the_replay_of_a_case_gives_its_facts(mode: str, case: dict[str, Any]) -> None:
    seen = run(mode, case)
    assert seen.log == case["log"].split()
    assert seen.captured == rows(case, "captured")
    assert seen.duplicated == rows(case, "duplicated")
    if "sent" in case:
        assert seen.sent == case["sent"].split()
    if "blocked" in case:
        assert seen.blocked == [tuple(entry) for entry in case["blocked"]]


def test_no_two_cases_have_the_same_name() -> None:
    names = [parameter.id for parameter in PARAMETERS]
    assert len(set(names)) == len(names)
