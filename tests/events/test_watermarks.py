"""Watermarks in events: merged time at gates, time made at sources, and what holds it back."""

from __future__ import annotations

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.protocol.watermarks import MAX_WATERMARK

SECOND = 1_000_000


def watermarks(seed: int) -> dict[str, list[tuple[int, str | None]]]:
    """By task: each watermark recorded, and the split or channel that held it back."""
    table = pa.table({"t": pa.array([n * SECOND for n in range(300)], pa.timestamp("us")), "k": [0, 1, 2] * 100})
    with flow.Pipeline("windows") as p:
        rows = p.source(op.from_arrow(table, splits=2, batch_rows=7), name="in").with_watermark(
            "t", delay="2s", name="time"
        )
        windows = rows.key_by("k").window(op.tumbling("10s"))
        windows.agg(col("t").count().alias("n"), name="win").sink(op.collect(), name="out")
    settings = flow.Checkpointing(flow.MemoryStore(), every="5ms")
    result = p.run(flow.SimulatedRunner(seed), parallelism=2, checkpoint=settings)
    times: dict[str, list[tuple[int, str | None]]] = {}
    for row in result.events.table.to_pylist():
        if row["kind"] == "watermark":
            times.setdefault(row["task"], []).append((row["value"], row["channel"] or row["detail"]))
    return times


def test_each_rises_and_the_last_is_never_lost() -> None:
    times = watermarks(3)
    assert {task: [time for time, _ in each] for task, each in times.items()} == {
        task: sorted({time for time, _ in each}) for task, each in times.items()
    }
    assert {task: each[-1][0] for task, each in times.items()} == {
        "in[0]": 147 * SECOND,
        "in[1]": 297 * SECOND,
        "win[0]": MAX_WATERMARK,
        "win[1]": MAX_WATERMARK,
    }


def test_the_split_or_channel_that_is_behind_holds_it_back() -> None:
    times = watermarks(3)
    assert {held for _, held in times["in[0]"]} == {"rows-0-150"}
    behind = [held for time, held in times["win[0]"] if time < 140 * SECOND]
    assert behind
    assert set(behind) == {"in[0] -> win[0]"}
    assert times["win[0]"][-1][1] is None
