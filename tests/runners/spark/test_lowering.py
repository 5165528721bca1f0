"""Operators that Spark computes itself in a batch give what the local engine gives, cell by cell; others say why not.

All kinds of joins, and aggregates of nothing: ``pytest -m soak tests/runners/spark/test_lowering.py``. Random
pipelines: ``tests/agreement/test_batches_on_spark.py``.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.execution import Execution
from dataflow.errors import ConfigurationError, InputChanged, NewSparkAppWarning, SourceError
from dataflow.expressions import Aggregation
from dataflow.planning.physical_plan import executed_graph
from dataflow.runners.run_result import RunResult
from dataflow.runners.spark.batch.start import batch_plan
from dataflow.runners.spark.expressions.spark_types import carrier
from dataflow.runners.spark.lowering import reason_against
from dataflow.runners.spark.native_readers import NativeReaders
from tests.agreement.data import POOLS, cells, generated, write_files

READ: list[pa.DataType] = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.large_binary()),
    *(pa.date32(), pa.decimal128(12, 2), pa.decimal128(38, 10)),
    *(pa.timestamp(unit, zone) for unit in ("us", "ms") for zone in (None, "UTC")),
    pa.timestamp("us", "Asia/Kolkata"),
]
"""The types that Spark reads from Parquet as we do."""
SOAK = pytest.mark.soak
PLAIN = ("count", "count_distinct", "min", "max", "sum", "mean", "variance", "stddev")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of all types that Spark reads, in files with empty row groups and such of one row."""
    table = generated(3)
    at = pa.array([1_000 * (n * n % 1_701) - 300_000 for n in range(table.num_rows)], pa.timestamp("ms"))
    folder = tmp_path_factory.mktemp("lowering")
    write_files(table.select(["n", "k", "price", *map(str, READ)]).append_column("at", at), folder)
    return folder


def native(p: flow.Pipeline) -> set[str]:
    """The operators that Spark computes itself."""
    cut = batch_plan(p, 2, 2, None, "explain", NativeReaders({})).cut
    assert cut is not None
    return set(cut.native)


def label(word: str, field: pa.Field) -> str:
    """A name of an operator for a column, whose name may have a type's brackets."""
    return f"{word} {field.name}".translate({ord("["): "(", ord("]"): ")", ord("/"): "-"})


def both(spark: Any, p: flow.Pipeline) -> tuple[RunResult, RunResult]:
    return p.run(flow.SparkRunner(spark), execution="batch"), p.run(execution="batch")


def agree(spark: Any, p: flow.Pipeline, near: Sequence[str] = ()) -> None:
    """Raise AssertionError where the tables of the two runners differ; ``near``: columns equal to nine digits."""
    found, expected = both(spark, p)
    assert found.rows_in == expected.rows_in
    assert found.rows_out == expected.rows_out
    assert expected.tables
    for name in expected.tables:
        assert found.table(name).schema.equals(expected.table(name).schema), name
        exact = [column for column in expected.table(name).column_names if column not in near]
        assert ordered(found.table(name), exact, near) == ordered(expected.table(name), exact, near), name


def ordered(table: pa.Table, exact: Sequence[str], near: Sequence[str]) -> list[Any]:
    """The rows, in an order of their exact columns; floats of the others with nine digits."""
    columns = [cells(table[name]) for name in exact]
    columns += [
        [f"{cell:.9g}" if isinstance(cell, float) and not math.isinf(cell) else cell for cell in cells(table[name])]
        for name in near
        if name in table.column_names
    ]
    return sorted(zip(*columns, strict=True), key=repr)


def aggregates(schema: pa.Schema) -> dict[str, Aggregation]:
    """Every aggregate that Spark computes, of every column, with and without a condition."""
    some = col("n") % 3 == 0
    made: dict[str, Aggregation] = {"rows": op.count(), "some": op.count(where=some)}
    for field in schema:
        for kind in PLAIN:
            whole, part = (getattr(col(field.name), kind)(where=where) for where in (None, some))
            overflows = kind == "sum" and field.type in (pa.int64(), pa.decimal128(38, 10)) and field.name != "price"
            unlike = kind == "count_distinct" and pa.types.is_floating(field.type)
            if whole.takes(schema) and not overflows and not unlike:
                made |= {f"{field.name} {kind}": whole, f"{field.name} {kind} of some": part}
    made |= {"ddof 0": col("price").variance(ddof=0), "ddof 3": col("price").stddev(ddof=3)}
    return made


