"""The demonstration on Spark end to end: driver, JVM and workers are really killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dataflow.runners.spark.job_directory import JobDirectory
from operators.sinks.parquet import committed_files
from tests.commands import barrierflow
from tests.demo.conftest import Shown
from tests.needs import need_spark

if TYPE_CHECKING:
    from typing import Any


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def on_spark(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    need_spark()
    folder = tmp_path_factory.mktemp("demo") / "spark"
    done = barrierflow("demo", "--runner", "spark", "--flights", "20000", "--json", "--directory", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Shown(["aligned"], folder, json.loads(done.stdout))


@pytest.fixture
def aligned(on_spark: Shown) -> dict[str, Any]:
    (mode,) = on_spark.report["modes"]
    assert mode["mode"] == "aligned"
    return mode


def test_it_is_killed_in_a_micro_batch_and_goes_on_behind_the_last_one_that_was_done(aligned: dict[str, Any]) -> None:
    done = aligned["restoration"]
    assert done["killed_in_checkpoint"] == done["restored_checkpoint"] + 1 >= 3
    assert done["restored_checkpoint"] + done["checkpoints_after"] == aligned["checkpoints_completed"]


def test_what_lanes_had_read_of_that_micro_batch_is_read_again(aligned: dict[str, Any]) -> None:
    assert aligned["restoration"]["rows_replayed_at_least"] > 0
    assert all(split.startswith("flights/") for split in aligned["restoration"]["rewound_to"])


def test_its_result_equals_the_undisturbed_run_and_the_oracle(on_spark: Shown, aligned: dict[str, Any]) -> None:
    assert (aligned["result"], aligned["failures"]) == ("equals the run without a kill", [])
    assert (on_spark.report["flights_read"], on_spark.report["problems"]) == (20_000, [])
    assert aligned["restoration"]["duplicates"] == {}


def test_both_lives_of_the_job_wrote_rows(aligned: dict[str, Any]) -> None:
    killed = Path(aligned["killed_folder"])
    restored = aligned["restoration"]["restored_checkpoint"]
    checkpoints = {int(file.name.split("-")[1]) for file in committed_files(killed / "output" / "output")}
    assert min(checkpoints) <= restored < max(checkpoints) <= JobDirectory(killed / "checkpoints").done


def test_rows_are_counted_at_every_operator(on_spark: Shown, aligned: dict[str, Any]) -> None:
    counted = aligned["rows_in_and_out"]
    departed = 20_000 - on_spark.report["cancelled_dropped"]
    assert (counted["flights"], counted["departed"]) == ([20_000, 20_000], [20_000, departed])
    assert counted["delays"][1] == counted["output"][0] > 0


def test_what_spark_does_not_have_is_left_empty(aligned: dict[str, Any]) -> None:
    assert {aligned[name] for name in ("blocked_us", "state_bytes", "in_flight_rows_stored")} == {None}
    assert aligned["restoration"]["restore_us"] is None
    assert 0 < aligned["checkpoint_us_median"] <= aligned["checkpoint_us_worst"]
