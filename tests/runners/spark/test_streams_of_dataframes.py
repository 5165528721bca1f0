"""Streaming DataFrames under keys, windows, joins, unions and process functions: the rows of a local run, and restarts.

Time moves between micro-batches. The last rows come long after all others, so what is over before them has come out.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import (
    AwaitedSplitsWarning,
    CheckpointMismatch,
    ConfigurationError,
    NothingToReadWarning,
    UnknownSplitsWarning,
    UnsupportedOnRunner,
)
from dataflow.runners.run_result import RunResult
from dataflow.runners.spark.split_times import SplitRule, SplitTimes
from tests.agreement.data import rows_of

N, FILES = 900, 6
LAST = 10_000_000_000
"""The time of the last rows, in microseconds."""
SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "at": pa.timestamp("us")})
DDL = "k string, x bigint, at timestamp_ntz"


def clicks(seed: int) -> pa.Table:
    """Rows out of order by up to three seconds, and one last row of each key."""
    draw = np.random.default_rng(seed)
    at = np.arange(N) * 100_000 - draw.integers(0, 3_000_000, N)
    keys = draw.choice(["a", "b", "c", ""], N)
    rows = pa.table({"k": keys, "x": draw.integers(-9, 9, N), "at": pa.array(at, pa.timestamp("us"))})
    last = pa.table({"k": ["a", "b", "c", ""], "x": [0] * 4, "at": pa.array([LAST] * 4, pa.timestamp("us"))})
    return pa.concat_tables([rows.cast(SCHEMA), last.cast(SCHEMA)])


def write(folder: Path, table: pa.Table, which: range = range(FILES)) -> Path:
    folder.mkdir(exist_ok=True)
    size = -(-N // FILES)
    for number in which:
        part = table.slice(number * size, size) if number < FILES - 1 else table.slice(number * size)
        put(folder, number, part)
    return folder


def put(folder: Path, number: int, rows: pa.Table) -> None:
    """Write a file that Spark takes after those of lower numbers: it goes by the times of files."""
    pq.write_table(rows, folder / f"{number}.parquet")
    os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)


def streamed(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder)).repartition(3)


def pipeline(left: pa.Table, right: pa.Table) -> flow.Pipeline:
    with flow.Pipeline("streams") as p:
        one = p.source(op.from_arrow(left, batch_rows=50), name="left").with_watermark("at", delay="4s")
        two = p.source(op.from_arrow(right, batch_rows=50), name="right").with_watermark("at", delay="4s")
        windows = one.key_by("k").window(op.hopping("10s", every="5s"))
        counts = windows.agg(n=op.count(), x=col("x").sum(), first=col("x").arg_min("x"), name="windows")
        counts.sink(op.collect(), name="hopping")
        counts.window(op.tumbling("20s")).agg(n=col("n").sum(), name="wide").sink(op.collect(), name="again")
        both = one.union(two, name="both").key_by("k").window(op.session("1500ms"))
        both.agg(n=op.count(), name="sessions").sink(op.collect(), name="session")
        joined = one.join(two, on="k", within=("-1s", "1s"), name="joined")
        joined.window(op.tumbling("30s")).agg(n=op.count()).sink(op.collect(), name="pairs")
        two.key_by("k").agg(n=op.count(), x=col("x").sum(), emit="changes").sink(op.collect(net=True), name="totals")
        one.rebalance().filter(col("x") > 7).sink(op.collect(), name="spread")
    return p


def settled(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows that do not hang on the last ones."""
    for name in ("window_end", "at"):
        if name in table.column_names:
            times = table[name].cast(pa.int64()).to_numpy()
            return rows_of(table.filter(pa.array(times < LAST)))
    return rows_of(table)


def agree(found: RunResult, expected: RunResult) -> None:
    assert (found.late, expected.late) == (0, 0)
    for name in expected.tables:
        assert found.table(name).schema.equals(expected.table(name).schema)
        assert settled(found.table(name)) == settled(expected.table(name)), name
        assert len(settled(expected.table(name))) > 0, name


def test_operators_with_state_may_follow_a_streaming_dataframe(spark: Any, tmp_path: Path) -> None:
    left, right = clicks(1), clicks(2)
    p = pipeline(left, right)
    frames = {
        "left": streamed(spark, write(tmp_path / "left", left)),
        "right": streamed(spark, write(tmp_path / "right", right)),
    }
    found = p.run(flow.SparkRunner(spark, sources=frames), max_key_groups=4)
    agree(found, p.run())
    assert found.rows_in == {"left": N + 4, "right": N + 4}


