"""A row whose time is far ahead of the clock makes no other row late, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError

YEAR = 365 * 86_400
SCHEMA = pa.schema({"k": pa.string(), "at": pa.timestamp("s")})
ROWS = pa.table({"k": list("abcde"), "at": [50 * YEAR, 51 * YEAR, 230 * YEAR, 52 * YEAR, 53 * YEAR]}, SCHEMA)
"""The third row is of the year 2199."""
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def yearly(table: pa.Table = ROWS) -> flow.Pipeline:
    """Return a pipeline whose results are the keys of windows, late rows and rejected rows."""
    with flow.Pipeline("ahead") as p:
        rows = p.source(op.from_arrow(table, batch_rows=1), name="rows")
        timed = rows.with_watermark("at", ahead="1h", on_error="side", name="timed")
        timed.side("errors").sink(op.collect(), name="rejected")
        counts = timed.key_by("k").window(op.tumbling("1d")).agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="out")
        counts.side("late").sink(op.collect(), name="late")
    return p


def results(result: flow.RunResult) -> tuple[str, int, int]:
    keys = "".join(sorted(result.table("out")["k"].to_pylist()))
    return keys, result.table("late").num_rows, result.table("rejected").num_rows


def test_a_time_far_ahead_makes_no_row_late() -> None:
    assert results(yearly().run()) == ("abde", 0, 1)
    assert results(yearly().run(flow.SimulatedRunner(1, wall=NOON))) == ("abde", 0, 1)
    assert results(yearly().run(flow.SimulatedRunner(1, wall=NOON.replace(year=2200)))) == ("abc", 2, 0)
    assert results(yearly().run(execution="batch")) == ("abcde", 0, 0)


@pytest.mark.soak
def test_on_spark_a_time_far_ahead_makes_no_row_late(spark: Any, tmp_path: Path) -> None:
    """Of a streaming DataFrame, the last window stays open, because a later run may have more rows."""
    assert results(yearly().run("spark", parallelism=1, max_key_groups=2)) == ("abde", 0, 1)
    pq.write_table(
        ROWS.cast(pa.schema([SCHEMA.field("k"), pa.field("at", pa.timestamp("us"))])), tmp_path / "rows.parquet"
    )
    frame = spark.readStream.schema("k string, at timestamp_ntz").parquet(str(tmp_path))
    runner = flow.SparkRunner(spark, sources={"rows": frame})
    assert results(yearly().run(runner, parallelism=1, max_key_groups=2)) == ("abd", 0, 1)


def test_a_length_that_is_no_duration_is_refused() -> None:
    rows = flow.Pipeline().source(op.from_arrow(ROWS), name="rows")
    with pytest.raises(ConfigurationError, match=r"with_watermark\(ahead=\) must be a timedelta or text"):
        rows.with_watermark("at", ahead=3_600)  # type: ignore[arg-type]
