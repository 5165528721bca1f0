"""Nexmark queries over files of bids: the same tables as DuckDB's, types and values."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.sql import SQL, by_duckdb
from tests.nexmark.running import Files, differences, pipeline, written
from tests.seeds import in_soak

SHORT = Events(3_000, rate=100, group=100)
"""Half a minute around midnight, out of order by up to a second."""
GAPS = Events(3_000, rate=100, group=100, busy=700, silent=25)
"""The same with 25 seconds without an event after each 7 seconds."""
DAY = Events(2_500, rate=0.05)
"""Bids of 14 hours, so that each time of day occurs."""
OF_TEN_SECONDS = ("q5", "q7", "q10")
"""Queries with windows or folders by event time, of which a day has thousands."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """Files of the same bids in order, out of order and with gaps, and of bids of a long time."""
    folder = tmp_path_factory.mktemp("nexmark")
    streams = {"in order": Events(SHORT.count, SHORT.rate), "out of order": SHORT, "gaps": GAPS, "a day": DAY}
    return {name: written(events, folder / name) for name, events in streams.items()}


def test_each_query_has_one_in_sql() -> None:
    assert list(QUERIES) == list(SQL)


SOME = [("gaps", 2), ("a day", 1)]
MORE = [(arrival, n) for arrival in ("in order", "out of order", "gaps", "a day") for n in (1, 2, 4)]


@pytest.mark.parametrize("run", [*SOME, *in_soak(*[run for run in MORE if run not in SOME])], ids=str)
def test_answers_are_those_of_duckdb(files: dict[str, Files], run: tuple[str, int], tmp_path: Path) -> None:
    arrival, parallelism = run
    queries = [query for query in QUERIES if arrival != "a day" or query not in OF_TEN_SECONDS]
    result = pipeline(files[arrival], tmp_path, queries).run(parallelism=parallelism, timeout="120s")
    assert (result.late, result.partly_late) == (0, 0)
    assert differences(result, tmp_path, files[arrival], queries) == {}


@pytest.mark.parametrize("query", QUERIES)
def test_no_answer_is_empty(files: dict[str, Files], query: str) -> None:
    assert by_duckdb(query, files["out of order"]).num_rows > 0


def test_gaps_split_sessions(files: dict[str, Files]) -> None:
    sessions = [by_duckdb("q11", files[arrival]) for arrival in ("out of order", "gaps")]
    bidders = [len(table["bidder"].unique()) for table in sessions]
    assert sessions[0].num_rows < 1.5 * bidders[0]
    assert sessions[1].num_rows > 2 * bidders[1]


def test_each_time_of_day_occurs(files: dict[str, Files]) -> None:
    times = by_duckdb("q14", files["a day"])["bidTimeType"].unique().to_pylist()
    assert sorted(times) == ["dayTime", "nightTime", "otherTime"]
