"""A process that is stopped at a chosen point, so that another one can take its directories over.

    python handed_over.py work/ rows|snapshot|commit|none

It reads ``STEP`` rows, takes a checkpoint, reads ``STEP`` more, and prints ``here`` at the chosen point: with these
rows in a staged file; in a snapshot of the next checkpoint; or when that is durable and the sink is to commit it. It
continues when it reads a line, and prints ``done`` when it has finished.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Condition
from typing import Any

import pyarrow as pa

import dataflow as flow
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from operators.sinks.parquet import ParquetFormat, ParquetSink

ROWS, STEP = 1_000, 50
SCHEMA = pa.schema({"n": pa.int64()})


class Progress:
    """Up to where rows may be read and were taken. ``changed`` guards both."""

    changed = Condition()
    allowed = 0
    taken = 0
    stop_at = ""


def hand_over(point: str) -> None:
    """Wait for a line, if this is the point that was chosen."""
    if point == Progress.stop_at:
        Progress.stop_at = ""
        print("here", flush=True)
        sys.stdin.readline()


def read_until(row: int) -> None:
    """Let the source read up to ``row``, and wait until the operator has taken all of it."""
    with Progress.changed:
        Progress.allowed = row
        assert Progress.changed.wait_for(lambda: Progress.taken == row, timeout=60), f"{Progress.taken} of {row} rows"


class Numbers(Source):
    """0 .. ``ROWS`` - 1, as far as ``Progress`` allows."""

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def splits(self) -> Sequence[Split]:
        return [Split("numbers")]

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return Reader(offset)


class Reader(SplitReader):
    def __init__(self, offset: Any) -> None:
        self._row = offset or 0

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit | None:  # type: ignore[override]
        if self._row == ROWS:
            return END
        begin = self._row
        self._row = max(begin, min(begin + max_rows, begin + 10, Progress.allowed))  # nothing is allowed yet at first
        return pa.record_batch([pa.array(range(begin, self._row))], schema=SCHEMA) if self._row > begin else None

    @property
    def offset(self) -> Json:
        return self._row


class Noting(flow.Operator):
    """Notes the rows that it passes on."""

    stateless = True
    blocking = True

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)
        with Progress.changed:
            Progress.taken = batch["n"][-1].as_py() + 1
            Progress.changed.notify_all()

    def snapshot(self) -> flow.Snapshot:
        hand_over("snapshot")
        return flow.Snapshot()


class Committing(ParquetSink):
    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        hand_over("commit")
        super().commit(checkpoint, handles)


def main() -> None:
    work, point = Path(sys.argv[1]), sys.argv[2]
    sink = Committing(work / "out", ParquetFormat(compression="zstd", row_group_rows=10), rows=10)
    with flow.Pipeline("handed over") as p:
        p.source(Numbers(), name="numbers").apply(Noting, name="noting").rebalance().sink(sink, name="out")
    with p.start(checkpoint=flow.Checkpointing(work / "ckpt", every="1h"), restore="auto") as job:
        restored = job.restore_report
        begin = 0 if restored is None else restored.offsets["numbers/numbers"]
        if point != "none":
            read_until(begin + STEP)
            job.checkpoint()
            read_until(begin + 2 * STEP)
            Progress.stop_at = point
            hand_over("rows")
            job.checkpoint()
        read_until(ROWS)
        job.wait()
    print("done", flush=True)


if __name__ == "__main__":
    main()
