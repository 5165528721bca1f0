"""The same tables through crashes and restores: groups, windows and rows of every type, on seeded schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from tests.agreement.data import by_key, near, rows_of
from tests.agreement.running import ALL, FEW, Asked, grouped, queried
from tests.seeds import in_soak

RUN = (3, 2, "unaligned-persisted")
MORE = [
    (8, 1, "aligned"),
    (3, 2, "aligned-timeout"),
    (6, 4, "unaligned-persisted"),
    (2, 2, "unaligned-persisted"),
    (4, 4, "aligned"),
    (5, 2, "aligned"),
]
ASKED = FEW | {name: ALL[name] for name in ("texts", "least text", "most", "first text")}
IN_SQL = "where price > -400 or price is null"
CHOSEN = (col("price") > -400) | col("price").is_null()
DAY = 86_400 * 10**9
TIME = "timestamp[us, tz=Asia/Kolkata]"
WINDOWS = f'epoch_ns("{TIME}") - (epoch_ns("{TIME}") % {DAY} + {DAY}) % {DAY}'


def pipeline(files: list[str], asked: tuple[dict[str, Asked], ...], folder: Path, batch_rows: int) -> flow.Pipeline:
    """Groups by a dictionary and a float, windows of a day, and the rows themselves."""
    groups, days = ({name: one.aggregation for name, one in each.items()} for each in asked)
    with flow.Pipeline("restored") as p:
        kept = p.source(op.read_parquet(files, batch_rows=batch_rows), name="rows").filter(CHOSEN)
        kept.key_by(*KEYS).agg(**groups, name="groups").sink(op.collect(), name="all groups")
        timed = kept.filter(col(TIME).is_not_null()).with_watermark(TIME, delay="1000000h")
        daily = timed.key_by("decimal128(12, 2)").window(op.tumbling("24h"))
        daily.agg(**days, name="days").sink(op.collect(), name="all days")
        kept.rebalance().sink(op.write_parquet(folder), name="copies")
    return p


KEYS = ["dictionary<values=string, indices=int32, ordered=0>", "float"]


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize("run", [RUN, *in_soak(*MORE)], ids=str)
def test_tables_through_crashes_are_those_of_duckdb(
    run: tuple[int, int, str], files: list[str], tmp_path: Path
) -> None:
    seed, parallelism, mode = run
    asked = (FEW, ASKED) if seed % 2 else (ASKED, FEW)  # only those of FEW are folded
    p = pipeline(files, asked, tmp_path / "copies", batch_rows=(13, 50)[seed % 2])
    faults = Faults(crashes=2, skew=0.3, stall=0.01, slices=0.3)
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    job = p.start(flow.SimulatedRunner(seed=seed, faults=faults), parallelism=parallelism, checkpoint=checkpoint)
    result: Any = job.wait()
    assert by_key(result.table("all groups"), KEYS) == near(by_key(grouped(files, KEYS, asked[0], IN_SQL), KEYS))
    days = ["decimal128(12, 2)", "window_start"]
    found = result.table("all days").drop_columns(["window_end"])
    assert by_key(found, days) == near(by_key(daily(files, asked[1]), days))
    assert rows_of(op.read_committed(tmp_path / "copies")) == rows_of(queried(files, "*", IN_SQL))
    assert any(attempt.restored is not None for attempt in job.attempts), "no life restored anything"


def daily(files: list[str], asked: dict[str, Asked]) -> Any:
    """DuckDB's groups per day."""
    aggregates = ", ".join(f'{one.sql} as "{name}"' for name, one in asked.items())
    columns = f'"decimal128(12, 2)", {WINDOWS} as window_start, {aggregates}'
    return queried(files, columns, f'{IN_SQL.replace("where ", "where (")}) and "{TIME}" is not null group by all')
