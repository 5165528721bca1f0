"""One whole job: count, sum and max of 20 M generated bids per auction, from Parquet, beside DuckDB on two threads.

Every round runs DuckDB first and the pipeline second, so that a change of the machine's speed hits both; the ratio
(DuckDB's wall time over ours, above 1 is faster than DuckDB) of each pair is in ``extra_info``. Answers are compared
whole. With benchmarks disabled it runs once on 200,000 bids.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from benchmarks.jobs.ours import JOBS

ROUNDS = 7


@pytest.fixture(scope="module")
def bids(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """Two Parquet files with row groups of 1 Mi rows: half of the bids on 100 hot auctions, the rest over 100,000."""
    small = request.config.getoption("benchmark_disable") and not request.config.getoption("benchmark_enable")
    rows = 200_000 if small else 20_000_000
    folder = tmp_path_factory.mktemp("bids")
    rng = np.random.default_rng(20_260_000)
    for part in range(2):
        n = rows // 2
        auction = np.where(rng.random(n) < 0.5, rng.integers(0, 100, n), rng.integers(0, 100_000, n))
        price = np.round(10 ** (6 * rng.random(n)) * 100).astype(np.int64)
        pq.write_table(
            pa.table({"auction": auction, "price": price}), folder / f"bids-{part}.parquet", row_group_size=1 << 20
        )
    return f"{folder}/*.parquet", rows


def run_ours(bids: str, checkpoints: Path | None) -> pa.Table:
    with flow.Pipeline("bids per auction") as p:
        JOBS["J2"].stream(p, [Path(bids)], tuned=False).sink(op.collect(), name="out")
    checkpoint = None if checkpoints is None else flow.Checkpointing(checkpoints, every="1s")
    return p.run(parallelism=2, checkpoint=checkpoint).table("out")


def run_duckdb(bids: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set threads = 2")
        query = f"select auction, count(*) n, sum(price)::bigint total, max(price) top from '{bids}' group by auction"
        return connection.sql(query).to_arrow_table()


@pytest.mark.benchmark(group="end to end, wall time")
@pytest.mark.parametrize("checkpointed", [False, True], ids=["no checkpoints", "aligned every 1 s"])
def bench_totals_per_auction(benchmark: Any, bids: tuple[str, int], checkpointed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    pattern, rows = bids
    rounds = 1 if benchmark.disabled else ROUNDS
    run_ours(pattern, None)  # compiles the kernels
    theirs: list[float] = []
    ours: list[float] = []
    answers: dict[str, pa.Table] = {}

    def rival() -> tuple[tuple[Path | None], dict[str, Any]]:
        started = time.perf_counter()
        answers["duckdb"] = run_duckdb(pattern)
        theirs.append(time.perf_counter() - started)
        return (tmp_path / f"ckpt-{len(theirs)}" if checkpointed else None,), {}

    def measured(checkpoints: Path | None) -> None:
        started = time.perf_counter()
        answers["ours"] = run_ours(pattern, checkpoints)
        ours.append(time.perf_counter() - started)

    benchmark.pedantic(measured, setup=rival, rounds=rounds, iterations=1)
    assert answers["ours"].sort_by("auction").equals(answers["duckdb"].sort_by("auction"))
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    benchmark.extra_info["rows"] = rows
    benchmark.extra_info["M rows/s, median"] = round(rows / statistics.median(ours) / 1e6, 1)
    benchmark.extra_info["DuckDB M rows/s, median"] = round(rows / statistics.median(theirs) / 1e6, 1)
    benchmark.extra_info["DuckDB wall / ours, median"] = round(statistics.median(ratios), 2)
    benchmark.extra_info["DuckDB wall / ours, all"] = [round(r, 2) for r in ratios]