@pytest.mark.parametrize("over", ["keys", pytest.param("all", marks=SOAK), pytest.param("nothing", marks=SOAK)])
def test_every_aggregate_of_every_type(spark: Any, files: Path, over: str) -> None:
    with flow.Pipeline("aggregates") as p:
        rows = p.source(op.read_parquet(files), name="rows")
        every = list(aggregates(rows.schema).items())
        some = rows.filter(col("n") < 0, name="some") if over == "nothing" else rows
        for at in range(0, len(every), 50):  # the local engine computes at most 61 at once
            grouped = some.key_by("k") if over == "keys" else some
            made = grouped.agg(**dict(every[at : at + 50]), emit="final", name=f"from {at}")
            made.sink(op.collect(), name=f"out {at}")
    assert len(every) > 150
    assert native(p) - {"some"} == {"rows", *(f"from {at}" for at in range(0, len(every), 50))}
    rounded = ("mean", "variance", "std", "ddof")
    agree(spark, p, near=[name for name, _ in every if any(word in name for word in rounded)])


def test_the_mean_of_decimals_whose_sum_has_too_many_digits(spark: Any, tmp_path: Path) -> None:
    most = Decimal(f"{'9' * 28}.{'9' * 10}")
    rows = {"k": [1, 1, 1, 2, 2], "d": pa.array([most, most, most, Decimal("1.5"), None], pa.decimal128(38, 10))}
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    with flow.Pipeline("means") as p:
        read = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        read.key_by("k").agg(m=col("d").mean(), emit="final", name="means").sink(op.collect(), name="out")
    assert native(p) == {"rows", "means"}
    agree(spark, p, near=["m"])
    with flow.Pipeline("sums") as p:
        read = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        read.key_by("k").agg(m=col("d").sum(), emit="final", name="sums").sink(op.collect(), name="out")
    assert native(p) == {"rows", "sums"}
    for runner in (flow.SparkRunner(spark), "local"):
        with pytest.raises(
            OverflowError, match=r"sums: the sum 'm' .*does not fit into decimal128\(38, 10\): cast its"
        ):
            p.run(runner, execution="batch")


@pytest.mark.parametrize(
    "type_", [pa.decimal128(28, 10), pa.decimal128(29, 2), pa.decimal128(38, 2), pa.decimal128(38, 37)], ids=str
)
def test_sums_of_decimals_keep_the_digits_after_the_point(spark: Any, tmp_path: Path, type_: pa.DataType) -> None:
    least = Decimal(1).scaleb(-type_.scale)
    values = [Decimal(2).scaleb(type_.precision - type_.scale - 1), least, least, -3 * least, 5 * least, None]
    with localcontext(prec=38):
        values = [value if value is None else value.quantize(least) for value in values]
    pq.write_table(pa.table({"k": [1, 1, 2, 2, 1, 3], "d": pa.array(values, type_)}), tmp_path / "x.parquet")
    with flow.Pipeline("sums") as p:
        read = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        read.key_by("k").agg(s=col("d").sum(), emit="final", name="sums").sink(op.collect(), name="out")
    assert native(p) == {"rows", "sums"}
    agree(spark, p)


def test_keys_of_every_type(spark: Any, files: Path) -> None:
    with flow.Pipeline("keys") as p:
        rows = p.source(op.read_parquet(files), name="rows")
        for field in rows.schema:
            asked = {"rows": op.count(), "least": col("n").min()}
            counted = rows.key_by(field.name).agg(**asked, emit="final", name=label("by", field))
            counted.sink(op.collect(), name=label("out", field))
    assert len(native(p)) == 1 + len(rows.schema)
    agree(spark, p)


WINDOWS: list[flow.Window] = [
    op.tumbling("7s"),
    op.tumbling("10s", offset="3s"),
    op.tumbling("1ms"),
    op.hopping("10s", every="5s"),
    op.hopping("10s", every="4s", offset="1s"),
    op.hopping("7ms", every="7ms"),
    op.cumulate("20s", every="5s"),
    op.cumulate("20s", every="4s", offset="2s"),
]


