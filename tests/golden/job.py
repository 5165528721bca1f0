"""The job whose directories are kept here: sources, functions, aggregates, windows and sinks of several kinds.

It reads its files through a filesystem that begins at its directory, so a checkpoint names no place on a machine.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

import dataflow as flow
import operators as op
from dataflow import col

__all__ = ["OUTPUTS", "Rows", "make_input", "outputs", "pipeline"]

Rows = list[dict[str, Any]]

OUTPUTS = ("rows", "totals", "windows", "ends")
ROWS = 1_200
"""Of each source."""
BATCH = 50
ORDERS = pa.schema({"id": pa.int64(), "key": pa.string(), "amount": pa.int64()})


def orders(first: int, rows: int = ROWS) -> list[tuple[int, str, int]]:
    return [(n, f"k{n * n % 37:02}", n * 31 % 1_009) for n in range(first, first + rows)]


def table(rows: Sequence[tuple[int, str, int]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=ORDERS)


def make_input(directory: Path) -> None:
    """Write the input files, two of each kind."""
    for name in ("csv", "json", "parquet"):
        (directory / name).mkdir(parents=True)
    half = ROWS // 2
    for part in range(2):
        with (directory / f"csv/{part}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([ORDERS.names, *orders(10_000 + part * half, half)])
        lines = [json.dumps(dict(zip(ORDERS.names, row, strict=True))) for row in orders(20_000 + part * half, half)]
        (directory / f"json/{part}.jsonl").write_text("\n".join(lines) + "\n")
        pq.write_table(table(orders(30_000 + part * half, half)), directory / f"parquet/{part}.parquet")


def counted(position: Any) -> Iterator[tuple[list[tuple[int, str, int]], int]]:
    for first in range(position or 0, ROWS, BATCH):
        yield orders(40_000 + first, BATCH), first + BATCH


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "amount": row["amount"] * 2}


class Tally(flow.Operator):
    """Counts rows per last digit of their ids, and emits that at the end."""

    def __init__(self, context: flow.OperatorContext) -> None:
        restored = context.restored
        self._counts = Counter[str](restored.values["counts"] if restored is not None else {})  # type: ignore[arg-type]

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self._counts.update(str(n % 10) for n in batch["id"].to_pylist())

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot({"counts": dict(self._counts)})

    def finish(self, out: flow.Out) -> None:
        digits = sorted(self._counts)
        out.emit(pa.record_batch({"digit": digits, "n": pa.array([self._counts[d] for d in digits], pa.int64())}))


def pipeline(directory: Path) -> flow.Pipeline:
    """The job that reads ``directory/in`` and writes the ``OUTPUTS`` beside it."""
    files: dict[str, Any] = {
        "filesystem": fs.SubTreeFileSystem(str(directory / "in"), fs.LocalFileSystem()),
        "batch_rows": BATCH,
    }
    events = op.generate(
        {
            "user": op.choice(["ann", "bob", "eve"]),
            "value": op.integers(0, 1_000),
            "at": op.event_times("2026-01-01", rate="10/s", disorder="3s"),
        },
        rows=ROWS,
        seed=5,
        splits=2,
        batch_rows=BATCH,
    )
    with flow.Pipeline("golden") as p:
        parsed = p.source(op.read_csv("csv", **files), name="csv").map(doubled, name="doubled")
        lines = p.source(op.read_json("json", **files), name="json").map_batches(same, name="same lines")
        stored = p.source(op.read_parquet("parquet", **files), name="parquet").map_batches(same, name="same stored")
        held = p.source(op.from_arrow(table(orders(50_000)), splits=2, batch_rows=BATCH), name="arrow")
        made = p.source(op.from_generator(counted, schema=ORDERS), name="generator").map_batches(same, name="same made")
        rows = stored.union(held.map_batches(same, name="same held"), made, name="together").rebalance()
        rows.map_batches(same, name="queued").sink(op.write_parquet(directory / "rows"), name="rows")
        totals = parsed.union(lines, name="texts").filter(col("amount") > 10).key_by("key")
        totals.agg(
            op.count().alias("n"),
            col("amount").sum().alias("total"),
            col("amount").min().alias("least"),
            col("amount").max().alias("most"),
            col("amount").mean().alias("mean"),
            col("amount").count_distinct().alias("distinct"),
            col("amount").last(by="id").alias("newest"),
            emit="final",
            name="totals",
        ).sink(op.write_csv(directory / "totals"), name="totals-out")
        timed = p.source(events, name="events").map_batches(same, name="same events").with_watermark("at", delay="3s")
        windows = timed.key_by("user").window(op.tumbling("10s"))
        windows.agg(op.count().alias("n"), col("value").sum().alias("total"), emit="final", name="windows").sink(
            op.write_json(directory / "windows"), name="windows-out"
        )
        tallied = pa.schema({"digit": pa.string(), "n": pa.int64()})
        ends = held.apply(Tally, schema=tallied, name="tally", parallelism=1)
        ends.sink(op.write_ipc(directory / "ends"), name="ends-out")
    return p


def outputs(directory: Path) -> dict[str, Rows]:
    """Return the committed rows of each output of the job in ``directory``, sorted."""
    return {name: sorted(op.read_committed(directory / name).to_pylist(), key=repr) for name in OUTPUTS}
