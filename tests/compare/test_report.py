"""The report as people see it: one row a mode where there is room, else one column a mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from dataflow.cli import _fits
from dataflow.compare.report import CompareReport, Cost, ModeReport, Restoration
from dataflow.contracts.checkpointing import Mode
from dataflow.runtime.restore.duplicate_precision import Precision
from dataflow.runtime.restore.report import RestoreReport

COST = Cost(7, 1, 1_500, 12_000, {"a -> b": 40, "c -> b": 2}, 9, 1_234, 3_000_000, {})


def _report() -> CompareReport:
    killed = Restoration(in_progress=6, report=None, after=3)
    modes = [ModeReport(mode, Path("here"), COST, 1, Path("there"), killed, "equals") for mode in Mode]
    return CompareReport("mine", "here", [*modes[:-1], ModeReport(Mode.ALIGNED, Path("here"), COST)], 5)


def _printed(table: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_a_row_has_the_mode_with_its_guarantee_its_cost_and_its_restore() -> None:
    cells = list(_report().modes[0].cells().values())
    assert cells == [
        "aligned (exactly once)",
        "7, 1 failed",
        "1.5 ms",
        "12.0 ms",
        "42 us",
        "1,234",
        "9",
        "6",
        "none",
        "-",
        "0",
        "0",
        "equals",
    ]


def test_duplicates_that_may_be_more_are_marked_in_the_table() -> None:
    report = RestoreReport(1, "here", Mode.UNALIGNED, finished=False, precision={"out": Precision.MAY_BE_TOO_LOW})
    killed = Restoration(in_progress=6, report=report, after=3)
    assert replace(_report().modes[0], restoration=killed).cells()["duplicates"] == "0 (may be too low)"


def test_what_was_not_done_is_a_dash_in_the_table_and_null_in_json() -> None:
    cells = _report().modes[-1].cells()
    assert {cells[heading] for heading in ("killed in", "restored", "restore", "re-injected", "duplicates")} == {"-"}
    assert _report().modes[-1].to_json()["restoration"] is None


def test_what_a_runner_does_not_have_is_a_dash_in_the_table_and_null_in_json() -> None:
    mode = ModeReport(Mode.ALIGNED, Path("here"), replace(COST, blocked=None, in_flight=None, state_bytes=None))
    assert {mode.cells()[heading] for heading in ("blocked", "bytes", "in flight")} == {"-"}
    assert {mode.to_json()[name] for name in ("blocked_us", "state_bytes", "in_flight_rows_stored")} == {None}


@pytest.mark.parametrize(("width", "lines"), [(200, 4), (80, 12)])
def test_there_is_a_form_for_wide_and_for_narrow_terminals(width: int, lines: int) -> None:
    report = _report()
    wide = _fits(report.table(), Console(width=width))
    printed = _printed(report.table() if wide else report.sheet(), width)
    body = [line for line in printed.splitlines() if "──" not in line and line.strip()]
    assert wide is (width == 200)
    assert len(body) > lines
    assert "re-injected" in printed