def test_windows_are_numbered_as_ours(spark: Any, files: Path) -> None:
    with flow.Pipeline("windows") as p:
        rows = p.source(op.read_parquet(files), name="rows").with_watermark("at", name="timed")
        for number, window in enumerate(WINDOWS):
            counted = rows.key_by("k").window(window).agg(n=op.count(), x=col("price").sum(), name=f"w{number}")
            counted.sink(op.collect(), name=f"out {number}")
            again = counted.window(op.tumbling("1min")).agg(n=col("n").sum(), name=f"again {number}")
            again.sink(op.collect(), name=f"out again {number}")
        same = counted.key_by("n").window(op.same_window()).agg(keys=op.count(), name="same")
        same.sink(op.collect(), name="out same")
        top = rows.key_by("k").window(op.hopping("10s", every="4s")).top(2, by=["price", "n"], ties="all", name="top")
        top.sink(op.collect(), name="out top")
        panes = rows.key_by("k").window(op.tumbling("9s"), early=op.after_rows(2)).agg(n=op.count(), name="panes")
        panes.sink(op.collect(), name="out panes")
        signed = rows.key_by("k").window(op.tumbling("9s")).agg(n=op.count(), emit="changes", name="signed")
        signed.sink(op.collect(), name="out signed")
    of_windows = {f"{word}{number}" for word in ("w", "again ") for number in range(len(WINDOWS))}
    assert native(p) == {"rows", "timed", "same", "top", "panes", "signed", *of_windows}
    agree(spark, p)


@pytest.mark.parametrize("zone", [None, pytest.param("UTC", marks=SOAK), "Asia/Kolkata"])
def test_times_before_1970_and_of_all_units_are_in_their_windows(spark: Any, tmp_path: Path, zone: str | None) -> None:
    ticks = [0, -1, 1, 9_999, 10_000, -10_000, -10_001, 1_700_000_000_123, -62_000_000_000_000, 250_000_000_000_000]
    with flow.Pipeline("units") as p:
        for unit in ("ms", "us"):
            pq.write_table(pa.table({"at": pa.array(ticks, pa.timestamp(unit, zone))}), tmp_path / f"{unit}.parquet")
            rows = p.source(op.read_parquet(tmp_path / f"{unit}.parquet"), name=unit).with_watermark("at")
            for window in (op.tumbling("10ms"), op.hopping("10s", every="2500us"), op.cumulate("1d", every="8h")):
                few = rows if window.lengths != (10_000_000, 2_500, 0) else rows.filter(col("at").is_null())
                few.window(window).agg(n=op.count()).sink(op.collect(), name=f"{unit} {window}".replace("/", ""))
    agree(spark, p)


@pytest.mark.parametrize("how", [*(pytest.param(how, marks=SOAK) for how in ("inner", "left", "right")), "full"])
def test_joins_of_every_kind(spark: Any, files: Path, how: Any) -> None:
    types = ["k", "int32", "float", "double", "string", "timestamp[us, tz=UTC]", "decimal128(12, 2)", "dictionary"]
    final: dict[str, Any] = {} if how == "inner" else {"emit": "final"}
    with flow.Pipeline("joins") as p:
        rows = p.source(op.read_parquet(files), name="rows")
        some = rows.filter(col("n") % 5 == 0, name="some")
        others = rows.filter(col("n") % 7 == 0, name="others")
        made = {"rows", "some", "others", "left", "right", "left times", "right times"}
        for field in rows.schema:
            if any(field.name.startswith(word) for word in types):
                joined = some.join(others, on=field.name, how=how, **final, name=label("by", field))
                joined.sink(op.collect(), name=label("out", field))
                made.add(label("by", field))
        left = some.select("k", "at", "n", name="left").with_watermark("at", name="left times")
        right = others.select("k", "at", "price", name="right").with_watermark("at", name="right times")
        for number, window in enumerate([op.tumbling("1min"), op.hopping("1min", every="25s")]):
            windowed = left.join(right, on="k", how=how, window=window, name=f"w{number}")
            windowed.sink(op.collect(), name=f"in windows {number}")
        timed = left.join(right, on="k", how=how, within=("-40s", "2min"), name="timed")
        timed.sink(op.collect(), name="in time")
        left.join(right, on="k", how=how, ttl="40s", name="living").sink(op.collect(), name="less than a ttl apart")
        itself = left.join(left, on="k", how=how, within=("0s", "20s"), name="itself")
        itself.sink(op.collect(), name="with itself")
    signed = set() if how == "inner" else {"living/changes"}
    assert native(p) == made | {"w0", "w1", "timed", "living", "itself"} | signed
    agree(spark, p)


