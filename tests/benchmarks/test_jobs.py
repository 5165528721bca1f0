"""The speed harness: engines agree on every job, a wrong answer is found, and the figures have the promised shape.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.jobs.answers import difference
from benchmarks.jobs.bids import Bids
from benchmarks.jobs.measuring import Plan, WrongAnswer, measure, require_agreement
from benchmarks.jobs.ours import JOBS, unavailable
from tests.documents import ROOT
from tests.seeds import in_soak

AVAILABLE = [job for job in JOBS if unavailable(job) is None]


def engines(job: str) -> list[str]:
    """Return whom a job is run by: this engine, as it is, tuned and in other words, and the rivals."""
    return ["ours", "ours, tuned", *JOBS[job].variants, "duckdb", "polars"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "benchmarks.jobs", *arguments]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=[["J2"], *in_soak(AVAILABLE)], ids=" ".join)
def asked(request: pytest.FixtureRequest) -> list[str]:
    """The jobs to run: each starts a process for each engine."""
    jobs: list[str] = request.param
    return jobs


@pytest.fixture(scope="module")
def found(asked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What one pair of every job over few bids wrote; a wrong answer would have ended it."""
    folder = tmp_path_factory.mktemp("jobs")
    done = command(
        f"--jobs={','.join(asked)}",
        "--rows=5000",
        "--seconds=0",
        "--pairs=1",
        "--row-groups=1000",
        f"--folder={folder}",
        f"--json={folder}/found.json",
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))


def test_every_job_that_was_asked_for_was_run_by_every_engine(asked: list[str], found: Mapping[str, Any]) -> None:
    assert list(found["jobs"]) == [f"{job}, row groups of 1,000" for job in asked]
    assert [list(one["engines"]) for one in found["jobs"].values()] == [engines(job) for job in asked]


def test_figures_are_those_of_one_round_over_the_bids(found: Mapping[str, Any]) -> None:
    for job in found["jobs"].values():
        assert (job["rows"], job["repetitions"], len(job["rounds"])) == (5000, 1, 1)
        assert [list(round_) for round_ in job["rounds"]] == [engines(job["job"])]


def test_each_measurement_has_its_times_memory_load_and_checkpoints(found: Mapping[str, Any]) -> None:
    for figures in (one for job in found["jobs"].values() for round_ in job["rounds"] for one in round_.values()):
        assert min(figures[name] for name in ("wall", "cpu", "peak_rss")) > 0
        assert min(figures[name] for name in ("load_before", "load_after")) >= 0
        assert (len(figures["checkpoints"]) > 0) == figures["engine"].startswith("ours")


def test_ratios_come_with_an_interval_and_all_pairs(found: Mapping[str, Any]) -> None:
    for ratio in (ratio for job in found["jobs"].values() for ratio in job["ratios"].values()):
        assert ratio["low"] <= ratio["median"] <= ratio["high"]
        assert len(ratio["pairs"]) == len(ratio["cpu"]["pairs"]) == 1


def test_it_is_told_what_was_measured_and_where(found: Mapping[str, Any]) -> None:
    settings = {"rivals": ["duckdb", "polars"], "pairs": 1, "rows": 5000, "seconds": 0.0, "row_groups": [1000]}
    assert found["settings"] == {**settings, "batch_rows": {"ours": None, "ours, tuned": 1 << 20}}
    assert {"cores", "processor", "memory", "system"} == set(found["machine"])
    assert {"barrierflow", "python", "pyarrow", "numba", "duckdb", "polars"} <= set(found["versions"])


def test_an_unknown_job_is_refused_with_those_there_are() -> None:
    done = command("--jobs=J1,J99")
    assert done.returncode == 2
    assert "'J99' is none of J1, J2, J3, J4, J5, J6, J7, J8, J9, J10, J11, J12" in done.stderr


def test_a_size_of_row_groups_that_is_no_number_is_refused() -> None:
    done = command("--row-groups=1000,many")
    assert done.returncode == 2
    assert "'1000,many' is not a list of whole numbers" in done.stderr


