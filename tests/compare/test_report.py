"""The report as people see it: tables with a legend, for wide and for narrow terminals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from rich.table import Table

from dataflow.cli.terminal import fits
from dataflow.compare.mode_report import Cost, ModeReport, Restoration
from dataflow.compare.report import CompareReport
from dataflow.contracts.checkpointing import Mode
from dataflow.events.repeat_precision import Precision
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.parts import Duplicates

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


def test_a_row_of_costs_has_the_mode_with_its_guarantee() -> None:
    cells = list(_report().modes[0].cost_cells().values())
    assert cells == ["aligned (exactly once)", "7, 1 failed", "1.5 ms", "12.0 ms", "42 us", "1,234", "9"]


def test_a_row_of_recoveries_has_the_kill_and_the_restore() -> None:
    cells = list(_report().modes[0].recovery_cells().values())
    assert cells == ["aligned (exactly once)", "6", "none", "-", "0", "0", "equals"]


def test_repeated_deliveries_that_may_be_more_are_marked_in_the_table() -> None:
    report = RestoreReport(1, "here", Mode.UNALIGNED, finished=False, precision={"out": Precision.MAY_BE_TOO_LOW})
    killed = Restoration(in_progress=6, report=report, after=3)
    cells = replace(_report().modes[0], restoration=killed).recovery_cells()
    assert cells["repeated deliveries"] == "0 (may be too low)"


def test_repeated_deliveries_are_shown_with_their_operator() -> None:
    rows = pa.table({"x": range(7)})
    duplicates = [Duplicates(operator, f"{operator}[0]", "p -> q", n, rows) for operator, n in (("a", 3), ("b", 7))]
    report = RestoreReport(1, "here", Mode.UNALIGNED, finished=False, duplicates=duplicates)
    assert Restoration(in_progress=6, report=report, after=3).most_duplicates == "7 at 'b'"


def test_a_value_of_a_step_that_was_left_out_is_a_dash_in_the_table_and_null_in_json() -> None:
    cells = _report().modes[-1].recovery_cells()
    assert {cell for heading, cell in cells.items() if heading not in ("mode", "output")} == {"-"}
    assert _report().modes[-1].to_json()["restoration"] is None


def test_a_value_that_a_runner_does_not_measure_is_a_dash_in_the_table_and_null_in_json() -> None:
    mode = ModeReport(Mode.ALIGNED, Path("here"), replace(COST, blocked=None, in_flight=None, state_bytes=None))
    assert {mode.cost_cells()[heading] for heading in ("blocked", "bytes", "in-flight rows stored")} == {"-"}
    assert {mode.to_json()[name] for name in ("blocked_us", "state_bytes", "in_flight_rows_stored")} == {None}


def test_dashes_have_a_line_in_the_legend() -> None:
    assert "a dash: not measured by this runner, or not done" in _report().recovery_table.legend_lines()
    assert "a dash: not measured by this runner, or not done" not in _report().cost_table.legend_lines()


def test_every_column_but_the_mode_has_a_legend_and_no_heading_means_two_things() -> None:
    headings = []
    for table in _report().tables:
        columns = [heading for heading in table.rows[0] if heading != "mode"]
        assert [line.partition(": ")[0] for line in table.legend_lines()][: len(columns)] == columns
        headings += columns
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize(("width", "lines"), [(200, 4), (80, 6)])
def test_there_is_a_form_for_wide_and_for_narrow_terminals(width: int, lines: int) -> None:
    recoveries = _report().recovery_table
    wide = fits(recoveries.wide(), Console(width=width))
    printed = _printed(recoveries.wide() if wide else recoveries.narrow(), width)
    body = [line for line in printed.splitlines() if "──" not in line and line.strip()]
    assert wide is (width == 200)
    assert len(body) > lines
    assert "in-flight rows put back" in printed
