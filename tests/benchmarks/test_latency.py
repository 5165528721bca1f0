"""The latency benchmark: every row is seen once, every kind gives its figures, and the report has them all.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.latency.__main__ import main
from benchmarks.latency.child import BARE, FILTER, IDLE, KEYED, LONE, QUEUED, TIMED, Figures, Task, run
from benchmarks.latency.report import described, tables


@pytest.mark.parametrize(("kind", "rows"), [(FILTER, 540), (KEYED, 600)])
def test_every_row_that_arrives_is_timed(kind: str, rows: int) -> None:
    found = run(Task(kind, 2, rate=2_000, seconds=0.3))
    assert found.rows == rows if kind == FILTER else (found.rows or 0) <= rows  # equal keys in a batch are one update
    assert None not in (found.p50, found.p99, found.p999, found.most, found.cores)
    assert (found.p50 or 0) <= (found.p99 or 0) <= (found.p999 or 0) <= (found.most or 0)


@pytest.mark.parametrize(("kind", "parallelism"), [(QUEUED, 4), (TIMED, 4), (LONE, 1), (BARE, 1)])
def test_every_batch_is_counted(kind: str, parallelism: int) -> None:
    assert (run(Task(kind, parallelism, batches=12)).per_batch or 0) > 0


def test_an_idle_job_has_a_share_of_a_core() -> None:
    assert (run(Task(IDLE, 2, seconds=0.2)).cores or 0) > 0


def test_figures_are_medians_of_the_rounds() -> None:
    late, cost = Task(KEYED, 2, rate=10.0), Task(QUEUED, 4)
    rounds = [Figures(0.0, p50=p, p99=2.0, p999=3.0, most=4.0, cores=0.5) for p in (9.0, 1.0, 5.0)]
    found = described({late: rounds, cost: [Figures(0.0, per_batch=70.0)]}, [])
    assert [task["medians"].get("p50") for task in found["tasks"]] == [5.0, None]
    shown = tables(found)
    assert [next(iter(column.cells)) for column in shown[0].columns][2:] == ["5.0", "2.0", "3.0", "4.0", "0.50"]
    assert [next(iter(column.cells)) for column in shown[1].columns] == ["batches that queue up", "4", "70 us a batch"]


def test_the_command_measures_in_processes_of_their_own(tmp_path: Path) -> None:
    target = tmp_path / "latency.json"
    arguments = ["--kinds", "lone", "--repeats", "1", "--batches", "3", "--json", str(target)]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert (done.exit_code, "us a batch" in done.output) == (0, True)
    written = json.loads(target.read_text())
    assert {"command", "machine", "versions", "commit", "load", "tasks"} == set(written)
    assert [len(task["rounds"]) for task in written["tasks"]] == [1]
