"""Lines say how many loops are compiled, and how long that took so far, however busy the machine is."""

from __future__ import annotations

import pytest

from dataflow.kernel_cache.compile_progress import CompileProgress
from dataflow.kernel_cache.two_processes import Missing

MISSING = Missing({"a": 10, "b": 20, "c": 20, "d": 7})


def lines(seconds: list[int], capsys: pytest.CaptureFixture[str], least: int = 0) -> list[str]:
    """Return the lines about modules that are compiled at these times after the beginning."""
    times = iter([0, *seconds])
    progress = CompileProgress("loops: ", "; wait", least, now=lambda: next(times))
    progress.begin(MISSING, 2)
    for module in MISSING.modules:
        progress.compiled(module)
    assert str(progress) == "57 of 57 loops"
    return capsys.readouterr().err.splitlines()


FIRST = "loops: compiling 57 loops in two processes; wait"


def test_a_quiet_machine_needs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines([1, 2, 3, 4], capsys) == [FIRST]


def test_a_busy_machine_says_every_five_seconds_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    told = [FIRST, "loops: compiled 10 of 57 loops in 6 s", "loops: compiled 50 of 57 loops in 70 s"]
    assert lines([6, 9, 70, 90], capsys) == told


def test_a_few_loops_are_not_spoken_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines([6, 9, 70, 90], capsys, least=58) == []
