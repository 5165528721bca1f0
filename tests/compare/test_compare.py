"""A comparison end to end, in real processes that are really killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dataflow.compare.comparing import compare
from dataflow.compare.options import KillPoint, Options
from dataflow.compare.subject import Subject
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import LateRowsWarning, PipelineFailed
from dataflow.store.directory import DirectoryStore
from operators.sinks.parquet import read_committed
from tests.commands import barrierflow

if TYPE_CHECKING:
    from tests.compare.conftest import Compared

EXACTLY_ONCE = ["aligned", "unaligned-persisted", "aligned-timeout"]  # the default run leaves the last one out


def test_every_mode_is_killed_in_a_checkpoint_and_restored_from_the_one_before(compared: Compared) -> None:
    for mode in compared.report["modes"]:
        done = mode["restoration"]
        assert done["killed_in_checkpoint"] > done["restored_checkpoint"] > 0
        assert done["restore_us"] > 0
        store = DirectoryStore(Path(mode["killed_folder"]) / "checkpoints")
        assert done["killed_in_checkpoint"] not in store.checkpoints()


def test_an_exactly_once_mode_equals_the_undisturbed_run(compared: Compared) -> None:
    modes = [mode for mode in compared.report["modes"] if mode["mode"] in EXACTLY_ONCE]
    assert len(modes) >= 2
    for mode in modes:
        assert (mode["result"], mode["failures"]) == ("equals the run without a kill", [])
        assert mode["restoration"]["duplicates"] == {}


@pytest.mark.usefixtures("at_home")
def test_the_duplicates_of_unaligned_are_reported_and_bound_what_differs(tmp_path: Path) -> None:
    options = Options([Mode.UNALIGNED], every="20ms", is_telling=lambda _, scene: scene.duplicated.get("counts", 0) > 0)
    (mode,) = compare(Subject("tests.compare.held_barrier:pipeline"), tmp_path, options).to_json()["modes"]
    assert (mode["failures"], mode["processes_started"]) == ([], 1)
    assert mode["restoration"]["duplicates"]["counts"] > 0
    assert "reported at 'counts' (an upper bound)" in mode["result"]


def test_persisted_rows_in_flight_are_stored_and_restored(compared: Compared) -> None:
    mode = compared.mode("unaligned-persisted")
    assert mode["in_flight_rows_stored"] > 0
    assert mode["restoration"]["in_flight_rows"] > 0
    assert mode["restoration"]["in_flight_bytes"] > 0


def test_only_modes_that_align_block_channels(compared: Compared) -> None:
    blocked = {mode["mode"]: sum(mode["blocked_us"].values()) for mode in compared.report["modes"]}
    assert blocked["aligned"] > 0
    assert blocked.get("unaligned", 0) == blocked["unaligned-persisted"] == 0


def test_nothing_is_written_where_the_pipeline_writes(compared: Compared) -> None:
    assert {path.name for path in compared.home.iterdir()} <= {"mine.py", "__pycache__"}
    output = Path(compared.mode("aligned")["undisturbed_folder"]) / "output"
    assert read_committed(output / "rows").num_rows == 7_989
    assert set(read_committed(output / "totals")["k"].to_pylist()) == set(range(20))


def test_the_fields_of_the_json_report_are_these(compared: Compared) -> None:
    assert list(compared.report) == ["pipeline", "modes", "duration_us", "folder", "problems", "kept"]
    for mode in compared.report["modes"]:
        assert list(mode) == [
            "mode",
            "guarantee",
            "promise",
            "checkpoints_completed",
            "checkpoints_failed",
            "checkpoint_us_median",
            "checkpoint_us_worst",
            "blocked_us",
            "state_bytes",
            "in_flight_rows_stored",
            "rows_in_and_out",
            "undisturbed_us",
            "processes_started",
            "restoration",
            "result",
            "failures",
            "undisturbed_folder",
            "killed_folder",
        ]
        assert list(mode["restoration"]) == [
            "killed_in_checkpoint",
            "restored_checkpoint",
            "restore_us",
            "rows_replayed_at_least",
            "in_flight_rows",
            "in_flight_bytes",
            "duplicates",
            "rewound_to",
            "checkpoints_after",
        ]


@pytest.mark.soak  # test_killing has the moment of each point, and test_verdict a start from the beginning
@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("point", "restored"),
    [(KillPoint.AFTER_CHECKPOINT, int), (KillPoint.BEFORE_CHECKPOINT, type(None))],
)
def test_a_kill_may_strike_after_or_before_a_checkpoint(point: KillPoint, restored: type, tmp_path: Path) -> None:
    options = Options([Mode.ALIGNED], slow={"counts": "100us"}, every="50ms", kill=point)
    (mode,) = compare(Subject("mine:made"), tmp_path, options).to_json()["modes"]
    assert mode["failures"] == []
    assert type(mode["restoration"]["restored_checkpoint"]) is restored
    assert mode["result"] == "equals the run without a kill"


@pytest.mark.soak  # a pipeline that cannot be judged is run without a kill below; test_report has the table
def test_without_a_kill_the_table_has_only_the_cost(home: Path) -> None:
    done = barrierflow("compare", "mine:pipeline", "--mode", "aligned", "--kill", "none", "--every", "20ms", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "| aligned (exactly once) |" in done.stdout
    assert "killed in" not in done.stdout
    assert "no promise was tested" in done.stdout
    assert "are deleted; use --keep to keep them" in done.stdout


@pytest.mark.soak  # test_killing and test_verdict have jobs that end before their kill
@pytest.mark.usefixtures("at_home")
def test_a_run_too_short_for_its_kill_is_a_failure_that_says_what_to_do(tmp_path: Path) -> None:
    options = Options([Mode.ALIGNED], every="1h", attempts=2)
    report = compare(Subject("mine:pipeline"), tmp_path, options)
    assert [mode.recovery_cells()["output"] for mode in report.modes] == ["FAILED"]
    (problem,) = report.problems
    assert "in 2 attempts no process could be killed" in problem
    assert "the job ended before the right moment for the kill; make the run longer" in problem


def test_a_pipeline_that_never_gives_the_same_rows_cannot_be_judged(home: Path) -> None:
    done = barrierflow(
        "compare", "mine:restless", "--mode", "aligned", "--mode", "unaligned", "--kill", "none", cwd=home
    )
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "error: unaligned (at least once): without a kill its output differs from the output of" in done.stderr
    assert "sink 'out': 10 rows too many and 10 too few" in done.stderr


@pytest.mark.usefixtures("at_home")
def test_a_warning_of_several_runs_is_given_once_with_their_names(tmp_path: Path) -> None:
    options = Options([Mode.ALIGNED, Mode.UNALIGNED_PERSISTED], kill=KillPoint.NONE, parallelism=1)
    with pytest.warns(LateRowsWarning) as caught:
        compare(Subject("mine:tardy"), tmp_path, options)
    (line,) = [str(warning.message) for warning in caught if isinstance(warning.message, LateRowsWarning)]
    assert line.startswith("in each of 2 runs: 2 rows (40.0% of its rows) came too late for 'counts'")


@pytest.mark.usefixtures("at_home")
def test_a_run_that_fails_loses_neither_its_warnings_nor_those_of_runs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(words: str) -> None:
        if words.startswith("unaligned-persisted, run"):
            monkeypatch.setenv("FAILING", "1")

    options = Options([Mode.ALIGNED, Mode.UNALIGNED_PERSISTED], kill=KillPoint.NONE, parallelism=1)
    with (
        pytest.warns(LateRowsWarning, match="in run 'aligned .*, without a kill': 2 rows"),
        pytest.raises(PipelineFailed, match="on purpose") as raised,
    ):
        compare(Subject("mine:tardy"), tmp_path, options, say=say)
    assert [note for note in raised.value.__notes__ if note.startswith("LateRowsWarning: 2 rows")]


def test_what_a_users_own_function_raises_is_an_error_to_mend_and_no_broken_promise(home: Path) -> None:
    (home / "raising.py").write_text(
        "import pyarrow as pa, dataflow as flow, operators as op\n"
        "def boom(batch): raise ValueError('boom')\n"
        "with flow.Pipeline('raising') as pipeline:\n"
        "    rows = pipeline.source(op.from_arrow(pa.table({'x': [1]})), name='in')\n"
        "    rows.map_batches(boom, name='boom').sink(op.collect(), name='out')\n"
    )
    done = barrierflow("compare", "raising:pipeline", "--mode", "aligned", cwd=home)
    assert done.returncode == 2
    assert "error: the pipeline failed by itself, ValueError: boom" in done.stderr.splitlines()
    assert "The files and logs of the runs are deleted; use --keep or --directory to keep them." in done.stderr
