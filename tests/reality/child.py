"""A process to be killed: reads Parquet, filters, aggregates and copies rows to Parquet, with checkpoints.

    python child.py input/ work/ aligned --rate 400000

It prints ``running`` when its job has started and ``done`` when that has finished. Before ``running`` it appends what
it restored to ``work/restores.jsonl``: the checkpoint, and every row reported as delivered again, by operator.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import dataflow as flow
import operators as op
from dataflow import col

ROWS, TOTALS = "rows", "totals"


def pipeline(source: Any, work: Path) -> flow.Pipeline:
    """Two branches behind a filter: rows as they are, and running totals per key."""
    with flow.Pipeline("reality") as p:
        kept = p.source(source, name="orders").filter(col("amount") > 0)
        kept.select("id", "amount").rebalance().sink(op.write_parquet(work / "rows", row_group_rows=2_000), name=ROWS)
        totals = kept.key_by("key").agg(
            op.count().alias("n"), col("amount").sum().alias("total"), emit="updates", name=TOTALS
        )
        totals.sink(op.write_parquet(work / "totals"), name="changelog")
    return p


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("mode")
    parser.add_argument("--rate", type=float, default=300_000)
    parser.add_argument("--every", default="25ms")
    args = parser.parse_args()
    # Each row group has a rate of its own, so that barriers do not arrive together.
    source = op.paced(op.read_parquet(args.input), [args.rate * share for share in (0.3, 0.2, 0.1, 0.15)])
    checkpointing = flow.Checkpointing(args.work / "ckpt", every=args.every, mode=args.mode, duplicates="rows")
    with pipeline(source, args.work).start(parallelism=2, checkpoint=checkpointing) as job:
        if job.restore_report is not None:
            append(args.work / "restores.jsonl", job.restore_report)
        print("running", flush=True)
        job.wait()
    print("done", flush=True)


def append(path: Path, report: flow.RestoreReport) -> None:
    """One line, in one write: a kill leaves all of it or, seldom, a torn end."""
    rows = {name: table.to_pydict() for name in (ROWS, TOTALS) if (table := report.rows(name)) is not None}
    line = json.dumps({"checkpoint": report.checkpoint, "counts": dict(report.duplicated_by_operator), "rows": rows})
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


if __name__ == "__main__":
    main()