def test_a_later_run_goes_on_with_the_state_and_the_time_of_the_one_before(spark: Any, tmp_path: Path) -> None:
    rows, out = clicks(3), tmp_path / "out"
    with flow.Pipeline("restarts") as p:
        timed = p.source(op.spark_table(SCHEMA), name="rows").with_watermark("at", delay="4s")
        counts = timed.key_by("k").window(op.tumbling("10s")).agg(n=op.count(), x=col("x").sum(), name="windows")
        counts.sink(op.write_parquet(out), name="out")
    for first in range(0, FILES, 2):
        folder = write(tmp_path / "in", rows, range(first, first + 2))
        runner = flow.SparkRunner(spark, sources={"rows": streamed(spark, folder)})
        p.run(runner, max_key_groups=4, checkpoint=flow.Checkpointing(tmp_path / "job"))
    with flow.Pipeline("expected") as whole:
        timed = whole.source(op.from_arrow(rows), name="rows").with_watermark("at", delay="4s")
        timed.key_by("k").window(op.tumbling("10s")).agg(n=op.count(), x=col("x").sum()).sink(op.collect(), name="out")
    assert settled(pa.Table.from_batches(op.read_committed(out).to_batches())) == settled(whole.run().table("out"))


def test_rows_are_late_only_if_an_earlier_micro_batch_was_later(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, seconds in enumerate([[50, 10, 40], [20, 44, 46], [90]]):
        at = pa.array([1_000_000 * second for second in seconds], pa.timestamp("us"))
        rows = pa.table({"k": ["a"] * len(seconds), "x": seconds, "at": at})
        put(tmp_path / "in", number, rows)
    with flow.Pipeline("late") as p:
        timed = p.source(op.spark_table(SCHEMA), name="rows").with_watermark("at", delay="5s")
        windows = timed.key_by("k").window(op.tumbling("10s")).agg(rows=col("x").to_list(), name="windows")
        windows.sink(op.collect(), name="out")
        windows.side("late").select("x").sink(op.collect(), name="late")
    runner = flow.SparkRunner(spark, sources={"rows": streamed(spark, tmp_path / "in")})
    found = p.run(runner, max_key_groups=2)
    assert sorted(map(sorted, found.table("out")["rows"].to_pylist())) == [[10], [40, 44, 46], [50]]
    assert (found.late, found.table("late")["x"].to_pylist()) == (1, [20])


def test_a_null_time_fails_or_is_left_out(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    at = pa.array([None, 1_000_000, 99_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"k": ["a"] * 3, "x": [1, 2, 3], "at": at}), tmp_path / "in" / "0.parquet")
    for on_error in ("fail", "skip"):
        with flow.Pipeline("nulls") as p:
            timed = p.source(op.spark_table(SCHEMA), name="rows").with_watermark("at", on_error=on_error)
            timed.key_by("k").window(op.tumbling("10s")).agg(n=op.count()).sink(op.collect(), name="out")
        runner = flow.SparkRunner(spark, sources={"rows": streamed(spark, tmp_path / "in")})
        if on_error == "fail":
            with pytest.raises(ValueError, match="the event time 'at' is null"):
                p.run(runner, max_key_groups=2)
        else:
            found = p.run(runner, max_key_groups=2)
            assert (found.table("out")["n"].to_pylist(), found.skipped) == ([1], 1)


# --- splits


SECONDS = {"a": [[10, 20, 30], [40], [50]], "b": [[1, 2], [3], [31, 90]]}
"""By split, the event times (seconds) in each file: that of split b is far behind."""


def put_splits(folder: Path) -> Path:
    folder.mkdir()
    for number in range(3):
        parts = [(split, second) for split, files in SECONDS.items() for second in files[number]]
        names, seconds = [name for name, _ in parts], [second for _, second in parts]
        at = pa.array([1_000_000 * second for second in seconds], pa.timestamp("us"))
        put(folder, number, pa.table({"k": ["k"] * len(parts), "x": seconds, "at": at, "part": names}))
    return folder


def of_splits(spark: Any, folder: Path, **options: Any) -> flow.SparkRunner:
    frame = spark.readStream.schema(f"{DDL}, part string").option("maxFilesPerTrigger", 1).parquet(str(folder))
    return flow.SparkRunner(spark, sources={"rows": flow.SparkSource(frame.repartition(2), **options)})


def tens() -> flow.Pipeline:
    with flow.Pipeline("splits") as p:
        timed = p.source(op.spark_table(SCHEMA), name="rows").with_watermark("at")
        windows = timed.key_by("k").window(op.tumbling("10s")).agg(rows=col("x").to_list(), name="windows")
        windows.sink(op.collect(), name="out")
        windows.side("late").select("x").sink(op.collect(), name="late")
    return p


def test_each_split_has_a_watermark_and_the_source_the_least_of_them(spark: Any, tmp_path: Path) -> None:
    folder = put_splits(tmp_path / "in")
    one = tens().run(of_splits(spark, folder), max_key_groups=2)
    assert sorted(one.table("late")["x"].to_pylist()) == [3, 31]
    many = tens().run(of_splits(spark, folder, split_by="part", splits=["a", "b"]), max_key_groups=2)
    assert many.late == 0
    assert sorted(map(sorted, many.table("out")["rows"].to_pylist())) == [[1, 2, 3], [10], [20], [30, 31], [40]]


def test_named_splits_hold_time_back_until_their_first_row(spark: Any, tmp_path: Path) -> None:
    runner = of_splits(spark, put_splits(tmp_path / "in"), split_by=("k", "part"), splits=[("k", "a"), ("k", "never")])
    with pytest.warns(
        AwaitedSplitsWarning, match=r'names 1 split without any row yet, \["k","never"\], for which time waits'
    ):
        found = tens().run(runner, max_key_groups=2)
    assert (found.late, found.table("out").num_rows) == (0, 0)
    assert "such as open windows, has not come out" in str(found)


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("string", ["x", None, 'ü/\x1f\u2028"']),
        pytest.param("boolean", [True, False], marks=pytest.mark.soak),
        pytest.param("double", [1e20, float("nan"), 0.1, None], marks=pytest.mark.soak),
        pytest.param("bigint", [1, None], marks=pytest.mark.soak),
        pytest.param("decimal(9, 2)", [Decimal("1.50")], marks=pytest.mark.soak),
        pytest.param("date", [date(2024, 2, 29)], marks=pytest.mark.soak),
        pytest.param("timestamp_ntz", [datetime(2024, 2, 29, 1, 2, 3, 40)], marks=pytest.mark.soak),
    ],
)
def test_splits_are_named_by_values_of_their_type(spark: Any, tmp_path: Path, ddl: str, values: list[Any]) -> None:
    folder = tmp_path / "in"
    for number in (0, 1):
        rows = [("k", number, 100.0 * number, value) for value in values]
        frame = spark.createDataFrame(rows, f"k string, x bigint, at double, part {ddl}").coalesce(1)
        frame = frame.selectExpr("k", "x", "timestamp_seconds(at)::timestamp_ntz as at", "part")
        frame.write.mode("append").parquet(str(folder))
    files = spark.readStream.schema(f"{DDL}, part {ddl}").option("maxFilesPerTrigger", 1).parquet(str(folder))
    runner = flow.SparkRunner(spark, sources={"rows": flow.SparkSource(files, split_by="part", splits=values)})
    found = tens().run(runner, max_key_groups=1)
    assert found.table("out")["rows"].to_pylist() == [[0] * len(values)]
    wrong = flow.SparkSource(files, split_by="part", splits=[(object(),)])
    with pytest.raises(ConfigurationError, match=rf"expected values of part {ddl.split('(')[0]}.*, found"):
        tens().run(flow.SparkRunner(spark, sources={"rows": wrong}), max_key_groups=1)


