"""A restart in another mode than the one that took the checkpoint: the checkpoint says what it holds, not the mode."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.testing import Ledger, delivered_again, ledger_sink
from tests.seeds import each_once_with_seeds, seeds
from tests.simulation.jobs import MODES, singles
from tests.simulation.workloads import Dawdler

ROWS = 240


def behind_full_queues(world: Ledger) -> flow.Pipeline:
    """A source that is faster than what comes behind it, through two hops that can be overtaken."""
    with flow.Pipeline("queues") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2, splits=3), name="in")
        slow = rows.rebalance().apply(lambda context: Dawdler(context, 40), name="slow")
        slow.rebalance().sink(ledger_sink(world), name="out")
    return p


def dies_and_goes_on(world: Ledger, seed: int, taken: str, other: str) -> Sequence[Attempt]:
    store = flow.MemoryStore()
    faults = Faults(
        crashes=1, crash_at=["step"], crash_after=[1], skew=0.5, restart_with=[settings(store, mode=Mode(other))]
    )
    job = SimulatedRunner(seed, faults, max_turns=100_000).start(
        behind_full_queues(world), parallelism=2, checkpoint=settings(store, mode=Mode(taken)), channel_credit=4
    )
    job.wait()
    assert [attempt.mode for attempt in job.attempts] == [Mode(taken), Mode(other)]
    return job.attempts


def settings(store: flow.MemoryStore, *, mode: Mode) -> flow.Checkpointing:
    patience = "1ms" if mode is Mode.ALIGNED_TIMEOUT else None
    return flow.Checkpointing(store, every="4ms", mode=mode, alignment_timeout=patience, duplicates="rows")


@pytest.mark.parametrize(("seed", "taken", "other"), each_once_with_seeds(3, MODES, [*MODES[1:], MODES[0]]))
def test_what_a_checkpoint_holds_counts_once_whatever_the_mode_of_the_restart(
    seed: int, taken: str, other: str
) -> None:
    world = Ledger()
    attempts = dies_and_goes_on(world, seed, taken, other)
    again = [x for (x,) in delivered_again(attempts, "out").elements()]
    assert singles(world) == sorted([*range(ROWS), *again])


@pytest.mark.parametrize(
    ("seed", "other", "taken"), each_once_with_seeds(2, MODES, ["unaligned-persisted", "aligned-timeout"])
)
def test_rows_that_were_in_flight_are_put_back_whatever_the_mode_of_the_restart(
    seed: int, taken: str, other: str
) -> None:
    restored = dies_and_goes_on(Ledger(), seed, taken, other)[1].restored
    assert restored is not None
    assert (restored.mode, restored.in_flight_rows > 0, restored.duplicated()) == (Mode(taken), True, 0)


def counted(world: Ledger) -> flow.Pipeline:
    """Rows that are folded before they reach an aggregate, unless a restore must report them as they were."""
    with flow.Pipeline("counts") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2, splits=3), name="in")
        keyed = rows.with_columns(k=col("x") % 5, name="keys").key_by("k")
        keyed.agg(n=op.count(), s=col("x").sum(), emit="final", name="sums").sink(ledger_sink(world), name="out")
    return p


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_restart_in_mode_unaligned_reports_rows_although_the_first_attempt_folded_them(seed: int) -> None:
    world, store = Ledger(), flow.MemoryStore()
    others = [settings(store, mode=Mode.UNALIGNED)]
    faults = Faults(crashes=4, crash_at=["step"], crash_after=[1], skew=0.8, joins=1.0, restart_with=others)
    runner = SimulatedRunner(seed, faults, max_turns=100_000)
    job = runner.start(counted(world), parallelism=2, checkpoint=settings(store, mode=Mode.ALIGNED))
    job.wait()
    again = [x for (x, _), n in delivered_again(job.attempts, "sums").items() for _ in range(n)]
    rows = pa.table({"x": [*range(ROWS), *again]})
    assert sum(n for _, n, _ in world.rows()) == rows.num_rows
    assert sum(s for _, _, s in world.rows()) == sum(rows["x"].to_pylist())