@pytest.mark.parametrize("ties", [pytest.param("arrival", marks=SOAK), "all"])
def test_the_first_rows_of_keys(spark: Any, files: Path, ties: Any) -> None:
    with flow.Pipeline("tops") as p:
        rows = p.source(op.read_parquet(files), name="rows")
        for number, field in enumerate(rows.schema):
            by = [field.name] if ties == "all" or field.name == "n" else [field.name, "n"]
            chosen = rows.select(*{field.name: 0, "n": 0, "k": 0}, name=label("chosen", field))
            descending = number % 2 == (ties == "all")  # each type once in each direction
            top = chosen.key_by("k").top(
                3, by=by, descending=descending, ties=ties, emit="final", name=label("top", field)
            )
            top.sink(op.collect(), name=label("out", field))
        rows.top(4, by="n", emit="final", name="of all").sink(op.collect(), name="out of all")
        rows.unique("k", "bool", name="unique").select("k", "bool").sink(op.collect(), name="out unique")
    assert {"of all", "unique", "top n", "top double"} <= native(p)
    agree(spark, p)


NAMES = ["a.b", "n.n", "c d", 'q"t', "it's", "ünï", "UP", "$x", "*", "new\nline", "0"]


def test_columns_of_any_name(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({name: [1, 2, None] for name in NAMES} | {"n": [1, 1, 2]}), tmp_path / "x.parquet")
    with flow.Pipeline("names") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        rows.filter(col("a.b") > 1, name="large").select("c d", x=col("ünï") * 2).sink(op.collect(), name="some")
        rows.sink(op.collect(), name="all")
        copied = rows.map_batches(lambda batch: batch, schema=rows.schema, name="copied")
        copied.key_by("n.n").agg({"m.m": col("a.b").sum()}, emit="final", name="again").sink(op.collect(), name="twice")
        for number, name in enumerate(NAMES):
            made = {f"{name}.n": op.count(), "sum": col(name).sum(where=col("n.n") > 1)}
            totals = rows.key_by(name).agg(made, emit="final", name=f"totals {number}")
            totals.sink(op.collect(), name=f"by {number}")
    assert native(p) >= {"rows", "large", "again", *(f"totals {number}" for number in range(len(NAMES)))}
    agree(spark, p)


def test_columns_of_any_name_of_dataframes(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field(name, pa.int64()) for name in NAMES])
    pq.write_table(pa.table([[1, 2, None]] * len(NAMES), schema=schema), tmp_path / "x.parquet")
    with flow.Pipeline("names") as p:
        rows = p.source(op.from_arrow(pq.read_table(tmp_path / "x.parquet")), name="rows")
        rows.key_by("a.b").agg({"n.n": op.count()}, emit="changes", name="counts").sink(
            op.collect(net=True), name="out"
        )
        rows.sink(op.collect(), name="all")
    batch = spark.read.parquet(str(tmp_path / "x.parquet"))
    stream = spark.readStream.schema(batch.schema).parquet(str(tmp_path))
    expected = p.run()
    for frame, execution in ((batch, "batch"), (stream, "streaming")):
        found = p.run(flow.SparkRunner(spark, sources={"rows": frame}), execution=execution)
        for sink in ("out", "all"):
            assert ordered(found.table(sink), expected.table(sink).column_names, []) == ordered(
                expected.table(sink), expected.table(sink).column_names, []
            )


def test_a_unique_row_is_one_of_the_rows(spark: Any, files: Path) -> None:
    with flow.Pipeline("unique") as p:
        p.source(op.read_parquet(files)).select("k", "n", "price").unique("k").sink(op.collect(), name="out")
    found, expected = both(spark, p)
    rows = set(map(repr, pq.read_table(files, columns=["k", "n", "price"]).to_pylist()))
    assert {*map(repr, found.table("out").to_pylist())} <= rows
    assert sorted(map(repr, found.table("out")["k"].to_pylist())) == sorted(
        map(repr, expected.table("out")["k"].to_pylist())
    )


def test_a_variance_needs_more_values_than_its_degrees_of_freedom(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["two"] * 2 + ["three"] * 3, "x": [1, 3, 1, 3, 5]}), tmp_path / "x.parquet")
    with flow.Pipeline("spreads") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"))
        spread = rows.key_by("k").agg(spread=col("x").variance(ddof=2), emit="final", name="spread")
        spread.sink(op.collect(), name="out")
    assert "spread" in native(p)
    found = p.run(flow.SparkRunner(spark), execution="batch").table("out").to_pylist()
    assert {row["k"]: row["spread"] for row in found} == {"two": None, "three": 8.0}


