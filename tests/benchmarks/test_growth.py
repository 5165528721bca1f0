"""How cost grows: exponents of known laws are found, both engines give the right answer, memory is told apart.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.growth import endurance, inputs
from benchmarks.growth.__main__ import main
from benchmarks.growth.child import Figures, Task, run
from benchmarks.growth.endurance import Mark, deep_size
from benchmarks.growth.families import DUCKDB, FAMILIES, OURS, Shape, sizes_to
from benchmarks.growth.fit import exponent
from benchmarks.growth.inputs import LARGEST, files
from benchmarks.growth.measuring import Plan, Run
from benchmarks.growth.queries import by_duckdb, by_ours, expected
from benchmarks.growth.report import charts, described, exponents, memory, sizes
from benchmarks.growth.windows import PAUSE, QUERIES, times
from tests.forcing import Force

# --- exponents


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.15, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    counts = [10, 100, 1_000, 10_000]
    found = exponent(counts, [3.0 * count**power for count in counts])
    assert found is not None
    assert found.value == pytest.approx(power)
    assert found.half_width == pytest.approx(0.0, abs=1e-6)


def test_the_half_width_is_that_of_the_slope_of_a_regression() -> None:
    found = exponent([1, 10, 100], [1.0, 100.0, 100.0])  # slope 1, residuals -1/3, 2/3, -1/3
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert found.half_width == pytest.approx(12.706 * (2 / 3 / 1 / 2) ** 0.5)


def test_one_size_has_no_exponent() -> None:
    assert exponent([10, 10], [1.0, 2.0]) is None


def figures(cpu: float) -> Figures:
    return Figures(cpu + 1.0, cpu + 1.0, 1.0, 1.0, 5, 7, 0.0, 0.0)


def report(times: dict[int, float], watched: endurance.Figures | None = None) -> dict[str, Any]:
    """A report of keys by both engines with these times, besides a baseline of one second."""
    rounds: list[dict[Run, Figures]] = [
        {("keys", size, engine): figures(cpu) for size, cpu in times.items() for engine in (OURS, DUCKDB)}
        for _ in range(2)
    ]
    plan = Plan({"keys": list(times)}, 2, Path())
    return described(plan, rounds, watched, [])


def test_the_baseline_is_subtracted_before_the_fit() -> None:
    found = report({1_000: 1.0, 10_000: 10.0, 100_000: 100.0})["families"]["keys"]["engines"][OURS]
    assert found["cpu_exponent"]["value"] == pytest.approx(1.0)
    assert [point["peak_rss"] for point in found["points"]] == [7, 7, 7]


def test_a_size_whose_work_is_small_beside_the_baseline_is_left_out_of_the_fit() -> None:
    found = report({10: 0.09, 1_000: 1.0, 10_000: 10.0, 100_000: 100.0})["families"]["keys"]["engines"][OURS]
    assert [point["in_fit"] for point in found["points"]] == [False, True, True, True]
    assert found["cpu_exponent"]["value"] == pytest.approx(1.0)


def test_exponents_are_shown_beside_the_goal_of_ours() -> None:
    found = report({1_000: 1.0, 10_000: 10.0})
    shown = exponents(found)
    assert [list(column.cells) for column in shown.columns][4] == ["at most 1.15", ""]
    assert sizes(found).row_count == 4
    (chart,) = charts(found).values()
    assert list(chart.series) == [OURS, DUCKDB]


def test_what_is_kept_for_checkpoints_is_told_apart_from_other_growth() -> None:
    flowing = [Mark(n, 1_000 + 50 * (n >= 30), 20 * (n >= 30), 0.0) for n in range(40)]
    halted = [Mark(10, 2_000, 30_000, 0.1), Mark(100, 272_000, 300_000, 1.0)]
    found = report({1_000: 1.0}, endurance.Figures(flowing, halted))["memory"]
    assert (found["rss_growth"], found["rss_growth_kept"], found["rss_growth_else"]) == (50, 20, 30)
    assert (found["kept_per_checkpoint"], found["rss_growth_per_checkpoint"]) == (3_000, 3_000)
    assert found["cpu_exponent"]["value"] == pytest.approx(1.0)


def test_the_size_of_values_counts_shared_objects_once() -> None:
    shared = bytes(10_000)
    assert 10_000 < deep_size([shared, shared, {"again": shared}]) < 12_000


# --- inputs and answers


def test_every_key_is_equally_often_in_the_rows(tmp_path: Path) -> None:
    (file,) = files(Shape(rows=4_000, keys=1_000), tmp_path)
    counts = pq.read_table(file)["key"].value_counts().to_pylist()
    assert {one["counts"] for one in counts} == {4}
    assert len(counts) == 1_000


def test_a_file_is_repeated_without_disk(tmp_path: Path, force: Force) -> None:
    assert LARGEST % 1_000 == 0
    force(inputs, "LARGEST", 1_000, calls=inputs._write)
    first, second = files(Shape(rows=2_000, keys=1_000), tmp_path)
    assert first.stat().st_ino == second.stat().st_ino


@pytest.mark.parametrize("shape", [Shape(2_500, 1_000), Shape(2_500, 1_000, 2, 3, 500)], ids=["plain", "chain"])
def test_both_engines_give_the_expected_answer(shape: Shape, tmp_path: Path) -> None:
    paths = files(shape, tmp_path)
    right = expected(shape, paths)
    assert right == (1_000, 2_500, 2 * 499_500 + 124_750)
    assert by_ours(shape, paths, tmp_path / "checkpoints") == by_duckdb(shape, paths) == right


@pytest.mark.parametrize("query", QUERIES)
def test_a_windowed_query_drops_no_row(query: str, tmp_path: Path) -> None:
    shape = replace(FAMILIES[query].shape(2_000), keys=7)
    paths = files(shape, tmp_path)
    assert by_ours(shape, paths, tmp_path / "checkpoints") == expected(shape, paths)


def test_rows_of_windows_are_late_across_pauses() -> None:
    at = times(np.arange(100_000))
    late = np.maximum.accumulate(at) - at
    assert 0.2 < np.mean(late > 0) < 0.3
    assert np.max(late) < 300_000  # the lateness of the queries
    assert np.mean(late > PAUSE) > 0.05


@pytest.mark.parametrize("family", ["chain", "channels"])
def test_the_jobs_of_a_family_differ_in_what_its_name_says(family: str) -> None:
    small, large = (FAMILIES[family].shape(size) for size in (4, 16))
    different = {name for name, value in asdict(small).items() if asdict(large)[name] != value}
    assert different == {{"chain": "chain", "channels": "parallelism"}[family]}


def test_a_full_run_has_the_sizes_of_the_goals() -> None:
    assert sizes_to(FAMILIES["rows"], None, full=True)[-1] == 10**9
    assert sizes_to(FAMILIES["keys"], None, full=True)[-1] == 10**7
    assert FAMILIES["channels"].shape(64).parallelism == 8


# --- processes


def test_a_measurement_has_the_job_its_baseline_and_its_memory(tmp_path: Path) -> None:
    found = run(Task(OURS, "keys", 1_000, str(tmp_path), str(tmp_path)))
    assert min(found.cpu, found.wall, found.baseline_cpu, found.baseline_wall) > 0
    assert found.peak_rss >= found.rss_before > 0


def test_a_long_run_is_sampled_while_rows_flow_and_at_each_mark(tmp_path: Path) -> None:
    found = endurance.run(endurance.Task(0.1, [2, 4], str(tmp_path), keys=1_000))
    assert [mark.count for mark in found.halted] == [2, 4]
    assert found.halted[0].kept < found.halted[1].kept
    assert len(found.flowing) == endurance.SAMPLES
    assert found.flowing[0].count < found.flowing[-1].count
    assert min(mark.rss for mark in found.flowing + found.halted) > 0


@pytest.fixture
def written(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    done = CliRunner().invoke(
        main,
        [
            *request.param,
            "--repeats=1",
            f"--folder={tmp_path}/rows",
            f"--json={tmp_path}/found.json",
            f"--charts={tmp_path}/charts",
        ],
    )
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert {f"growth-{name}.svg" for name in found["families"]} == {
        file.name for file in (tmp_path / "charts").iterdir()
    }
    assert len(memory(found)) == (0 if found["memory"] is None else 2)
    return found


@pytest.mark.parametrize(
    "written",
    [
        ["--families=keys", "--most=keys=1000"],
        pytest.param(
            [
                "--seconds=1",
                *[f"--most={name}=1000" for name in ("rows", "keys", *QUERIES)],
                "--most=chain=1",
                "--most=memory=20",
            ],
            marks=pytest.mark.soak,
        ),
    ],
    indirect=True,
    ids=["keys", "all"],
)
def test_the_command_measures_and_writes_figures_and_charts(written: dict[str, Any]) -> None:
    keys = written["families"]["keys"]
    assert [point["size"] for point in keys["engines"][DUCKDB]["points"]] == [1_000]
    assert {"command", "machine", "versions", "commit", "load", "rounds"} <= set(written)


@pytest.mark.parametrize(
    ("option", "message"),
    [("--most=size=3", "'size' is none of rows"), ("--most=rows=few", "'few' is not"), ("--families=x", "'x' is none")],
)
def test_a_wrong_option_is_refused_with_what_is_possible(option: str, message: str) -> None:
    done = CliRunner().invoke(main, [option])
    assert done.exit_code == 2
    assert message in done.output
