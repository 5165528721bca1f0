"""Bids delayed beyond the watermark: with those on time they are the input; answers are those of the bids on time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from benchmarks.nexmark.answers import add_queries, difference
from benchmarks.nexmark.events import Events, Sources
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.sql import by_duckdb
from dataflow import col
from tests.nexmark.running import Files, differences, written
from tests.seeds import in_soak

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

EVENTS = Events(4_000, rate=100, group=100, one_in=15, delay=2_000, busy=1_500, silent=30)
"""Of the first half one event in 15 comes 20 seconds later, which is too late for each window that it belongs to.

No two events have the same time.
"""
MORE_LATE = replace(EVENTS, one_in=8, seed=1)
"""So many are late that some people have no auction on time."""
WINDOWS: dict[str, flow.Window] = {
    "tumbling": op.tumbling("10s"),
    "q5 counts": op.hopping("10s", every="2s"),
    "q11 sessions": op.session("10s"),
}
WITH_WINDOWS = {"q5": "q5 counts", "q7": "q7 highest", "q11": "q11 sessions"}
"""The windows of event time of queries."""
WITHOUT_WINDOWS = [query for query in QUERIES if query not in (*WITH_WINDOWS, "q8")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(EVENTS, tmp_path_factory.mktemp("nexmark") / "bids", files=2)


def run(files: Files, folder: Path, parallelism: int, *queries: str) -> flow.RunResult:
    """Run queries, and beside them the times of the bids that are on time and late for each kind of window."""
    with flow.Pipeline("late bids") as p:
        sources = Sources(p, files, batch_rows=50)
        add_queries(sources, queries, folder)
        for kind, window in WINDOWS.items():
            windows: Any = sources.stream("bids").key_by("bidder").window(window)
            times = windows.agg(times=col("dateTime").to_list(), name=f"times {kind}")
            times.sink(op.collect(), name=f"on time {kind}")
            times.side("late").sink(op.collect(), name=f"late {kind}")
    return p.run(parallelism=parallelism, timeout="60s")


@pytest.mark.parametrize("parallelism", [1, 4, *in_soak(2)])
def test_bids_on_time_and_late_bids_partition_the_input(files: Files, parallelism: int, tmp_path: Path) -> None:
    result = run(files, tmp_path, parallelism)
    every = sorted(EVENTS.table("bids")["dateTime"].to_pylist())
    for kind in WINDOWS:
        late = result.table(f"late {kind}")["dateTime"].to_pylist()
        lists = result.table(f"on time {kind}")["times"].to_pylist()
        on_time = {time for times in lists for time in times}  # a bid is in several windows that overlap
        assert len(late) == result.operator(f"times {kind}").late
        assert sorted([*on_time, *late]) == every, kind
        assert late or parallelism > 1, f"{kind}: no bid is late"


def test_queries_with_windows_have_the_answer_over_the_bids_on_time(files: Files, tmp_path: Path) -> None:
    result = run(files, tmp_path, 1, *WITH_WINDOWS)
    late = {kind: result.table(f"late {kind}") for kind in WINDOWS}
    assert [result.operator(name).late for name in WITH_WINDOWS.values()] == [table.num_rows for table in late.values()]
    assert len({table.num_rows for table in late.values()}) == 1
    assert (result.partly_late, result.split_sessions) == (0, 0)
    on_time = {"bids": without(late["tumbling"], files, tmp_path, "bids")}
    assert differences(result, tmp_path, on_time, WITH_WINDOWS) == {}
    assert list(differences(result, tmp_path, files, WITH_WINDOWS)) == list(WITH_WINDOWS), "no late bid matters"


@pytest.mark.parametrize("queries", [WITHOUT_WINDOWS[::4], *in_soak(WITHOUT_WINDOWS)], ids=" ".join)
def test_queries_without_windows_of_event_time_lose_nothing(files: Files, queries: list[str], tmp_path: Path) -> None:
    result = run(files, tmp_path, 2, *queries)
    assert differences(result, tmp_path, files, queries) == {}


@pytest.mark.parametrize("parallelism", [1, 2, *in_soak(4)])
def test_a_join_of_windows_has_the_answer_over_the_events_on_time(parallelism: int, tmp_path: Path) -> None:
    files = written(MORE_LATE, tmp_path / "events", files=2)
    with flow.Pipeline("late people") as p:
        sources = Sources(p, files, batch_rows=50)
        people, auctions = sources.stream("people"), sources.stream("auctions")
        sellers = auctions.key_by("seller").window(op.tumbling("10s")).agg(auctions=op.count(), name="sellers")
        new = people.join(sellers, left_on="id", right_on="seller", window=op.tumbling("10s"), name="new")
        new.select("id", "name", "window_start").sink(op.collect(), name="q8")
        late = {"auctions": sellers.side("late"), "people": new.side("late"), "sellers": new.side("late_right")}
        for kind, stream in late.items():
            stream.sink(op.collect(), name=f"late {kind}")
    result = p.run(parallelism=parallelism, timeout="60s")
    on_time = {kind: without(result.table(f"late {kind}"), files, tmp_path, kind) for kind in ("auctions", "people")}
    assert result.table("late sellers").num_rows == 0, "a count is not later than the rows that it counts"
    assert difference(result.table("q8"), by_duckdb("q8", on_time)) is None
    assert difference(result.table("q8"), by_duckdb("q8", files)) or parallelism > 1, "no late event matters"


def without(late: pa.Table, files: Files, folder: Path, kind: str) -> list[Path]:
    """Write the events of a kind that are not late."""
    events = duckdb.read_parquet([str(path) for path in files[kind]])
    on_time = duckdb.sql('from events anti join late using ("dateTime")').to_arrow_table()
    path = folder / f"{kind} on time.parquet"
    pq.write_table(on_time, path)
    assert on_time.num_rows == len(events) - late.num_rows
    return [path]