def test_a_stream_that_had_nothing_to_read_says_so(spark: Any) -> None:
    with flow.Pipeline("rate") as p:
        rows = p.source(op.spark_table(pa.schema({"value": pa.int64()})), name="rate")
        rows.sink(op.collect(), name="out")
    runner = flow.SparkRunner(spark, sources={"rate": spark.readStream.format("rate").load()})
    with pytest.warns(
        NothingToReadWarning, match=r"no rows for 'rate' when .* op.spark_table\(schema, bounded=False\)"
    ):
        assert p.run(runner).rows_in == {"rate": 0}


@pytest.mark.parametrize("execution", ["streaming", "batch"])
def test_what_is_no_dataframe_is_refused_by_its_type(spark: Any, execution: str) -> None:
    for given, name in (("in", "str"), (None, "NoneType"), (pa.table({"x": [1]}), r"pyarrow\.lib\.Table")):
        runner = flow.SparkRunner(spark, sources={"rows": given})
        with pytest.raises(
            ConfigurationError, match=rf"expected a .*DataFrame of Spark's, found an object of type {name}"
        ):
            tens().run(runner, execution=execution)


def test_columns_that_differ_only_in_case_are_refused(spark: Any) -> None:
    frame = spark.sql("select 'a' k, 'b' K, 1L x, timestamp_ntz'2024-01-01' at")
    with pytest.raises(UnsupportedOnRunner, match="has the columns 'k' and 'K', which Spark takes for one; rename"):
        tens().run(flow.SparkRunner(spark, sources={"rows": frame}), execution="batch")
    frame = spark.sql("select 'b' K, 1L x, timestamp_ntz'2024-01-01' at")
    with pytest.raises(UnsupportedOnRunner, match=r"column 'k' is missing \(did you mean 'K'\?\)"):
        tens().run(flow.SparkRunner(spark, sources={"rows": frame}), execution="batch")


