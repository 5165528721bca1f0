"""A process to be killed: reads Parquet, filters, aggregates and copies rows to Parquet, with checkpoints.

    python child.py input/ work/ aligned --cost 40

Its rows come faster than they are taken: before either sink stands an operator that needs ``--cost`` microseconds a
row, so the channels to the row-wise sink and to the aggregate are full, of batches of ``--batch`` rows.

It prints ``starting`` before it builds (or restores) its job, ``running`` when that has started and ``done`` when it
has finished. Before ``running`` it appends what it restored to ``work/restores.jsonl``: the checkpoint, the rows put
back in flight by the operator they wait for, and every row reported as delivered again, by operator.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, OperatorContext, Out

ROWS, TOTALS = "rows", "totals"


class Slow(Operator):
    """Passes its rows on, ``cost`` microseconds a row."""

    stateless = True
    blocking = True

    def __init__(self, context: OperatorContext, cost: float) -> None:
        self._cost = cost

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        time.sleep(batch.num_rows * self._cost / 1e6)
        out.emit(batch)


def pipeline(source: Any, work: Path, cost: float = 0) -> flow.Pipeline:
    """Two branches behind a filter: rows as they are, and running totals per key. Both are slow before their sink.

    In the first branch a task stands between source and sink: rows that it took ahead of its barrier reach the sink
    ahead of the sink's own, and must be reported there.
    """
    slow = partial(Slow, cost=cost)
    with flow.Pipeline("reality") as p:
        kept = p.source(source, name="orders").filter(col("amount") > 0)
        rows = kept.select("id", "amount").rebalance().apply(slow, name="slow rows")
        rows.rebalance().sink(op.write_parquet(work / "rows", row_group_rows=2_000), name=ROWS)
        totals = kept.key_by("key").agg(
            op.count().alias("n"), col("amount").sum().alias("total"), emit="updates", name=TOTALS
        )
        totals.as_rows().apply(slow, name="slow totals").sink(op.write_parquet(work / "totals"), name="changelog")
    return p


def arguments() -> argparse.ArgumentParser:
    """Return a parser of the arguments that a killed process has first: see ``harness.Program``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("input", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("mode")
    return parser


def main() -> None:
    parser = arguments()
    parser.add_argument("--rate", type=float, default=600_000)
    parser.add_argument("--cost", type=float, default=40)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--every", default="25ms")
    parser.add_argument("--patience", default="50ms")
    args = parser.parse_args()
    # Each row group has a rate of its own, so that barriers do not arrive together.
    orders = op.read_parquet(args.input, batch_rows=args.batch)
    source = op.paced(orders, [args.rate * share for share in (0.3, 0.2, 0.1, 0.15)])
    checkpointing = flow.Checkpointing(
        args.work / "ckpt",
        every=args.every,
        min_pause="40ms",  # slow checkpoints would follow each other at once, and no kill would find none in progress
        mode=args.mode,
        alignment_timeout=args.patience if args.mode == "aligned-timeout" else None,
        duplicates="rows",
    )
    run(lambda: pipeline(source, args.work, args.cost), args.work, checkpointing, 2, (ROWS, TOTALS))


def run(
    build: Callable[[], flow.Pipeline],
    work: Path,
    settings: flow.Checkpointing,
    parallelism: int,
    operators: Collection[str],
) -> None:
    """Run a pipeline to its end, print how far it is, and write down what it restored, with rows of ``operators``."""
    print("starting", flush=True)
    with build().start(parallelism=parallelism, checkpoint=settings) as job:
        if job.restore_report is not None:
            append(work / "restores.jsonl", job.restore_report, operators)
        print("running", flush=True)
        job.wait()
    print("done", flush=True)


def append(path: Path, report: flow.RestoreReport, operators: Collection[str]) -> None:
    """Append one line, in one write: a kill leaves all of it or, seldom, a torn end. Rows are Arrow streams as text."""
    rows = {name: as_text(table) for name in operators if (table := report.rows(name)) is not None}
    in_flight: Counter[str] = Counter()
    for channel in report.in_flight:
        in_flight[channel.operator] += channel.rows
    line = json.dumps({"checkpoint": report.checkpoint, "in_flight": in_flight, "rows": rows})
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def as_text(table: pa.Table) -> str:
    """Return a table as an Arrow stream in base64."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(stream.getvalue()).decode()


if __name__ == "__main__":
    main()