def test_sums_of_int64_are_exact_in_any_order(spark: Any, tmp_path: Path) -> None:
    greatest, least = 2**63 - 1, -(2**63)
    values = {
        "up and down": [greatest, least, 5, None],
        "greatest": [greatest - 7, 7],
        "least": [least + 1, -1],
        "halves": [2**32 - 1, 2**31, -(2**31), -(2**32)],
        "none": [None],
        "minus one": [-1],
    }
    keys, numbers = zip(*((key, value) for key, each in values.items() for value in each), strict=True)
    pq.write_table(pa.table({"k": list(keys), "x": pa.array(numbers, pa.int64())}), tmp_path / "x.parquet")
    with flow.Pipeline("sums") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"))
        rows.key_by("k").agg(x=col("x").sum(), emit="final", name="sums").sink(op.collect(), name="out")
    assert "sums" in native(p)
    found = p.run(flow.SparkRunner(spark), execution="batch").table("out")
    sums = {row["k"]: row["x"] for row in found.to_pylist()}
    assert sums == {key: sum(filter(None, each)) if each != [None] else None for key, each in values.items()}


def test_local_days_have_the_rows_that_the_local_engine_gives_them(spark: Any, tmp_path: Path) -> None:
    at = [datetime.datetime(2018, 11, 3, 22) + datetime.timedelta(minutes=20 * n) for n in range(90)]
    pq.write_table(pa.table({"at": pa.array(at, pa.timestamp("us"))}), tmp_path / "x.parquet")
    with flow.Pipeline("days") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"))
        local = rows.with_columns(at=col("at").dt.localize("America/Havana", "later"), name="local")
        half_days = local.with_columns(half=col("at").dt.truncate("12h"), name="halves").with_watermark("at")
        days = half_days.window(op.tumbling("1d", zone="America/Havana"))
        days.agg(n=op.count(), halves=col("half").count_distinct(), name="days").sink(op.collect(), name="out")
    assert {"local", "halves"} <= native(p)
    agree(spark, p)


def test_floats_of_32_bits_have_no_more_digits_in_sums(spark: Any, tmp_path: Path) -> None:
    numbers = [2**31 - 1, 2**24 + 1, -(2**31) + 1, 5]
    table = pa.table(
        {"k": [0, 1, 2, 3], "w": pa.array(numbers, pa.int32()), "i": [number * 2**31 for number in numbers]}
    )
    pq.write_table(table, tmp_path / "x.parquet")
    with flow.Pipeline("narrow") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet")).with_columns(
            w=col("w").cast("float32"), i=col("i").cast("float32")
        )
        kinds = ("sum", "mean", "min", "max")
        results = {f"{name} {kind}": getattr(col(name), kind)() for name in "wi" for kind in kinds}
        rows.key_by("k").agg(**results, emit="final", name="sums").sink(op.collect(), name="out")
        rows.filter(col("w") == 2.0**31).select("k").sink(op.collect(), name="rounded")
    assert "sums" in native(p)
    agree(spark, p)


def overflowing(folder: Path) -> flow.Pipeline:
    pq.write_table(pa.table({"x": [2**63 - 1, 1]}), folder / "x.parquet")
    with flow.Pipeline("overflow") as p:
        rows = p.source(op.read_parquet(folder / "x.parquet"))
        rows.agg(x=col("x").sum(), emit="final").sink(op.collect(), name="out")
    return p


def dividing(folder: Path) -> flow.Pipeline:
    pq.write_table(pa.table({"x": pa.array([2**62], pa.int64())}), folder / "x.parquet")
    with flow.Pipeline("dividing") as p:
        p.source(op.read_parquet(folder / "x.parquet")).select(y=col("x") * 4).sink(op.collect(), name="out")
    return p


def timeless(folder: Path) -> flow.Pipeline:
    pq.write_table(pa.table({"at": pa.array([None], pa.timestamp("us"))}), folder / "x.parquet")
    with flow.Pipeline("timeless") as p:
        rows = p.source(op.read_parquet(folder / "x.parquet")).with_watermark("at")
        rows.window(op.tumbling("1s")).agg(n=op.count()).sink(op.collect(), name="out")
    return p