@pytest.mark.soak
def test_a_later_run_knows_the_splits_of_the_one_before(spark: Any, tmp_path: Path) -> None:
    whole, part = put_splits(tmp_path / "whole"), tmp_path / "part"
    part.mkdir()
    job, out = flow.Checkpointing(tmp_path / "job"), Counter[str]()
    for number in range(3):
        put(part, number, pq.read_table(whole / f"{number}.parquet"))
        runner = of_splits(spark, part, split_by="part", splits=["a", "b"])
        found = tens().run(runner, max_key_groups=2, checkpoint=job)
        out = Counter(map(repr, map(sorted, found.table("out")["rows"].to_pylist())))
    assert out == Counter(map(repr, [[1, 2, 3], [10], [20], [30, 31], [40]]))
    with pytest.raises(CheckpointMismatch, match=r"sources=\) for \['rows by part'\], found \['rows'\]"):
        tens().run(of_splits(spark, part), max_key_groups=2, checkpoint=job)


def test_a_silent_split_holds_nothing_back_if_the_pipeline_says_so(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, rows in enumerate([[("a", 10), ("b", 1)], [("a", 30)], [("b", 2), ("a", 35)]]):
        at = pa.array([1_000_000 * second for _, second in rows], pa.timestamp("us"))
        names, seconds = [name for name, _ in rows], [second for _, second in rows]
        put(folder, number, pa.table({"k": ["k"] * len(rows), "x": seconds, "at": at, "part": names}))
    found = {}
    for idle_after in (None, "1ms"):
        with flow.Pipeline("silence") as p:
            timed = p.source(op.spark_table(SCHEMA), name="rows").with_watermark("at", idle_after=idle_after)
            windows = timed.key_by("k").window(op.tumbling("10s")).agg(rows=col("x").to_list(), name="windows")
            windows.sink(op.collect(), name="out")
            windows.side("late").select("x").sink(op.collect(), name="late")
        result = p.run(of_splits(spark, folder, split_by="part", splits=["a", "b"]), max_key_groups=2)
        found[idle_after] = [sorted(map(sorted, result.table("out")["rows"].to_pylist())), result.late]
    assert found == {None: [[], 0], "1ms": [[[1], [10]], 1]}


def test_splits_count_as_their_rule_says() -> None:
    times = SplitTimes({0: SplitRule(["b"], idle_after=50, close_after=20)}, {})
    assert times.take(0, {"a": 100}, now=0) is None  # b is awaited
    assert times.take(0, {"a": 110}, now=49) is None
    assert times.take(0, {"a": 120}, now=50) == 120  # b has been silent for too long
    assert times.take(0, {}, now=75) == 145  # a is closed: its watermark goes on with the clock
    assert times.take(0, {}, now=100) == 170
    assert times.is_silent(0, 100)
    assert times.take(0, {"b": 90}, now=110) == 90  # a is idle; a step back is ignored by the tasks
    assert not times.is_silent(0, 110)
    stored = SplitTimes({}, times.stored()["split_times"])
    assert stored.take(0, {}, now=10_000) == 90
    assert SplitTimes({}, {}).stored() == {}


def test_splits_that_are_not_named_are_warned_of(spark: Any, tmp_path: Path) -> None:
    folder = put_splits(tmp_path / "in")
    with pytest.warns(UnknownSplitsWarning, match="'rows' count from their first row on"):
        found = tens().run(of_splits(spark, folder, split_by="part"), max_key_groups=2)
    assert found.late == 0  # both are in the first micro-batch
    with pytest.raises(ConfigurationError, match=r"split_by=\): there is no column 'parts' .did you mean 'part'"):
        tens().run(of_splits(spark, folder, split_by="parts"))
    with pytest.raises(ConfigurationError, match=r"expected values of k, part, found \('a',\); write a tuple"):
        flow.SparkSource(None, split_by=("k", "part"), splits=["a"])
