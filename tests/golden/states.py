"""The job of the kept directories ``states-*``: every kind of operator that keeps state, with a base and deltas.

``python -m tests.golden.states`` writes the archives.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runners.simulated import SimulatedRunner
from dataflow.store.manifest import LOG
from tests.golden.archives import pack
from tests.keeping_state import SCHEMA, STREAMS, sample

__all__ = ["KEPT", "MODES", "Answer", "answer", "pipeline", "states_with_deltas"]

MODES = ("aligned", "unaligned-persisted")
KEPT = "states-{}"
STEPS = 12
ENOUGH = 6
"""The checkpoint at which a job stops."""

Answer = dict[str, list[tuple[object, ...]]]


def rows(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.Table.from_batches([sample(rng, 100 * step) for step in range(STEPS)], SCHEMA)


def pipeline() -> flow.Pipeline:
    """Results do not depend on how rows are cut into batches: of changes, the net rows are compared."""
    with flow.Pipeline("states") as p:
        inputs = [
            p.source(op.from_arrow(rows(seed), batch_rows=20), name=f"rows {seed}")
            .with_watermark("at", delay="160us")
            .key_by("k")
            for seed in range(2)
        ]
        for name, stream in STREAMS.items():
            result = stream(*inputs, name)
            sink = op.collect(net=result.changes == "signed")
            result.sink(sink, name=f"{name}, out")
    return p


def answer(result: flow.RunResult) -> Answer:
    """The rows of each result; of results that come as updates, the last ones of each key."""
    found: Answer = {}
    for name in STREAMS:
        columns = result.table(f"{name}, out").to_pylist()
        if name in UPDATED:
            columns = list({tuple(row[key] for key in UPDATED[name] if key in row): row for row in columns}.values())
        found[name] = sorted([tuple(row.values()) for row in columns], key=repr)
    return found


UPDATED = dict.fromkeys(
    ("aggregate that expires", "triggered windows", "sessions in panes", "all rows in panes"), ("k", "window_start")
)
"""Results of which a key has several rows, and its key: which ones come in between depends on the batches."""


def states_with_deltas(directory: Path, checkpoint: int) -> set[str]:
    """The tasks whose log in a checkpoint needs older objects."""
    parts = flow.DirectoryStore(directory).manifest(checkpoint).parts
    return {part.task for part in parts if part.part == LOG and part.checkpoint}


def main() -> None:
    for mode in MODES:
        for seed in count():
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder, "work")
                work.mkdir()
                settings = flow.Checkpointing(work / "ckpt", every="2ms", mode=mode, keep=1)
                job = pipeline().start(SimulatedRunner(seed), parallelism=2, checkpoint=settings)
                asked = count(1)
                job.stop_when(lambda state, asked=asked: next(asked) >= ENOUGH)
                job.wait()
                store = flow.DirectoryStore(work / "ckpt")
                last = store.checkpoints()[-1]
                flying = store.manifest(last).summary.get("in_flight_rows", 0)
                with_deltas = {task.rpartition("[")[0] for task in states_with_deltas(work / "ckpt", last)}
                print(mode, seed, last, flying, len(with_deltas))
                if len(with_deltas) >= len(STREAMS) - 2 and (flying > 0) == (mode != "aligned"):
                    for path in work.rglob("FENCE"):
                        path.unlink()  # it names this machine
                    print(pack(work, KEPT.format(mode)))
                    break


if __name__ == "__main__":
    main()