@pytest.mark.soak
def test_an_input_is_repeated_until_ours_lasts_long_enough(tmp_path: Path) -> None:
    bids = Bids(5_000, tmp_path)
    said: list[str] = []
    measured = measure("J2", Plan(("duckdb",), 1, 0.5, bids, bids), said.append)
    assert measured.repetitions > 1
    assert measured.rows == 5_000 * measured.repetitions


def test_another_answer_is_an_error_that_says_whose_and_where(tmp_path: Path) -> None:
    answers = {"ours": write(tmp_path / "ours", channel=["a"], n=[1])}
    require_agreement("J4", {**answers, "duckdb": write(tmp_path / "duckdb", channel=["a"], n=[1])})
    with pytest.raises(WrongAnswer, match=r"ours and polars differ: row 0 of 1, by \['channel'\]: .*1} and .*2}"):
        require_agreement("J4", {**answers, "polars": write(tmp_path / "polars", channel=["a"], n=[2])})


# --- the input


def test_bids_are_the_same_for_the_same_number(tmp_path: Path) -> None:
    tables = [pq.read_table(Bids(3_000, tmp_path / name).files(1)[0]) for name in "ab"]
    assert tables[0].equals(tables[1])


def test_half_of_the_bids_are_on_hot_auctions_and_channels(tmp_path: Path) -> None:
    bids = pq.read_table(Bids(20_000, tmp_path).files(1)[0]).to_pylist()
    assert sum(bid["auction"] < 100 for bid in bids) == pytest.approx(10_000, rel=0.05)
    assert sum(bid["channel"] in {f"channel-{n}" for n in range(4)} for bid in bids) == pytest.approx(10_000, rel=0.05)


def test_event_times_are_in_disorder_for_three_seconds_at_most(tmp_path: Path) -> None:
    times = pq.read_table(Bids(20_000, tmp_path).files(1)[0])["event_time"].cast(pa.int64()).to_numpy()
    late = [int(max(times[:row]) - times[row]) for row in range(1, len(times), 97)]
    assert 1_000 < max(late) <= 3_000


def test_a_repetition_is_the_same_file_under_another_name(tmp_path: Path) -> None:
    first, second = Bids(3_000, tmp_path).files(2)
    assert first != second
    assert first.stat().st_ino == second.stat().st_ino


def test_where_time_counts_a_repetition_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    first, second = (pq.read_table(file) for file in Bids(3_000, tmp_path).later_and_later(2))
    assert first["auction"].equals(second["auction"])
    shifts = {
        new - old for old, new in zip(first["event_time"].to_pylist(), second["event_time"].to_pylist(), strict=True)
    }
    assert [shift.total_seconds() for shift in shifts] == [0.03]


# --- comparing answers


def write(folder: Path, **columns: object) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "part.parquet")
    return folder


def test_the_order_of_rows_and_how_text_is_held_do_not_count(tmp_path: Path) -> None:
    one = write(tmp_path / "one", k=pa.array(["a", "b"]).dictionary_encode(), n=[1, 2])
    assert difference(one, write(tmp_path / "other", k=["b", "a"], n=[2, 1]), ["k"]) is None


def test_floats_are_equal_to_nine_digits(tmp_path: Path) -> None:
    one = write(tmp_path / "one", x=[1.0])
    assert difference(one, write(tmp_path / "near", x=[1.0 + 1e-10]), []) is None
    assert difference(one, write(tmp_path / "far", x=[1.0 + 1e-8]), []) is not None


@pytest.mark.parametrize("whole", [10, 1])
@pytest.mark.parametrize("n", [[1, 3], [2, 1], [1, 2, 3]])
def test_a_wrong_value_an_exchange_and_a_row_too_many_are_found(tmp_path: Path, n: list[int], whole: int) -> None:
    one = write(tmp_path / "one", k=[1, 2], w=[5, 5], n=[1, 2])
    other = write(tmp_path / "other", k=list(range(1, len(n) + 1)), w=[5] * len(n), n=n)
    assert difference(one, other, ["k", "w"], whole) is not None


def test_equal_answers_of_many_rows_have_equal_digests(tmp_path: Path) -> None:
    one = write(tmp_path / "one", k=[1, 2], w=[5, 6], n=[1, 2])
    assert difference(one, write(tmp_path / "other", k=[2, 1], w=[6, 5], n=[2, 1]), ["k", "w"], whole=1) is None
