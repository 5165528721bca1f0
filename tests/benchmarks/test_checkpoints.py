"""The cost of checkpoints: every variant can be measured, stop-the-world stops the world, and intervals are Student's.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks.charts import Chart, Mark, as_svg
from benchmarks.checkpoints.__main__ import main
from benchmarks.checkpoints.child import Figures, Task, run
from benchmarks.checkpoints.gate import Gate
from benchmarks.checkpoints.job import COUNTS, start
from benchmarks.checkpoints.measuring import Plan, run_of
from benchmarks.checkpoints.report import charts, described, table
from benchmarks.checkpoints.settings import MODES, NONE, STOP_THE_WORLD, VARIANTS, Point, Setting, points
from benchmarks.student import estimate, quantile
from dataflow.contracts.checkpointing import Mode

SMALL = Setting(interval=10, keys=1_000, parallelism=1)
SVG = "{http://www.w3.org/2000/svg}"


@cache
def measured(variant: str) -> Figures:
    """The figures of a very short run in this process. It ends its warm-up early, so that a checkpoint is in it."""
    with TemporaryDirectory() as folder:
        return run(Task(variant, asdict(SMALL), 0.15, folder, warm_up=0.0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_moves_rows_and_takes_the_checkpoints_it_should(variant: str) -> None:
    figures = measured(variant)
    assert figures.rows_per_second > 0
    assert figures.failed == 0
    assert (figures.size is None) == (figures.checkpoints_per_second == 0)
    if variant == NONE:
        assert figures.checkpoints_per_second == 0


def test_no_row_is_read_while_the_world_is_stopped_and_all_read_rows_are_in_the_snapshot(tmp_path: Path) -> None:
    gate = Gate(2)
    setting = Setting(keys=1_000, parallelism=2)
    job, _ = start(STOP_THE_WORLD, setting, gate, tmp_path / "checkpoints")
    with job:
        counted: list[int] = []
        job.on_checkpoint(lambda state: bool(counted.append(_rows_counted(state))))  # type: ignore[func-returns-value]
        read = []
        for _ in range(3):
            gate.halt()
            read.append(_rows_read(job))
            job.checkpoint()
            assert _rows_read(job) == read[-1]
            assert job.checkpoints[-1].in_flight_rows == 0
            gate.resume()
        gate.lift()
        job.stop()
    assert counted[:3] == read
    assert len(set(read)) == 3, "the sources read on between two halts"


def _rows_counted(state: Any) -> int:
    total: int = sum(state.table(COUNTS)["n"].to_pylist())
    return total


def _rows_read(job: Any) -> int:
    return sum(o.rows_out for task in job.metrics() for o in task.operators if o.operator == "rows")


def test_a_gate_that_is_lifted_halts_nothing_and_waits_for_nothing() -> None:
    gate = Gate(3)
    gate.lift()
    gate.halt()
    gate.resume()
    assert gate.admits("0")


def test_the_centre_is_a_level_of_each_factor_and_a_full_run_adds_an_interval() -> None:
    centre = Setting()
    for factor in ("interval", "keys", "skew", "slow", "parallelism"):
        assert [point.setting for point in points([factor], full=False)].count(centre) == 1
    levels = {full: [p.level for p in points(["interval"], full=full)] for full in (False, True)}
    assert levels == {False: [10, 50, 200, 1_000, 2_000], True: [10, 50, 200, 1_000, 2_000, 10_000]}


def test_a_run_without_checkpoints_is_measured_once_for_all_intervals() -> None:
    plan = Plan(list(points(["interval"], full=False)), VARIANTS, 3, 4.0)
    runs = [run for group in plan.groups for run in group]
    assert len(runs) == len(set(runs)) == 5 * (len(VARIANTS) - 1) + 1


def test_the_default_run_ends_in_half_an_hour() -> None:
    everything = list(points(["interval", "keys", "skew", "slow", "parallelism"], full=False))
    assert Plan(everything, VARIANTS, 3, 4.0).minutes < 30


# --- figures


def report() -> tuple[Plan, dict[str, Any]]:
    """A report of two rounds, of which the second is twice as fast with checkpoints, and equally fast without."""
    plan = Plan([Point("interval", 10, SMALL)], [NONE, "aligned"], 2, 1.0)
    rounds = [
        {run_of(SMALL, NONE): figures(rate=100.0, duration=None), run_of(SMALL, "aligned"): figures(rate, 5.0)}
        for rate in (40.0, 80.0)
    ]
    return plan, described(plan, rounds, ["--full"])


def figures(rate: float, duration: float | None) -> Figures:
    each_second = 0.0 if duration is None else 2.0
    return Figures(rate, 1.0, each_second, 0, duration, duration, duration, duration, 1.0, 1, 0.0, 0.0)


def test_what_is_lost_is_compared_with_the_same_round_and_has_its_half_width() -> None:
    _, found = report()
    (point,) = found["points"]
    aligned = point["variants"]["aligned"]
    assert aligned["lost_percent"]["mean"] == pytest.approx(40.0)
    assert aligned["lost_percent"]["half_width"] == pytest.approx(12.706 * 20.0)
    assert aligned["lost_ms_each"]["mean"] == pytest.approx(200.0)
    assert "lost_percent" not in point["variants"][NONE]


def test_a_report_says_with_which_command_and_where_it_was_measured() -> None:
    _, found = report()
    assert found["command"][-1] == "--full"
    assert {"machine", "versions", "commit", "load", "rounds"} <= set(found)
    json.dumps(found)


def test_there_is_a_row_and_a_line_for_each_variant() -> None:
    _, found = report()
    assert table(found).row_count == 2
    drawn = {name: series(chart) for name, chart in charts(found).items()}
    assert drawn == {"interval-throughput": [NONE, "aligned"], "interval-duration": ["aligned"]}


def series(chart: Chart) -> list[str | None]:
    root = ElementTree.fromstring(as_svg(chart))
    return [group.get("data-series") for group in root.iter(f"{SVG}g")]


def test_a_logarithmic_chart_leaves_out_what_is_not_above_zero() -> None:
    chart = Chart("", "x", "y", {0: "a", 1: "b"}, {"s": [Mark(0, 0.0), Mark(1, 5.0, 9.0)]}, log=True)
    assert len(list(ElementTree.fromstring(as_svg(chart)).iter(f"{SVG}circle"))) == 1


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (20, 2.086), (60, 2.000), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert quantile(freedom) == pytest.approx(expected, abs=6e-4)


def test_one_value_has_no_interval() -> None:
    assert estimate([3.0]).half_width is None


# --- the command


def command(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("variants", [["aligned"], pytest.param(list(VARIANTS), marks=pytest.mark.soak)], ids=len)
def test_the_command_measures_and_writes_figures_and_charts(variants: list[str], tmp_path: Path) -> None:
    done = command(
        *("--factors=skew", f"--variants={','.join(variants)}", "--only-centre", "--repeats=1", "--seconds=0.1"),
        *("--centre=keys=1000", "--centre=interval=10", f"--folder={tmp_path}", f"--json={tmp_path}/found.json"),
        f"--charts={tmp_path}/charts",
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [list(point["variants"]) for point in found["points"]] == [variants]
    assert sorted(file.name for file in (tmp_path / "charts").iterdir()) == ["skew-duration.svg", "skew-throughput.svg"]


@pytest.mark.parametrize(
    ("option", "message"),
    [("--variants=aligned,fuzzy", "'fuzzy' is none of none, stop-the-world"), ("--centre=size=3", "'size' is none of")],
)
def test_an_unknown_name_is_refused_with_those_there_are(option: str, message: str) -> None:
    done = command(option)
    assert done.exit_code == 2
    assert message in done.output


def test_all_modes_of_the_engine_are_variants() -> None:
    assert [mode.value for mode in Mode] == list(MODES)
