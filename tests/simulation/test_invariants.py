"""Jobs, tasks and gates assert their invariants after every step of a simulation: with a fault put back, one fails.

That they hold without a fault is asserted by every other test here.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from tests.protocol.faults_put_back import (
    align_for_withdrawn_checkpoints,
    commit_before_the_manifest,
    keep_aborted_snapshots,
    keep_durable_attempts,
)
from tests.seeds import in_soak
from tests.simulation.jobs import simulate

PutBack = Callable[[pytest.MonkeyPatch], None]

FOUND = [
    pytest.param(
        align_for_withdrawn_checkpoints,
        "unaligned",
        r"waits for the barriers of \d+, but takes none below \d+",
        id="a gate waits for the barriers of a checkpoint that was given up",
    ),
    pytest.param(
        keep_aborted_snapshots,
        "unaligned-persisted",
        r"\d+ is recorded, but only .* are unsettled|waits for the channel state of",
        id="a task keeps the copied state of a checkpoint that was given up",
    ),
    pytest.param(
        keep_durable_attempts,
        "aligned",
        r"under way are .*, but the history has attempts at \(\d+,",
        id="a job keeps the bookkeeping of a durable checkpoint",
    ),
    pytest.param(
        commit_before_the_manifest,
        "aligned",
        r"committed is 1, but the newest durable one is 0",
        id="a job passes on a commit before the checkpoint is durable",
    ),
]


def counted(mode: str) -> None:
    """Run a job whose writes fail often, so that many checkpoints are given up, under a few seeds."""
    for seed in range(12):
        with flow.Pipeline("counting") as p:
            table = pa.table({"x": range(24), "k": [x % 3 for x in range(24)]})
            rows = p.source(op.from_arrow(table, splits=2, batch_rows=2), name="in")
            rows.key_by("k").agg(n=op.count(), emit="final", name="count").sink(op.collect(), name="out")
        faults = Faults(fail=0.2, skew=0.5)
        simulate(p, flow.MemoryStore(), seed, faults, mode, every="100us", restarts=flow.Restarts.fixed(100, "0s"))


@pytest.mark.parametrize(("put_back", "mode", "message"), FOUND)
def test_a_step_that_breaks_an_invariant_ends_the_simulation(
    put_back: PutBack, mode: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        counted(mode)


@pytest.mark.parametrize("mode", [*in_soak("aligned", "unaligned"), "unaligned-persisted"])
def test_without_a_fault_they_hold(mode: str) -> None:
    counted(mode)
