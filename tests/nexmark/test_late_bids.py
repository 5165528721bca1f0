"""Bids delayed beyond the watermark: with those on time they are the input; answers are those of the bids on time."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from benchmarks.nexmark.answers import add_queries
from benchmarks.nexmark.events import Events, Sources
from dataflow import col
from tests.nexmark.running import Files, differences, written

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

EVENTS = Events(4_000, rate=100, group=100, one_in=15, delay=1_500)
"""One event in 15 comes 15 seconds later, some 10 seconds after the watermark passed it. No two have the same time."""
WITHOUT_WINDOWS = ["q0", "q12", "q15"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(EVENTS, tmp_path_factory.mktemp("nexmark") / "bids", files=2)


def run(files: Files, parallelism: int, *queries: str) -> flow.RunResult:
    """Run queries, and beside them the times of the bids that are on time and late for windows of 10 seconds."""
    with flow.Pipeline("late bids") as p:
        sources = Sources(p, files, batch_rows=50)
        add_queries(sources, queries)
        windows = sources.stream("bids").key_by("bidder").window(op.tumbling("10s"))
        times = windows.agg(times=col("dateTime").to_list(), name="times")
        times.sink(op.collect(), name="on time")
        times.side("late").sink(op.collect(), name="late")
    return p.run(parallelism=parallelism, timeout="60s")


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_bids_on_time_and_late_bids_partition_the_input(files: Files, parallelism: int) -> None:
    result = run(files, parallelism)
    late = result.table("late")["dateTime"].to_pylist()
    on_time = [time for times in result.table("on time")["times"].to_pylist() for time in times]
    assert len(late) == result.operator("times").late
    assert sorted(on_time + late) == sorted(EVENTS.table("bids")["dateTime"].to_pylist())
    assert late or parallelism > 1, "no bid is late"


def test_windows_have_the_answer_over_the_bids_on_time(files: Files, tmp_path: Path) -> None:
    result = run(files, 1, "q7")
    assert result.operator("q7 windows").late == result.operator("times").late > 0
    assert differences(result, without(result.table("late"), files, tmp_path), ["q7"]) == {}
    assert list(differences(result, files, ["q7"])) == ["q7"], "no late bid matters"


def test_queries_without_windows_of_event_time_lose_nothing(files: Files) -> None:
    result = run(files, 2, *WITHOUT_WINDOWS)
    assert differences(result, files, WITHOUT_WINDOWS) == {}


def without(late: pa.Table, files: Files, folder: Path) -> Files:
    """Write the bids that are not late."""
    bids = duckdb.read_parquet([str(path) for path in files["bids"]])
    on_time = duckdb.sql('from bids anti join late using ("dateTime")').to_arrow_table()
    pq.write_table(on_time, folder / "on time.parquet")
    assert on_time.num_rows == len(bids) - late.num_rows
    return {"bids": [folder / "on time.parquet"]}
