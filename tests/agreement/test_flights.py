"""The flights of 2013, all of them: per route and airline, and per airline and day of event time, against DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.demo.flights import prepare
from dataflow.runners.faults import Faults
from tests.agreement.data import by_key, near
from tests.agreement.running import Asked, aggregated, grouped, queried
from tests.seeds import in_soak, some_by_default

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

DELAYS = {
    "flights": Asked(op.count(), "count(*)"),
    "departed": Asked(col("delay").count(), "count(delay)"),
    "minutes": Asked(col("delay").sum(), "sum(delay)::bigint"),
    "mean": Asked(col("delay").mean(), "avg(delay)"),
    "variance": Asked(col("delay").variance(), "var_samp(delay)"),
    "earliest": Asked(col("delay").min(), "min(delay)"),
    "latest": Asked(col("delay").max(), "max(delay)"),
    "last": Asked(col("scheduled").max(), "max(scheduled)"),
}
WITH_TEXT = DELAYS | {
    "origins": Asked(col("origin").count_distinct(), "count(distinct origin)"),
    "first origin": Asked(col("origin").min(), "min(origin)"),
}
ASKED = {"folded": DELAYS, "as they come": WITH_TEXT}
DAYS = ["carrier", "window_start"]


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All flights, in two files in order of actual departure."""
    files = prepare(tmp_path_factory.mktemp("flights"))
    return [files.fast, files.slow]


@pytest.fixture(scope="module")
def expected(flights: list[str]) -> dict[str, Any]:
    """All days as DuckDB has them, by what is asked."""
    return {name: days_by_duckdb(flights, asked) for name, asked in ASKED.items()}


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The first 6,000."""
    files = prepare(tmp_path_factory.mktemp("flights"), limit=6_000)
    return [files.fast, files.slow]


def days(source: Any, asked: dict[str, Asked], delay: str) -> flow.Pipeline:
    """Flights per airline and day for which they were scheduled, which they left out of order."""
    with flow.Pipeline("days") as p:
        rows = p.source(source, name="flights").with_watermark("scheduled", delay=delay)
        aggregations = {name: one.aggregation for name, one in asked.items()}
        daily = rows.key_by("carrier").window(op.tumbling("1d")).agg(**aggregations, name="days")
        daily.sink(op.collect(), name="out")
    return p


def days_by_duckdb(files: list[str], asked: dict[str, Asked]) -> Any:
    aggregates = ", ".join(f'{one.sql} as "{name}"' for name, one in asked.items())
    found = queried(files, f"carrier, date_trunc('day', scheduled) as window_start, {aggregates}", "group by all")
    return near(by_key(found, DAYS))


@pytest.mark.parametrize(
    ("parallelism", "name"), some_by_default([(4, "folded"), (2, "as they come")], [1, 2, 4], list(ASKED))
)
def test_airlines_of_each_airport_agree(parallelism: int, name: str, flights: list[str]) -> None:
    keys, asked = ["origin", "carrier"], ASKED[name]
    found = aggregated(op.read_parquet(flights, dictionary=["carrier"]), keys, asked, parallelism=parallelism)
    assert by_key(found, keys) == near(by_key(grouped(flights, keys, asked), keys))


@pytest.mark.parametrize(
    ("parallelism", "asked"), some_by_default([(2, "folded"), (4, "as they come")], [1, 2, 4], list(ASKED))
)
def test_airlines_of_each_day_agree(parallelism: int, asked: str, flights: list[str], expected: dict[str, Any]) -> None:
    result = days(op.read_parquet(flights), ASKED[asked], delay="24h").run(parallelism=parallelism, timeout="60s")
    assert result.late == 0
    assert by_key(result.table("out").drop_columns(["window_end"]), DAYS) == expected[asked]


@pytest.mark.parametrize("seed", [1, *in_soak(0, 2)])
def test_airlines_of_each_day_agree_through_crashes(seed: int, january: list[str]) -> None:
    faults = Faults(crashes=2, skew=0.3, slices=0.1)
    mode = ("aligned", "unaligned-persisted", "aligned-timeout")[seed]
    job = days(op.read_parquet(january, batch_rows=500), WITH_TEXT, delay="24h").start(
        flow.SimulatedRunner(seed=seed, faults=faults),
        parallelism=2,
        checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode),
    )
    found = job.wait().table("out").drop_columns(["window_end"])
    assert by_key(found, DAYS) == days_by_duckdb(january, WITH_TEXT)
    assert any(attempt.restored is not None for attempt in job.attempts), "no life restored anything"


def test_flights_that_come_late_are_those_of_the_rule_and_all_others_are_in_the_table(january: list[str]) -> None:
    result = days(op.read_parquet(january[:1], batch_rows=12), DELAYS, delay="0s").run(parallelism=2, timeout="60s")
    scheduled = pq.read_table(january[0])["scheduled"].to_numpy()
    assert (sum(result.table("out")["flights"].to_pylist()), result.late) == split_by_lateness(scheduled, batch_rows=12)
    assert result.late > 0


def split_by_lateness(times: Any, batch_rows: int) -> tuple[int, int]:
    """How many times are not late, and how many are: their day ended before the latest of the batches before."""
    ends = (times.astype("datetime64[D]") + 1).astype(times.dtype)
    late, watermark = 0, times[0]
    for start in range(0, len(times), batch_rows):
        late += int((ends[start : start + batch_rows] <= watermark).sum())
        watermark = max(watermark, times[start : start + batch_rows].max())
    return len(times) - late, late


def test_departed_flights_are_copied_row_by_row(flights: list[str], tmp_path: Path) -> None:
    with flow.Pipeline("copies") as p:
        departed = p.source(op.read_parquet(flights), name="flights").filter(col("departure").is_not_null())
        hours = departed.with_columns(hour=col("departure").dt.hour(), late=col("delay") > 15)
        hours.sink(op.write_parquet(tmp_path / "copies"), name="copies")
    p.run(parallelism=2, timeout="60s", checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="20ms"))
    copies = f"select * from read_parquet('{tmp_path}/copies/*.parquet')"
    rows = f"select *, hour(departure) as hour, delay > 15 as late from read_parquet({flights})"
    expected = f"({rows} where departure is not null)"
    for one, other in [(copies, expected), (expected, copies)]:
        assert duckdb.sql(f"{one} except all {other}").fetchall() == []
