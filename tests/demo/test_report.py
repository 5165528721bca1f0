"""The demo as people see it: the figures that prove a promise, the closing paragraph, and the files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dataflow.cli import main
from dataflow.compare.mode_report import Cost, ModeReport, Restoration
from dataflow.compare.report import CompareReport
from dataflow.contracts.checkpointing import Mode
from dataflow.demo.report import DemoReport, FlightCount
from dataflow.errors import SourceError
from dataflow.runtime.restore.report import RestoreReport

COST = Cost(7, 0, 1_500, 12_000, {"a -> b": 42}, 9, 1_234, 3_000_000, {})
SENTENCE = "Kill: a second process runs the same job and is killed with SIGKILL while a checkpoint is half written."


def _report(folder: Path, *failures: str, repeated: int = 3, reported: int = 3) -> DemoReport:
    """Return a report of two modes: aligned is right, and unaligned has the given figures and failures."""
    done = Restoration(6, RestoreReport(5, "here", Mode.ALIGNED, finished=False), 3)
    aligned = ModeReport(Mode.ALIGNED, folder, COST, 1, folder / "aligned", done, "equals the run without a kill")
    unaligned = replace(aligned, mode=Mode.UNALIGNED, failures=list(failures))
    counts = {
        Mode.ALIGNED: FlightCount(100, 100, 0),
        Mode.UNALIGNED: FlightCount(100, 100 + repeated, reported),
    }
    compared = CompareReport("delays", str(folder), [aligned, unaligned], 5)
    return DemoReport(compared, 110, 10, counts, folder / "results.csv", folder / "report.html")


def _demo(monkeypatch: pytest.MonkeyPatch, run: Callable[..., DemoReport], *words: str) -> Result:
    monkeypatch.setattr("dataflow.demo.run_modes", run)
    return CliRunner().invoke(main, ["demo", *words])


def _speaking(folder: Path, *_: object, say: Callable[[str], None], **__: Any) -> DemoReport:
    say(SENTENCE)
    (folder / "results.csv").write_text("mode,flights\naligned,100\n")
    return _report(folder)


def test_rows_and_deliveries_are_columns_of_their_own() -> None:
    rows = _report(Path("here")).tables[-1].rows
    assert rows == [
        {
            "mode": "aligned (exactly once)",
            "rows": "100",
            "deliveries": "100",
            "repeated": "0",
            "reported": "0",
            "promise": "held",
        },
        {
            "mode": "unaligned (at least once)",
            "rows": "100",
            "deliveries": "103",
            "repeated": "3",
            "reported": "3",
            "promise": "held",
        },
    ]


def test_no_heading_is_used_twice_and_each_has_a_legend() -> None:
    tables = _report(Path("here")).tables
    headings = [heading for table in tables for heading in table.rows[0] if heading != "mode"]
    assert len(headings) == len(set(headings))
    legends = [line.partition(": ")[0] for table in tables for line in table.legend_lines()]
    assert [heading for heading in legends if heading != "a dash"] == headings


def test_the_closing_paragraph_counts_deliveries_and_rows() -> None:
    summary, aligned, unaligned, *_ = _report(Path("here")).closing
    assert summary == "2 of 2 tested modes kept their promise after the kill."
    assert "100 deliveries for 100 rows, none of them lost or repeated" in aligned
    assert "103 deliveries for 100 rows, 3 of them repeated, and the restore reported 3 repeated." in unaligned


def test_the_closing_paragraph_says_which_mode_failed_and_by_how_much() -> None:
    report = _report(Path("here"), "they differ", repeated=-2, reported=0)
    summary, aligned, unaligned, *_ = report.closing
    assert summary.endswith("1 of 2 tested modes kept their promise after the kill.")
    assert aligned.startswith("aligned promised exactly once: held.")
    assert unaligned.startswith("unaligned promised at least once: FAILED.")
    assert "98 deliveries for 100 rows, so 2 rows were lost" in unaligned
    assert "Failed checks: they differ." in unaligned
    assert report.tables[-1].rows[1]["promise"] == "FAILED"


def test_a_piped_demo_prints_each_phase_and_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = _demo(monkeypatch, _speaking, "--directory", str(tmp_path / "run"))
    assert (done.exit_code, done.stderr) == (0, "")
    first, *_ = done.stdout.splitlines()
    assert re.match(r"\[ +\d+\.\d s\] Kill: a second process", first)
    assert "2 of 2" in done.stdout
    assert not [c for c in done.stdout if not c.isprintable() and c != "\n"]


def test_as_json_only_the_report_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = _demo(monkeypatch, _speaking, "--json", "--directory", str(tmp_path / "run"))
    assert (done.stdout[:1], done.stderr) == ("{", "")


def test_results_stay_in_a_temporary_directory_and_the_printed_commands_open_and_delete_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    printed = _demo(monkeypatch, _speaking).stdout
    commands = {line.partition(": ")[0]: line.partition(": ")[2] for line in printed.splitlines()}
    opened = subprocess.run(commands["To open them"], shell=True, capture_output=True, text=True, check=True)
    assert "aligned" in opened.stdout
    subprocess.run(commands["To delete all files"], shell=True, check=True)
    assert not list(tmp_path.iterdir())


def test_results_that_are_not_wanted_are_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = _demo(monkeypatch, _speaking, "--no-keep")
    assert "are deleted; use --keep to keep them" in done.stdout
    assert not list(tmp_path.iterdir())


def test_an_error_leaves_no_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> DemoReport:
        raise SourceError("cannot read the flights")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = _demo(monkeypatch, fail)
    assert (done.exit_code, done.stderr) == (2, "error: cannot read the flights\n")
    assert not list(tmp_path.iterdir())
