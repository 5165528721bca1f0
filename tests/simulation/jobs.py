"""Small jobs on seeded schedules: what the tests of whole jobs are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

import dataflow as flow
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import StoreError
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.store.manifest import Manifest
from dataflow.testing import Ledger, Pause

__all__ = ["MODES", "LoggedLedger", "LoggedStore", "batches", "paced_script", "simulate", "singles"]

MODES = [mode.value for mode in Mode]


def batches(*values: Iterable[int]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"x": pa.array(list(each), pa.int64())}) for each in values]


def paced_script(start: int, count: int) -> list[Any]:
    """Rows start .. start + count - 1, one a batch, with pauses between."""
    return [entry for b in batches(*([x] for x in range(start, start + count))) for entry in (Pause(3), b)]


class LoggedStore(flow.MemoryStore):
    """Tells when a life begins, and when a checkpoint comes to exist."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def open(self, run_id: str = "run") -> None:
        super().open(run_id)
        self.log.append("open")

    def commit(self, manifest: Manifest) -> None:
        super().commit(manifest)
        self.log.append(f"manifest {manifest.checkpoint}")


class LoggedLedger(Ledger):
    """Tells when it commits, as "``label`` checkpoint", and refuses the first ``refuse`` times."""

    def __init__(self, store: LoggedStore, label: str = "commit", refuse: int = 0) -> None:
        super().__init__(durable=store.checkpoints)
        self.log = store.log
        self.refuse = refuse
        self._label = label

    def commit(self, checkpoint: int, handles: Sequence[Any]) -> None:
        if self.refuse:
            self.refuse -= 1
            raise StoreError("not now")
        super().commit(checkpoint, handles)
        self.log.append(f"{self._label} {checkpoint}")


def simulate(
    p: flow.Pipeline,
    store: flow.MemoryStore,
    seed: int,
    faults: Faults | None = None,
    mode: str = "aligned",
    *,
    every: str = "4ms",
    keep: int = 50,
    **options: Any,
) -> Sequence[Attempt]:
    job = SimulatedRunner(seed, faults or Faults(), max_turns=100_000).start(
        p,
        parallelism=2,
        checkpoint=flow.Checkpointing(store, every=every, mode=mode, keep=keep, duplicates="rows"),
        **options,
    )
    job.wait()
    return job.attempts


def singles(world: Ledger) -> list[int]:
    return sorted(row[0] for row in world.rows().elements())
