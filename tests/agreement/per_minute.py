"""A process to be killed: the README's first pipeline, over the CSV file and in the directory that it is given.

    python per_minute.py orders.csv work/ 300000

The last argument is how many rows a second come. It prints ``starting``, ``running`` and ``done``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dataflow as flow
import operators as op
from dataflow import col


def main(orders: str, work: Path, rate: float) -> None:
    print("starting", flush=True)
    with flow.Pipeline("orders") as p:
        (
            p.source(op.paced(op.read_csv(orders, batch_rows=500), rate), name="orders")
            .filter(col("price") > 0)
            .with_watermark("time", delay="5s")
            .key_by("shop")
            .window(op.tumbling("1min"))
            .agg(op.count().alias("orders"), col("price").sum().alias("paid"), name="per-minute")
            .sink(op.write_parquet(work / "per-minute"), name="out")
        )
    checkpointing = flow.Checkpointing(work / "ckpt", every="40ms", min_pause="20ms", mode="aligned")
    with p.start(parallelism=2, checkpoint=checkpointing) as job:
        print("running", flush=True)
        result = job.wait()
    assert result.late == 0, f"{result.late} rows are late"
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
