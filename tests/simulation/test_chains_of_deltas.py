"""Jobs with incremental state: deltas among failed and pending checkpoints, savepoints, damage and crashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.protocol.events import BarrierKind
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.job import Job
from dataflow.store.manifest import LOG
from tests.checkpoints import task_states
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import MODES

ROWS = 200
TABLE = pa.table({"x": range(ROWS), "text": [f"a row of many bytes, {x} " * 20 for x in range(ROWS)]})
FAULTS = Faults(crashes=4, skew=0.3, stall=0.01, slow=0.4, fail=0.05, damage=0.2)


def ask_for_savepoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask every job for a savepoint after its second checkpoint."""
    step, asked = Job.step, set[Job]()

    def step_and_request(job: Job) -> bool:
        if len(job.history.checkpoints) == 2 and job not in asked:
            asked.add(job)
            job.checkpoint(BarrierKind.SAVEPOINT)
        return step(job)

    monkeypatch.setattr(Job, "step", step_and_request)


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(1_000, MODES))
def test_a_chain_of_deltas_is_whole_whatever_happens(
    mode: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keep=1 and several checkpoints at once, those under way build on one that is replaced meanwhile."""
    faults = FAULTS
    if seed % 2 == 0:  # a savepoint is not restored on its own, so nothing may damage the only checkpoint beside it
        ask_for_savepoints(monkeypatch)
        faults = replace(FAULTS, damage=0.0)
    with flow.Pipeline("chain") as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=2, splits=2), name="in").rebalance()
        rows.sink(op.collect(), name="out", parallelism=1 + seed % 2)
    checkpoint = flow.Checkpointing(
        tmp_path / "ckpt", every="500us", keep=1 + seed % 2, max_concurrent=1 + seed % 3, mode=mode,
        tolerable_failures=None,
    )  # fmt: skip
    restarts = flow.Restarts.fixed(30, "0s")
    found = p.run(SimulatedRunner(seed, faults), checkpoint=checkpoint, restarts=restarts).table("out")["x"].to_pylist()
    assert set(found) == set(range(ROWS))
    assert len(found) == ROWS or mode == "unaligned"
    store = flow.DirectoryStore(tmp_path / "ckpt")
    for n in store.checkpoints():
        task_states(store, n)
    newest = store.checkpoints()[-1]
    held = [x for state in task_states(store, newest).values() for x in rows_of(state.operators.get("out"))]
    assert sorted(held) == sorted(found)


def rows_of(snapshot: flow.Snapshot | None) -> list[int]:
    logs = snapshot.logs["rows"] if snapshot else ()
    return [x for part in logs for x in part["rows"]["x"].to_pylist()]  # type: ignore[union-attr]


def test_the_runs_have_chains_whose_bases_belong_to_deleted_checkpoints() -> None:
    """The coverage of the test above: chains that outlive the checkpoints that wrote them do occur."""
    lengths = []
    for seed in range(4):
        with flow.Pipeline("chain") as p:
            rows = p.source(op.from_arrow(TABLE, batch_rows=1), name="in").rebalance()
            rows.sink(op.collect(), name="out", parallelism=1)
        store = flow.MemoryStore()
        checkpoint = flow.Checkpointing(store, every="500us", keep=1, max_concurrent=2)
        p.run(SimulatedRunner(seed, Faults(crashes=2, slow=0.3)), checkpoint=checkpoint)
        (newest,) = store.checkpoints()
        lengths.append(len([part for part in store.manifest(newest).parts if part.part == LOG and part.checkpoint]))
    assert max(lengths) > 1, lengths
