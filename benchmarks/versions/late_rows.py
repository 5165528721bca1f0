"""A job with late rows, in a process of its own. It runs with the library of any checkout: it uses public names only.

Each batch has rows on time and rows that come after the watermark, in windows, sessions and a join. Reads a `Task` as
JSON and prints CPU and wall seconds, and the number of late rows, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op

KEYS, BATCH = 100, 10_000
SECOND = 1_000_000
LATE_BY = 100 * SECOND


def rows(count: int, percent: float, seed: int) -> pa.Table:
    """Return rows a millisecond apart; ``percent`` of them are 100 s older than the rows beside them."""
    rng = np.random.default_rng(seed)
    at = np.arange(count) * 1_000 + LATE_BY
    at[rng.random(count) < percent / 100] -= LATE_BY
    columns = {"k": rng.integers(0, KEYS, count), "at": pa.array(at, pa.timestamp("us")), "x": np.arange(count)}
    return pa.table(columns)


def job(kind: str, count: int, percent: float) -> flow.Pipeline:
    """Return the pipeline ``kind``: windows, sessions, or a join of rows in the same time."""
    with flow.Pipeline("late rows") as p:
        inputs = [
            p.source(op.from_arrow(rows(count, percent, seed), batch_rows=BATCH), name=f"rows {seed}")
            .with_watermark("at")
            .key_by("k")
            for seed in ((0, 1) if kind == "join" else (0,))
        ]
        total = flow.col("x").sum().alias("total")
        if kind == "windows":
            found = inputs[0].window(op.tumbling("1s")).agg(total)
        elif kind == "sessions":
            found = inputs[0].window(op.session("50ms")).agg(total)
        else:
            found = inputs[0].join(inputs[1], on="k", within=("0us", "1ms"))
        found.sink(op.collect(), name="out")
    return p


def main() -> None:
    """Run the task on standard input twice, and measure the second run."""
    task = json.load(sys.stdin)
    job(task["kind"], 2 * BATCH, task["percent"]).run()
    pipeline = job(task["kind"], task["rows"], task["percent"])
    spent, started = time.process_time(), time.perf_counter()
    result = pipeline.run(parallelism=1)
    wall, cpu = time.perf_counter() - started, time.process_time() - spent
    late = sum(metrics.late for metrics in result.operators)
    print(json.dumps({"wall": wall, "cpu": cpu, "late": late}))


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    main()
