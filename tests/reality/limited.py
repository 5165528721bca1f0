"""A process that reaches its file size limit while a job runs, and has it lifted later.

    python limited.py work/

It prints how many checkpoints failed, and how many different numbers were committed.
"""

from __future__ import annotations

import resource
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.errors import BarrierflowWarning
from operators.sinks.parquet import read_committed

ROWS = 120_000


def main() -> None:
    work = Path(sys.argv[1])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    polled = iter(range(1_000_000))

    def limited(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = next(polled)
        if at == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, resource.RLIM_INFINITY))
        elif at == 40:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return batch

    noise = np.random.default_rng(1).random(ROWS)
    table = pa.table({"n": np.arange(ROWS), "noise": noise})
    with flow.Pipeline("limited") as p:
        source = op.paced(op.from_arrow(table), 200_000)
        p.source(source, name="numbers").map_batches(limited).sink(op.write_parquet(work / "out"), name="out")
    warnings.simplefilter("ignore", BarrierflowWarning)
    result = p.run(checkpoint=flow.Checkpointing(work / "ckpt", every="20ms", tolerable_failures=None))
    print(len(result.failures), len(set(read_committed(work / "out")["n"].to_pylist())))


if __name__ == "__main__":
    main()
