"""The job of the kept directory ``chain``: its checkpoints need a base and deltas of deleted ones.

``python -m tests.golden.chain`` writes the archive.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runners.simulated import SimulatedRunner
from tests.golden.archives import pack

__all__ = ["CHAIN", "ROWS", "pipeline"]

CHAIN = "chain"
ROWS = pa.table({"x": range(400), "text": [f"row {i} " * 5 for i in range(400)]})


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("chain") as p:
        p.source(op.from_arrow(ROWS, batch_rows=4), name="in").rebalance().sink(op.collect(), name="out", parallelism=1)
    return p


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        job = pipeline().start(SimulatedRunner(3), checkpoint=flow.Checkpointing(work / "ckpt", every="1ms", keep=2))
        job.stop_when(lambda state: state.table("out").num_rows >= 200)
        job.wait()
        for path in work.rglob("FENCE"):
            path.unlink()  # it names this machine
        print(pack(work, CHAIN))


if __name__ == "__main__":
    main()
