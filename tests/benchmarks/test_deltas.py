"""The benchmark of checkpoints of keyed state: what it writes is what changed, and its report has every figure.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.deltas.__main__ import main
from benchmarks.deltas.child import BASE, DELTA, PREPARE, RESTORE, RUN, Task, run
from benchmarks.deltas.report import Measured, chart, contents, described

KEYS = 4_000


def state(changed: str | float, folder: Path) -> list[dict[str, float]]:
    kind, percent = (BASE, 100.0) if isinstance(changed, str) else (DELTA, changed)
    found: list[dict[str, float]] = run(Task(kind, KEYS, str(folder), percent=percent, repeats=2))["taken"]
    return found


def test_the_bytes_follow_the_keys_that_changed(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("base", "0", "1", "100")]
    for folder in folders:
        folder.mkdir()
    base, none, some, all_ = [state(c, f) for c, f in zip((BASE, 0.0, 1.0, 100.0), folders, strict=True)]
    assert none[0]["size"] < 4096, "no rows, and what the checkpoint names"
    assert none[0]["size"] < some[0]["size"] < 0.05 * base[0]["size"]
    assert abs(all_[0]["size"] - base[0]["size"]) < 0.1 * base[0]["size"]
    assert [len(taken) for taken in (base, none, some, all_)] == [2, 2, 2, 2]
    assert some[0]["size"] == some[1]["size"], "a delta has the changes since the one before it, and no more"
    assert all(one["freeze"] > 0 and one["write"] > 0 and one["above"] >= 0 for one in [*base, *none, *some, *all_])


def test_a_job_with_two_subtasks_is_restored_from_a_directory(tmp_path: Path) -> None:
    run(Task(PREPARE, KEYS, str(tmp_path)))
    found = run(Task(RESTORE, KEYS, str(tmp_path)))  # asserts that both subtasks have keys, and all of them
    assert 0 < found["state"] <= found["started"]
    assert found["size"] > 32 * KEYS, "four words a key"


@pytest.mark.parametrize("interval", [0, 20])
def test_a_job_counts_the_cpu_time_of_its_checkpoints(interval: int, tmp_path: Path) -> None:
    found = run(Task(RUN, KEYS, str(tmp_path), interval=interval, seconds=0.3))
    assert found["rows_per_second"] > 0
    assert (found["checkpoints"] > 0, found["snapshots"] > 0, found["writers"] > 0) == (interval > 0,) * 3
    assert found["snapshots"] + found["writers"] < 1


def test_the_report_has_medians_beside_the_goals() -> None:
    taken = {"size": 1e6, "freeze": 2e-4, "freeze_cpu": 2e-4, "write": 0.5, "write_cpu": 0.1, "above": 3 << 20}
    slow = {**taken, "freeze": 5e-3, "above": 1 << 20}
    ran = {"rows_per_second": 10.0, "cpu_ns_per_row": 20.0, "failed": 0, "snapshots": 0.001, "writers": 0.01}
    without, with_ = (
        {**ran, "checkpoints": 0},
        {**ran, "rows_per_second": 8.0, "cpu_ns_per_row": 21.0, "checkpoints": 30},
    )
    delta = {**taken, "size": 5e3}
    measured = Measured(
        {BASE: [taken, taken, slow], 0.1: [delta]},
        [{"state": 1.5, "started": 1.75, "size": 4e8}],
        {1_000: [(without, with_)]},
    )
    found = described(measured, {"keys": 10_000_000}, [])
    states, restore, overhead = contents(found)
    assert states[1] == [
        ["all: the base", "1,000,000", "100.000%", "", "0.20 (5.00)", "at most 1 ms", "500", "100", "3"],
        ["0.1 %", "5,000", "0.500%", "at most 1 %", "0.20 (0.20)", "at most 1 ms", "500", "100", "3"],
    ]
    assert restore[1] == [["10,000,000", "400", "1.50", "1.75", "at most 3 s"]]
    assert overhead[1] == [["1,000", "30", "0.10", "1.00", "1.10", "at most 2 %", "1.250", "1.050"]]
    assert [mark.y for marks in chart(found).series.values() for mark in marks] == [0.005, 1.0]


def test_the_command_measures_in_processes_of_their_own(tmp_path: Path) -> None:
    target, picture = tmp_path / "deltas.json", tmp_path / "deltas.svg"
    arguments = ["--parts", "states", "--keys", "1000", "--changed", "10", "--repeats", "1"]
    files = [f"--json={target}", f"--chart={picture}", f"--folder={tmp_path}"]
    done = CliRunner().invoke(main, [*arguments, *files], catch_exceptions=False)
    assert (done.exit_code, "all: the base" in done.output) == (0, True)
    written = json.loads(target.read_text())
    assert {"command", "machine", "versions", "commit", "load", "settings", "states"} < set(written)
    assert [one["changed"] for one in written["states"]] == [BASE, 10.0]
    assert picture.read_text().startswith("<svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deltas.json", "deltas.svg"], "checkpoints are deleted"


def test_a_share_beyond_all_keys_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--changed", "101"])
    assert (refused.exit_code, "from 0 to 100" in refused.output) == (2, True)
