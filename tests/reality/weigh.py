"""A process that runs one pipeline over Parquet files and prints its peak resident memory in KiB.

    python weigh.py input/ work/ rows|totals fast|slow

``rows`` writes what the filter lets through, ``totals`` the changelog of a keyed aggregate; ``slow`` puts an operator
of one's own before the sink that takes 3 ms a batch.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col


class Slow(flow.Operator):
    """Passes batches on after a while."""

    stateless = True
    blocking = True

    def __init__(self, context: flow.OperatorContext) -> None:
        pass

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        time.sleep(0.003)
        out.emit(batch)


def main() -> None:
    orders, work, shape, pace = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    with flow.Pipeline("weigh") as p:
        rows = p.source(op.read_parquet(orders, batch_rows=4_096), name="orders").filter(col("amount") > 0)
        if shape == "totals":
            totals = [op.count().alias("n"), col("amount").sum().alias("total")]
            rows = rows.key_by("key").agg(*totals, emit="updates", name="totals")
        if pace == "slow":
            rows = rows.as_rows().rebalance().apply(Slow, name="slow", parallelism=1)
        rows.sink(op.write_parquet(work / "out", row_group_rows=8_192), name="out")
    p.run(parallelism=2, checkpoint=flow.Checkpointing(work / "ckpt", every="100ms", mode="aligned"))
    status = Path("/proc/self/status").read_text()
    print(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]


if __name__ == "__main__":
    main()