def localizing(folder: Path) -> flow.Pipeline:
    at = [datetime.datetime(2024, 7, 1), datetime.datetime(2024, 10, 27, 2, 30)]
    pq.write_table(pa.table({"at": pa.array(at, pa.timestamp("us"))}), folder / "x.parquet")
    with flow.Pipeline("localizing") as p:
        rows = p.source(op.read_parquet(folder / "x.parquet"))
        rows.select(at=col("at").dt.localize("Europe/Berlin")).sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize(
    ("made", "kind", "message"),
    [
        (localizing, ValueError, "choose a time with ambiguous= and missing=, or filter such rows out first"),
        (overflowing, OverflowError, "does not fit into 64 bits: cast its argument to float64"),
        (dividing, OverflowError, "overflow"),
        (timeless, ValueError, "the event time 'at' is null; filter such rows out before"),
    ],
)
def test_errors_in_rows_are_those_of_the_local_engine(
    spark: Any, tmp_path: Path, made: Callable[[Path], flow.Pipeline], kind: type[Exception], message: str
) -> None:
    p = made(tmp_path)
    for runner in ("local", flow.SparkRunner(spark)):
        with pytest.raises(kind) as caught:
            p.run(runner, execution="batch")
        assert message in str(caught.value)


def test_a_batch_without_tasks_that_has_finished_is_not_computed_again(spark: Any, files: Path, tmp_path: Path) -> None:
    calls: list[int] = []
    with flow.Pipeline("finished") as p:
        rows = p.source(op.read_parquet(files), name="rows")
        rows.agg(n=op.count(), emit="final").sink(
            op.foreach_batch(lambda frame, _: calls.append(frame.count())), name="out"
        )
    runner, checkpoint = flow.SparkRunner(spark), flow.Checkpointing(tmp_path / "job")
    with pytest.warns(NewSparkAppWarning):
        first = p.run(runner, execution="batch", checkpoint=checkpoint)
    again = p.run(runner, execution="batch", checkpoint=checkpoint)
    assert (calls, first.rows_out, again.rows_out) == ([1], {"out": 1}, {"out": 0})


# --- counters


def counted(files: Path) -> flow.Pipeline:
    with flow.Pipeline("counted") as p:
        rows = p.source(op.read_parquet(files), name="rows").filter(col("n") % 2 == 0, name="even")
        totals = rows.key_by("k").agg(n=op.count(), emit="final", name="totals")
        totals.select("n", name="only n").sink(op.collect(), name="out")
        asked = totals.map_batches(lambda batch: [batch], name="function").key_by("n")
        asked.agg(keys=op.count(), emit="final", name="again").sink(op.collect(), name="out again")
    return p


def test_with_full_metrics_the_rows_of_each_operator_are_counted(spark: Any, files: Path) -> None:
    p = counted(files)
    full = p.run(flow.SparkRunner(spark, metrics="full"), execution="batch")
    local = p.run(execution="batch")
    rows = {o.operator: (o.rows_in, o.rows_out) for o in local.operators if "/" not in o.operator}
    assert {o.operator: (o.rows_in, o.rows_out) for o in full.operators if o.operator in rows} == rows
    some = p.run(flow.SparkRunner(spark), execution="batch")
    known = {o.operator: (o.rows_in, o.rows_out) for o in some.operators if o.operator in rows}
    assert known == {name: rows[name] for name in ("rows", "function", "out", "out again")} | {
        "totals": (0, rows["totals"][1]),
        "only n": (0, rows["only n"][1]),
        "again": (0, rows["again"][1]),
    }


def test_words_for_metrics_are_checked() -> None:
    wrong: Any = "all"
    with pytest.raises(ConfigurationError, match=r"SparkRunner\(metrics=\) must be 'tasks' or 'full', got 'all'"):
        flow.SparkRunner(metrics=wrong)


# --- files


ODD_NAMES = ["a b.parquet", "50%.parquet", "ü#1.parquet", "year=2020/a.parquet", "x=1,y=2.parquet"]
GLOBS = ["a:b.parquet", "a[1].parquet", "{a,b}.parquet", "_a.parquet", ".a.parquet", "a?.parquet"]


@pytest.mark.filterwarnings("ignore::dataflow.errors.PartitionKeyWarning")
@pytest.mark.parametrize("name", [*ODD_NAMES, *GLOBS])
def test_files_of_any_name_are_read_once(spark: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    pq.write_table(pa.table({"x": [100]}), tmp_path / "b.parquet")  # what a glob would find as well
    with flow.Pipeline("names") as p:
        p.source(op.read_parquet([path]), name="rows").agg(x=col("x").sum()).sink(op.collect(), name="out")
    assert ("rows" in native(p)) == (name in ODD_NAMES)
    found = p.run(flow.SparkRunner(spark), execution="batch")
    assert found.table("out")["x"].to_pylist() == [6]
    assert found.rows_in == {"rows": 3}


def test_files_without_rows_give_none(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array([], pa.string()), "x": pa.array([], pa.int64())}), tmp_path / "x.parquet")
    with flow.Pipeline("empty") as p:
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        rows.key_by("k").agg(n=op.count(), emit="final").sink(op.collect(), name="keyed")
        rows.agg(n=op.count(), x=col("x").sum(), emit="final").sink(op.collect(), name="all")
        rows.sink(op.collect(), name="rows out")
    agree(spark, p)


