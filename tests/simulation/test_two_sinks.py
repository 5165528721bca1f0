"""Two two-phase sinks in one job, and a crash at each of the points where one of them may know more than the other.

The three points of a commit: after ``prepare``, between manifest and notice, between the two commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.sink import TwoPhaseSink
from dataflow.errors import CommitsDelayedWarning, StoreError
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runtime.task.crash_points import Point
from dataflow.testing import Pause, ScriptedSource, delivered_again, ledger_sink
from operators.sinks.parquet import read_committed
from tests.seeds import each_once_with_seeds, seeds
from tests.simulation.jobs import MODES, LoggedLedger, LoggedStore, batches, simulate, singles

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.CommitsRetriedWarning")

ROWS = 120
COMMIT_POINTS = [Point.PREPARED, Point.DURABLE, Point.BETWEEN_COMMITS]
EXPECTED = {"all": list(range(ROWS)), "even": list(range(0, ROWS, 2))}
NOTHING: dict[str, list[str]] = {"all": [], "even": []}


def forked(whole: TwoPhaseSink, part: TwoPhaseSink) -> flow.Pipeline:
    """Rows in order from one split; all of them to one sink, the even ones to another."""
    with flow.Pipeline("forked") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2, splits=1), name="in", parallelism=1)
        rows.rebalance().sink(whole, name="all")
        rows.rebalance().filter(col("x") % 2 == 0, name="f").sink(part, name="even", parallelism=1)
    return p


def dies_at(point: Point) -> Faults:
    """One crash there, in a life that has completed a checkpoint."""
    return Faults(crashes=1, crash_at=[point], crash_after=[1])


class Births(LoggedStore):
    """Looks at the world whenever a life begins, before anything is done to it."""

    def __init__(self, look: Callable[[], Any]) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self._look = look

    def open(self, run_id: str = "run") -> None:
        super().open(run_id)
        self.seen.append(self._look())


class Rig:
    """The job over two ledgers, "all" and "even", that write into the log of one store."""

    def __init__(self, **refuse: int) -> None:
        self.store = Births(self.staged)
        self.worlds = {name: LoggedLedger(self.store, name, refuse.get(name, 0)) for name in EXPECTED}

    def run(self, seed: int, faults: Faults | None = None, mode: str = "aligned", *, keep: int = 50) -> Any:
        p = forked(*(ledger_sink(world) for world in self.worlds.values()))
        return simulate(p, self.store, seed, faults, mode, keep=keep, channel_credit=1)

    @property
    def first_life(self) -> list[str]:
        """What the log says up to the first crash."""
        return self.store.log[: self.store.log.index("open", 1)]

    @property
    def rows(self) -> dict[str, list[int]]:
        return {name: singles(world) for name, world in self.worlds.items()}

    def staged(self) -> dict[str, list[str]]:
        """The transactions that each sink has staged."""
        return {name: list(world._staged) for name, world in self.worlds.items()}

    def named(self, checkpoint: int) -> dict[str, list[str]]:
        """The transactions that a checkpoint names, which are those that the restore commits."""
        found = self.store.manifest(checkpoint).transactions
        return {name: [str(handle["transaction"]) for handle in found.get(name, [])] for name in EXPECTED}


def owed(attempts: Sequence[Attempt]) -> dict[str, list[int]]:
    """What both sinks must show: every row, and those again that a restore reported."""
    return {
        name: sorted([*rows, *(x for (x,) in delivered_again(attempts, name).elements())])
        for name, rows in EXPECTED.items()
    }


@pytest.mark.parametrize(("seed", "mode", "point"), each_once_with_seeds(6, MODES, COMMIT_POINTS))
def test_a_crash_at_a_point_of_the_commit_leaves_every_row_once_in_both_sinks(
    seed: int, mode: str, point: Point
) -> None:
    rig = Rig()
    attempts = rig.run(seed, dies_at(point), mode)
    assert [attempt.crash for attempt in attempts] == [point.name.lower(), None]
    assert (rig.rows, rig.staged()) == (owed(attempts), NOTHING)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_what_was_prepared_for_a_checkpoint_that_never_was_is_deleted(seed: int) -> None:
    rig = Rig()
    restored = rig.run(seed, dies_at(Point.PREPARED))[-1].restored
    named, staged = rig.named(restored.checkpoint), rig.store.seen[1]
    assert any(set(staged[name]) - set(named[name]) for name in EXPECTED), "nothing was prepared"
    assert rig.rows == EXPECTED


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_between_manifest_and_notice_no_sink_has_committed_and_the_restore_commits_both(seed: int) -> None:
    rig = Rig()
    restored = rig.run(seed, dies_at(Point.DURABLE))[-1].restored
    assert rig.first_life[-1] == f"manifest {restored.checkpoint}"
    assert rig.rows == EXPECTED


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_between_the_two_commits_one_sink_has_committed_and_the_restore_commits_the_other(seed: int) -> None:
    rig = Rig()
    restored = rig.run(seed, dies_at(Point.BETWEEN_COMMITS))[-1].restored
    done = [line for line in rig.first_life if line in {f"all {restored.checkpoint}", f"even {restored.checkpoint}"}]
    assert done == rig.first_life[-1:]
    assert rig.rows == EXPECTED


# --- with files


class Disk:
    """The job over two directories of Parquet files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Births(self.shown)

    def shown(self) -> dict[str, list[int]]:
        """What pyarrow finds in every final file."""
        files = {name: sorted((self.path / name).rglob("*.parquet")) for name in EXPECTED}
        return {
            name: sorted(x for f in found for x in pq.read_table(f)["x"].to_pylist()) for name, found in files.items()
        }

    def crash(self, seed: int, point: Point, mode: str = "aligned") -> Sequence[Attempt]:
        """Die at ``point`` and run to the end."""
        p = forked(*(op.write_parquet(self.path / name) for name in EXPECTED))  # type: ignore[arg-type]
        attempts = simulate(p, self.store, seed, dies_at(point), mode, channel_credit=1)
        assert [attempt.crash for attempt in attempts] == [point.name.lower(), None]
        return attempts

    def durable(self, attempts: Sequence[Attempt]) -> dict[str, list[int]]:
        """The rows up to the checkpoint that was restored: what is before the offset of the one split."""
        restored = attempts[-1].restored
        assert restored is not None
        (offset,) = restored.offsets.values()
        return {name: [x for x in rows if x < (ROWS if offset is None else offset)] for name, rows in EXPECTED.items()}  # type: ignore[operator]


