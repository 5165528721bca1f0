"""The protocol cases that need a whole job (K8, K10, K12, K14, K20), on seeded schedules of the real parts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, Out
from dataflow.runners.faults import Faults
from dataflow.runtime.task.crash_points import Point
from dataflow.testing import Ledger, ScriptedSource, delivered_again, ledger_sink
from tests.checkpoints import task_states
from tests.seeds import seeds
from tests.simulation.jobs import MODES, LoggedLedger, LoggedStore, batches, paced_script, simulate, singles

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.CommitsRetriedWarning")


def straight(world: Ledger, rows: int = 40) -> flow.Pipeline:
    """Two splits through a rebalance into a sink."""
    with flow.Pipeline("straight") as p:
        source = ScriptedSource(paced_script(0, rows // 2), paced_script(rows // 2, rows // 2))
        p.source(source, name="in").rebalance().sink(ledger_sink(world), name="out")
    return p


# --- K8


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_sink_commits_after_the_manifest_and_earlier_notices_may_be_lost(seed: int) -> None:
    store = LoggedStore()
    world = LoggedLedger(store, refuse=2)
    simulate(straight(world), store, seed)
    commits = [line for line in store.log if line.startswith("commit")]
    assert all(store.log.index(c.replace("commit", "manifest")) < store.log.index(c) for c in commits)
    assert commits[0] != "commit 1", "the first notice was to be lost"
    assert singles(world) == list(range(40))  # the ledger itself refuses a commit that forgets an earlier transaction


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_checkpoint_that_is_durable_is_committed_by_the_restore_if_nobody_was_told(seed: int) -> None:
    store = LoggedStore()
    world = LoggedLedger(store)
    attempts = simulate(straight(world), store, seed, Faults(crashes=1, crash_at=[Point.DURABLE]))
    restored = attempts[-1].restored
    assert restored is not None
    assert restored.checkpoint not in attempts[0].checkpoints, "somebody was told"
    assert f"commit {restored.checkpoint}" not in store.log
    assert singles(world) == list(range(40))


# --- K10


@pytest.mark.parametrize("point", [Point.WRITE, Point.WRITTEN, Point.MANIFEST])
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_prepared_transaction_without_a_manifest_is_deleted_and_its_rows_come_once(seed: int, point: Point) -> None:
    store = LoggedStore()
    world = LoggedLedger(store)
    prepared: list[int] = []
    world.fault = lambda what: prepared.append(world.jobs) if what == "prepare" else None
    attempts = simulate(straight(world), store, seed, Faults(crashes=1, crash_at=[point], crash_after=[1]))
    assert attempts[0].crash == point.name.lower()
    assert prepared.count(1) > 0
    assert world.staged == 0
    assert singles(world) == list(range(40))


# --- K12


def one_ends_early(world: Ledger) -> flow.Pipeline:
    with flow.Pipeline("early") as p:
        short = p.source(ScriptedSource(batches([0, 1, 2])), name="short", parallelism=1)
        long = p.source(ScriptedSource(paced_script(3, 40)), name="long", parallelism=1)
        short.union(long, name="both", parallelism=1).sink(ledger_sink(world), name="out", parallelism=1)
    return p


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_checkpoints_go_on_after_one_source_ended_and_a_restore_does_not_run_it_again(seed: int, mode: str) -> None:
    store, world = flow.MemoryStore(), Ledger()
    faults = Faults(crashes=1, crash_at=["step"], crash_after=[3])
    attempts = simulate(one_ends_early(world), store, seed, faults, mode)
    restored = attempts[-1].restored
    assert restored is not None
    assert ended(store, restored.checkpoint) == ["short[0]"]
    assert list(restored.offsets) == ["long/script-0"]
    again = [row[0] for row in delivered_again(attempts, "out").elements()]
    assert singles(world) == sorted([*range(43), *again])


def ended(store: flow.MemoryStore, checkpoint: int) -> list[str]:
    """The tasks that had ended in a checkpoint."""
    states = task_states(store, checkpoint).values()
    return [state.task for state in states if state.ended]


# --- K14


class Told(Operator):
    """Logs finish(), and fails on a row that comes after it; emits one row there."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self._finished = False

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        assert not self._finished, f"{self._name}: a row after finish()"
        out.emit(batch)

    def finish(self, out: Out) -> None:
        self._finished = True
        self._log.append(f"finish {self._name}")
        out.emit(batches([-1])[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(2, 4))
def test_the_end_is_finish_in_order_then_one_checkpoint_then_the_commit(seed: int, mode: str) -> None:
    store = LoggedStore()
    world = LoggedLedger(store)
    with flow.Pipeline("end") as p:
        rows = p.source(ScriptedSource(paced_script(0, 6)), name="in", parallelism=1)
        rows = rows.rebalance().apply(lambda context: Told("first", store.log), name="first", parallelism=1)
        rows = rows.rebalance().apply(lambda context: Told("second", store.log), name="second", parallelism=1)
        rows.rebalance().sink(ledger_sink(world), name="out")
    simulate(p, store, seed, mode=mode)
    last = store.checkpoints()[-1]
    final = ["finish first", "finish second", f"manifest {last}", f"commit {last}"]
    assert [line for line in store.log if line in final] == final
    assert store.manifest(last).kind == "final"
    assert store.log[-1] == f"commit {last}"
    assert singles(world) == [-1, -1, *range(6)]


# --- K20


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(2, 8))
def test_a_diamond_with_queues_of_one_completes(seed: int, mode: str) -> None:
    world = Ledger()
    attempts = simulate(a_diamond(world), flow.MemoryStore(), seed, Faults(skew=0.7), mode, channel_credit=1)
    assert len(attempts) == 1
    assert singles(world) == sorted([*range(60), *range(0, 60, 2)])


def test_a_diamond_with_queues_of_one_completes_on_threads() -> None:
    world = Ledger()
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="1ms")
    a_diamond(world).run(parallelism=2, checkpoint=checkpoint, channel_credit=1, timeout="60s")
    assert singles(world) == sorted([*range(60), *range(0, 60, 2)])


def a_diamond(world: Ledger) -> flow.Pipeline:
    with flow.Pipeline("diamond") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(60)}), batch_rows=2, splits=2), name="in")
        fast = rows.rebalance().filter(col("x") % 2 == 0, name="fast")
        slow = rows.rebalance().filter(col("x") >= 0, name="slow", parallelism=1)
        fast.union(slow.rebalance(), name="joined").sink(ledger_sink(world), name="out")
    return p