def test_files_that_change_while_spark_reads_are_noticed(spark: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "x.parquet", tmp_path / "out"
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    with flow.Pipeline("changing") as p:
        rows = p.source(op.read_parquet(path), name="rows").map_batches(Rewrites(path))
        rows.agg(x=col("x").sum(), emit="final").sink(op.write_parquet(out), name="out")
    with pytest.raises(InputChanged, match=r"x\.parquet"):
        p.run(flow.SparkRunner(spark), execution="batch")
    assert list(out.rglob("*.parquet")) == []


def test_a_file_that_is_gone_when_the_batch_starts_is_named(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with flow.Pipeline("gone") as p:
        p.source(op.read_parquet(tmp_path / "x.parquet")).agg(n=op.count()).sink(op.collect(), name="out")
    (tmp_path / "x.parquet").unlink()
    with pytest.raises((InputChanged, SourceError), match=r"x\.parquet"):
        p.run(flow.SparkRunner(spark), execution="batch")


class Rewrites:
    """Writes other rows to a file that is being read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        pq.write_table(pa.table({"x": [1, 2, 3, 4]}), self._path)
        yield batch


ODD_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    "spark.sql.legacy.nullInEmptyListBehavior": "true",
    "spark.sql.legacy.statisticalAggregate": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}


@pytest.mark.soak
def test_settings_of_the_session_change_no_value(spark: Any, files: Path, tmp_path: Path) -> None:
    before = {name: spark.conf.get(name, None) for name in ODD_SETTINGS}
    try:
        for name, value in ODD_SETTINGS.items():
            spark.conf.set(name, value)
        test_every_aggregate_of_every_type(spark, files, "keys")
        test_sums_of_decimals_keep_the_digits_after_the_point(spark, tmp_path, pa.decimal128(38, 2))
        test_keys_of_every_type(spark, files)
        test_windows_are_numbered_as_ours(spark, files)
        test_joins_of_every_kind(spark, files, "full")
        test_the_first_rows_of_keys(spark, files, "all")
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_ansi_mode_is_needed(spark: Any, files: Path) -> None:
    with flow.Pipeline("ansi") as p:
        p.source(op.read_parquet(files)).agg(n=op.count()).sink(op.collect(), name="out")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(ConfigurationError, match=r"expected spark\.sql\.ansi\.enabled=true"):
            p.run(flow.SparkRunner(spark), execution="batch")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


# --- what Spark cannot compute


def reasons(p: flow.Pipeline) -> dict[str, str | None]:
    graph = executed_graph(p.graph, 1, "mtime", Execution.BATCH)
    return {node.name: reason_against(node, graph) for node in graph}


def test_what_cannot_be_lowered_says_why(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "x": [1], "X": [2], "f": [0.5]}), tmp_path / "case.parquet")
    pq.write_table(pa.table({"k": ["a"], "x": [1], "f": [0.5]}), tmp_path / "x.parquet")
    arrow = pa.table({"k": ["a"], "x": [1], "at": pa.array([0], pa.timestamp("us"))})
    with flow.Pipeline("reasons") as p:
        p.source(op.read_parquet(tmp_path / "case.parquet"), name="case").sink(op.collect())
        p.source(op.read_parquet(tmp_path / "case.parquet", columns=["x"]), name="one case").sink(op.collect())
        rows = p.source(op.read_parquet(tmp_path / "x.parquet"), name="rows")
        table = p.source(op.from_arrow(arrow), name="table")
        table.with_watermark("at", on_error="skip", name="skips").sink(op.collect())
        table.select(at=col("at").cast("timestamp[ns]"), name="ns").sink(op.collect())
        keyed = rows.key_by("k")
        for name, asked in {
            "first": col("x").first(),
            "arg": col("x").arg_max("f"),
            "quantile": col("x").quantile(0.5),
            "distinct": col("f").count_distinct(),
        }.items():
            keyed.agg(y=asked, emit="final", name=name).sink(op.collect(), name=f"out {name}")
        rows.map_batches(lambda batch: [batch], name="function").sink(op.collect())
        unsigned = rows.with_columns(u=col("x").cast("uint32"), name="casts")
        unsigned.key_by("k").agg(u=col("u").sum(), emit="final", name="unsigned").sink(op.collect())
    found = reasons(p)
    words = {
        "case": "differ only in case",
        "one case": "differ only in case",
        "table": "not in Parquet files",
        "skips": "it sets aside the rows that have no event time",
        "ns": "Spark has no type for the values of column 'at'",
        "first": "depends on the order of rows",
        "arg": "depends on the order of rows",
        "quantile": "is rounded in another way by Spark",
        "distinct": "Spark counts distinct floats in another way",
        "function": "it calls a function",
        "unsigned": "Spark has no type for the values of column 'u'",
    }
    for name, word in words.items():
        assert word in str(found[name]), (name, found[name])
    assert found["rows"] is found["casts"] is None


@pytest.mark.parametrize("type_", POOLS, ids=str)
def test_only_types_that_spark_reads_exactly_are_read_by_it(tmp_path: Path, type_: pa.DataType) -> None:
    path = tmp_path / "x.parquet"
    try:
        pq.write_table(pa.table({"x": pa.array([None], type_)}), path)
    except pa.ArrowException:
        return  # Parquet has no such type
    with flow.Pipeline("types") as p:
        p.source(op.read_parquet(path), name="rows").sink(op.collect(), name="out")
    (schema,) = [node.schema for node in p.graph if node.name == "rows"]
    reads = reasons(p)["rows"] is None
    assert reads == (schema.field("x").type in READ), reasons(p)["rows"]
    assert not reads or carrier(schema.field("x").type) is not None


def test_parquet_files_that_spark_would_read_otherwise_are_read_by_the_source(spark: Any, tmp_path: Path) -> None:
    """INT96 times, also before 1900, columns of other Parquet types, and declared ones."""
    old = ["0001-01-01 00:00:00", "1582-10-04 23:00:00", "1899-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"]
    rows = spark.createDataFrame([(text, f"{text}Z") for text in old], "text string, utc string")
    written = {"outputTimestampType": "INT96", "int96RebaseModeInWrite": "CORRECTED"}
    for name, value in written.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
    rows.selectExpr("text", "cast(utc as timestamp) as at").write.parquet(str(tmp_path / "int96"))
    for name in written:
        spark.conf.unset(f"spark.sql.parquet.{name}")
    (tmp_path / "several").mkdir()
    for number, v in enumerate((pa.array([1, None], pa.int32()), pa.array([2**40]), pa.nulls(1), None)):
        kind = pa.string() if number else pa.large_string()
        ids = {"id": pa.array([f"{number} {row}" for row in range(1 if v is None else len(v))], kind)}
        pq.write_table(pa.table(ids if v is None else {**ids, "v": v}), tmp_path / "several" / f"{number}.parquet")
    instants = op.read_parquet(tmp_path / "int96", schema={"at": pa.timestamp("us", "UTC")})
    several = op.read_parquet(tmp_path / "several", schema={"v": "int64"})
    sources = {"int96": op.read_parquet(tmp_path / "int96"), "instants": instants, "texts": instants.select(["text"]),
               "several": several, "ids": several.select(["id"])}  # fmt: skip
    with flow.Pipeline("times-and-types") as p:
        for name, source in sources.items():
            p.source(source, name=name).sink(op.collect(), name=f"{name} out")
    assert native(p) == {"texts", "ids"}
    agree(spark, p)
    table = p.run(execution="batch").table("int96 out")
    assert dict(zip(table["text"].to_pylist(), table["at"].to_pylist(), strict=True)) == {
        text: datetime.datetime.fromisoformat(text) for text in old
    }


@pytest.mark.parametrize(
    "notes",
    [
        {"org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.legacyINT96": ""},
        {"org.apache.spark.version": "2.4.8"},
    ],
)
def test_files_of_the_calendar_that_spark_had_are_read_by_the_source(tmp_path: Path, notes: dict[str, str]) -> None:
    table = pa.table({"x": [1]})
    pq.write_table(table.replace_schema_metadata(notes), tmp_path / "x.parquet")
    assert "calendar" in str(op.read_parquet(tmp_path).parquet_files())
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.version": "4.0.1"}), tmp_path / "x.parquet")
    assert not isinstance(op.read_parquet(tmp_path).parquet_files(), str)