@pytest.mark.parametrize(("seed", "mode", "point"), each_once_with_seeds(2, MODES, COMMIT_POINTS))
def test_both_outputs_on_disk_are_exact_after_a_crash_at_a_point_of_the_commit(
    tmp_path: Path, seed: int, mode: str, point: Point
) -> None:
    disk = Disk(tmp_path)
    attempts = disk.crash(seed, point, mode)
    assert disk.shown() == owed(attempts)
    assert {name: sorted(read_committed(tmp_path / name)["x"].to_pylist()) for name in EXPECTED} == owed(attempts)


@pytest.mark.parametrize(("seed", "point"), each_once_with_seeds(4, COMMIT_POINTS))
def test_after_the_crash_no_final_file_holds_a_row_that_is_not_durable(tmp_path: Path, seed: int, point: Point) -> None:
    disk = Disk(tmp_path)
    durable = disk.durable(disk.crash(seed, point))
    found = disk.store.seen[1]
    assert {name: found[name] == durable[name][: len(found[name])] for name in EXPECTED} == {"all": True, "even": True}


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_between_the_two_commits_the_files_of_one_sink_are_complete_and_the_other_has_none_of_that_checkpoint(
    tmp_path: Path, seed: int
) -> None:
    disk = Disk(tmp_path)
    durable = disk.durable(disk.crash(seed, Point.BETWEEN_COMMITS))
    found = disk.store.seen[1]
    assert sorted(found[name] == durable[name] for name in EXPECTED) == [False, True]


# --- failed commits


@pytest.mark.parametrize("failing", list(EXPECTED))
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_sink_that_refuses_for_a_while_commits_in_the_end_and_the_other_is_not_held_up(
    seed: int, times: int, failing: str
) -> None:
    rig = Rig(**{failing: times})
    rig.run(seed, keep=1)
    (healthy,) = EXPECTED.keys() - {failing}
    manifests = [line.partition(" ")[2] for line in rig.store.log if line.startswith("manifest")]
    assert [line for line in rig.store.log if line.startswith(healthy)] == [f"{healthy} {n}" for n in manifests]
    assert f"{failing} {manifests[0]}" not in rig.store.log, "it should have refused the first"
    assert rig.rows == EXPECTED


def test_a_commit_that_failed_is_made_good_by_that_of_the_next_checkpoint() -> None:
    rig = Rig(all=1)
    rig.run(0, keep=1)
    commits = [line for line in rig.store.log if line.startswith("all")]
    assert commits[0] == "all 2", "the handles of the first checkpoint are among those of the second"
    assert rig.rows == EXPECTED


def test_an_earlier_commit_is_retried_for_as_long_as_the_job_runs() -> None:
    store = LoggedStore()
    refusing, healthy = LoggedLedger(store, "all", refuse=20), LoggedLedger(store, "even")
    with flow.Pipeline("slow") as p:
        first, second = batches([1], [2])
        rows = p.source(ScriptedSource([first, Pause(2_000), second]), name="in", parallelism=1)
        for name, world in (("all", refusing), ("even", healthy)):
            rows.sink(ledger_sink(world), name=name)
    with pytest.warns(CommitsDelayedWarning, match=r"^1 row has waited 1\.0 min for sink 'all' \(not now\)"):
        simulate(p, store, 0, every="100s")  # 20 retries take 80 s
    assert store.log[:4] == ["open", "manifest 1", "even 1", "all 1"]
    assert singles(refusing) == singles(healthy) == [1, 2]


@pytest.mark.parametrize("failing", list(EXPECTED))
def test_a_last_commit_that_fails_for_good_fails_the_job_keeps_its_rows_and_the_next_run_commits_them(
    failing: str,
) -> None:
    rig = Rig(**{failing: 1_000_000})
    with pytest.raises(StoreError, match="not now") as caught:
        rig.run(0, keep=1)
    assert "its rows are staged and durable" in caught.value.__notes__[0]
    assert rig.rows == EXPECTED | {failing: []}
    assert len(rig.staged()[failing]) > 1, "the transactions of several checkpoints wait"
    rig.worlds[failing].refuse = 0
    again = rig.run(1, keep=1)
    assert again[0].restored.finished
    assert (rig.rows, rig.staged()) == (EXPECTED, NOTHING)
