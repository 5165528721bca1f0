"""DataFrames in place of sources in a batch: any operator may follow, and results are those of the own sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, NewSparkAppWarning, SchemaMismatch, UnsupportedOnRunner
from dataflow.runners.run_result import RunResult
from dataflow.runners.spark.expressions.spark_types import carrier, spark_schema, to_carriers
from tests.agreement.data import generated, rows_of

N = 300


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Columns of every type that some type of Spark's holds, and event times out of order."""
    made = generated(5, rows=N)
    at = pa.array([1_000_000 * (n * n % 601) for n in range(N)], pa.timestamp("us"))
    held = [field.name for field in made.schema if carrier(field.type) is not None]
    return made.select(held).append_column("at", at)


def frame(spark: Any, table: pa.Table) -> Any:
    """The rows as a DataFrame with Spark's types."""
    batches = [to_carriers(batch) for batch in table.to_batches()]
    return spark.createDataFrame(pa.Table.from_batches(batches), spark_schema(table.schema)).repartition(3)


def pipeline(table: pa.Table) -> flow.Pipeline:
    with flow.Pipeline("frames") as p:
        rows = p.source(op.from_arrow(table), name="rows")
        rows.sink(op.collect(), name="all")
        timed = rows.with_watermark("at")
        asked = {"n": op.count(), "least": col("n").min(), "first": col("n").arg_min("n")}
        timed.key_by("k").window(op.tumbling("1min")).agg(**asked, name="windows").sink(op.collect(), name="counts")
        timed.key_by("k").window(op.session("2s")).agg(n=op.count(), name="sessions").sink(op.collect(), name="session")
        rows.map_batches(lambda batch: [batch]).key_by("price").agg(n=op.count()).sink(op.collect(), name="prices")
        timed.key_by("bool").unique("bool", "k").select("bool", "k").sink(op.collect(), name="once")
    return p


def both(p: flow.Pipeline, runner: flow.SparkRunner) -> tuple[RunResult, RunResult]:
    return p.run(runner, execution="batch"), p.run(execution="batch")


def test_dataframes_give_what_the_own_source_gives(spark: Any, table: pa.Table) -> None:
    p = pipeline(table)
    found, expected = both(p, flow.SparkRunner(spark, sources={"rows": frame(spark, table)}))
    assert found.rows_in == expected.rows_in == {"rows": N}
    for name in expected.tables:
        assert found.table(name).schema.equals(expected.table(name).schema)
        assert rows_of(found.table(name)) == rows_of(expected.table(name)), name


def test_a_dataframe_may_be_beside_a_source_of_ours(spark: Any) -> None:
    some, others = pa.table({"k": [1, 2, 3], "x": [10, 20, 30]}), pa.table({"k": [2, 3, 4], "y": ["b", "c", "d"]})
    with flow.Pipeline("both") as p:
        left, right = p.source(op.from_arrow(some), name="some"), p.source(op.from_arrow(others), name="others")
        left.join(right, on="k").sink(op.collect(), name="out")
    found, expected = both(p, flow.SparkRunner(spark, sources={"others": frame(spark, others)}))
    assert rows_of(found.table("out")) == rows_of(expected.table("out"))
    assert found.rows_in == {"some": 3, "others": 3}


def test_rows_of_equal_time_come_in_the_order_of_the_dataframe(spark: Any) -> None:
    table = pa.table({"x": range(1_000), "at": pa.array([0] * 1_000, pa.timestamp("us"))})
    with flow.Pipeline("order") as p:
        rows = p.source(op.from_arrow(table), name="rows").with_watermark("at")
        rows.agg(places=col("x").to_list()).sink(op.collect(), name="out")
    ordered = (
        spark.createDataFrame(table, spark_schema(table.schema)).repartitionByRange(4, "x").sortWithinPartitions("x")
    )
    found = p.run(flow.SparkRunner(spark, sources={"rows": ordered}), execution="batch")
    assert found.table("out")["places"].to_pylist() == [list(range(1_000))]


def summed(dtype: pa.DataType) -> flow.Pipeline:
    with flow.Pipeline("types") as p:
        rows = p.source(op.from_arrow(pa.table({"x": pa.array([], dtype)})), name="rows")
        rows.agg(n=op.count(), greatest=col("x").max(), emit="final").sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize(
    ("dtype", "ddl", "value"),
    [
        (pa.uint8(), "x bigint", 300),
        (pa.uint64(), "x bigint", -1),
        (pa.int16(), "x int", 2**20),
        (pa.timestamp("s"), "x timestamp_ntz", None),
    ],
    ids=str,
)
def test_values_that_do_not_fit_the_declared_type_are_errors(spark: Any, dtype: Any, ddl: str, value: Any) -> None:
    frame = spark.createDataFrame([(value,)], ddl)
    if value is None:
        frame = spark.sql("select timestamp_ntz'2024-01-01 00:00:00.5' as x")
    with pytest.raises(SchemaMismatch, match=r"source 'rows', read by Spark: column 'x' is declared as"):
        summed(dtype).run(flow.SparkRunner(spark, sources={"rows": frame}), execution="batch")


def test_what_is_no_table_that_is_read_once_is_refused(spark: Any) -> None:
    p = summed(pa.int64())
    streaming = spark.readStream.format("rate").load().selectExpr("value as x")
    for method in ("run", "explain"):
        for frames, message in {
            ("rows", streaming): "expected a DataFrame that is read once, found a streaming one",
            ("rows", "table"): "expected a DataFrame of Spark's, found an object of type str",
            ("row", spark.range(3)): r"the pipeline has no source 'row' .did you mean 'rows'",
        }.items():
            runner = flow.SparkRunner(spark, sources=dict([frames]))
            with pytest.raises(ConfigurationError, match=message):
                getattr(p, method)(runner, execution="batch")
    with pytest.raises(UnsupportedOnRunner, match="column 'x' is missing"):
        p.run(flow.SparkRunner(spark, sources={"rows": spark.range(3)}), execution="batch")


def test_a_source_without_an_end_may_be_replaced_by_rows_that_end(spark: Any) -> None:
    with flow.Pipeline("replaced") as p:
        rows = p.source(op.generate({"x": op.sequence()}, rate="10/s"), name="rows")
        rows.key_by("x").agg(n=op.count(), emit="final").sink(op.collect(), name="out")
    runner = flow.SparkRunner(spark, sources={"rows": spark.range(5).withColumnRenamed("id", "x")})
    assert sorted(p.run(runner, execution="batch").table("out")["x"].to_pylist()) == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigurationError, match="has no end"):
        p.run(flow.SparkRunner(spark), execution="batch")


def test_explain_shows_what_spark_reads(spark: Any, tmp_path: Path) -> None:
    runner = flow.SparkRunner(spark, sources={"rows": spark.range(3).withColumnRenamed("id", "x")})
    table = str(summed(pa.int64()).explain(runner, execution="batch"))
    assert any(row.split()[:2] == ["rows", "read"] and "Spark reads Range" in row for row in table.splitlines()), table


# --- DataFrames out


def written(table: pa.Table, out: Path) -> flow.Pipeline:
    with flow.Pipeline("written") as p:
        rows = p.source(op.from_arrow(table), name="rows").map_batches(lambda batch: [batch], name="function")
        rows.key_by("k").agg(n=op.count(), at=col("at").max(), emit="final", name="totals").sink(
            op.write_parquet(out), name="out"
        )
    return p


@pytest.mark.parametrize("operator", ["rows", "function", "totals"])
def test_the_rows_of_an_operator_are_a_dataframe(spark: Any, table: pa.Table, tmp_path: Path, operator: str) -> None:
    p = written(table, tmp_path / "out")
    found = flow.SparkRunner(spark).dataframe(p, operator, parallelism=2, max_key_groups=2)
    expected = p.graph.nodes[[node.name for node in p.graph].index(operator)].schema
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in spark_schema(expected)]
    own = table if operator != "totals" else p_totals(table)
    for _ in range(2):  # it may be computed as often as one likes
        assert rows_of(pa.Table.from_batches(found.toArrow().to_batches()).cast(carried(expected))) == rows_of(
            pa.Table.from_batches([to_carriers(batch) for batch in own.combine_chunks().to_batches()])
        )
    assert not (tmp_path / "out").exists()


def carried(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, carrier(field.type)) for field in schema])


def p_totals(table: pa.Table) -> pa.Table:
    rows = flow.Pipeline().source(op.from_arrow(table))
    return rows.key_by("k").agg(n=op.count(), at=col("at").max(), emit="final").collect()


def test_an_operator_that_has_no_rows_is_refused(spark: Any, table: pa.Table, tmp_path: Path) -> None:
    p = written(table, tmp_path)
    for name in ("out", "total", "nothing"):
        with pytest.raises(
            ConfigurationError, match=rf"dataframe: pipeline 'written' has no operator '{name}' with rows"
        ):
            flow.SparkRunner(spark).dataframe(p, name)
    with flow.Pipeline("endless") as p:
        p.source(op.generate({"x": op.sequence()}, rate="10/s"), name="rows").sink(op.collect(), name="out")
    with pytest.raises(ConfigurationError, match=r"dataframe\(execution='batch'\): source 'rows' .* has no end"):
        flow.SparkRunner(spark).dataframe(p, "rows")


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UTF8_BINARY_RTRIM"])
def test_texts_are_compared_by_their_bytes_whatever_the_collation_of_a_column(spark: Any, collation: str) -> None:
    table = pa.table({"k": ["a", "A", "b ", "b", None, "B"], "x": range(6), "inner": [{"t": "z"}, {"t": "Z"}] * 3})
    with flow.Pipeline("collations") as p:
        rows = p.source(op.from_arrow(table), name="rows")
        rows.sink(op.collect(), name="all")
        rows.filter((col("k") == "a") | col("k").is_in(["b"]) | (col("k") > "b")).sink(op.collect(), name="some")
        rows.key_by("k").agg(n=op.count(), emit="final").sink(op.collect(), name="counts")
        rows.agg(least=col("k").min(), most=col("k").max(), n=col("k").count_distinct()).sink(op.collect(), name="ends")
        rows.join(rows.select("k", y="x", name="right"), on="k").sink(op.collect(), name="pairs")
        rows.top(3, by="k").sink(op.collect(), name="first")
    inner = f"named_struct('t', inner.t COLLATE {collation}) AS inner"
    collated = frame(spark, table).selectExpr(f"k COLLATE {collation} AS k", "x", inner)
    found, expected = both(p, flow.SparkRunner(spark, sources={"rows": collated}))
    for name in expected.tables:
        assert rows_of(found.table(name)) == rows_of(expected.table(name)), name


@pytest.fixture
def adaptive(spark: Any) -> Iterator[Any]:
    """The session with what Spark has by default: it leaves out what cannot change a result, also while a job runs."""
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.optimizer.excludedRules": ""}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize("metrics", ["tasks", "full"])
def test_rows_that_spark_need_not_compute_are_counted(adaptive: Any, metrics: Any, tmp_path: Path) -> None:
    orders = pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})
    with flow.Pipeline("empty") as p:
        some, none, left = (p.source(op.from_arrow(orders), name=name) for name in ("some", "none", "left"))
        none.key_by("k").agg(n=op.count(), emit="final", name="counts").sink(op.collect(), name="no counts")
        none.union(some, name="all").sink(op.collect(), name="union")
        rare = some.filter(col("x") > 5, name="rare").select("k", y="x")
        left.join(rare, on="k", name="join").sink(op.collect(), name="pairs")
    rows = frame(adaptive, orders)
    rows.write.parquet(str(tmp_path / "rows"))
    stored = adaptive.read.parquet(str(tmp_path / "rows"))
    frames = {"some": stored, "none": rows.where("x > 7"), "left": stored}
    found = p.run(flow.SparkRunner(adaptive, sources=frames, metrics=metrics), execution="batch")
    assert found.rows_in == {"some": 3, "none": 0, "left": 3}
    assert ("that Spark computes itself are not counted" in str(found)) == (metrics == "tasks")
    assert "/handed" not in str(found)
    assert {name: table.num_rows for name, table in found.tables.items()} == {"no counts": 0, "union": 3, "pairs": 0}


def test_rows_of_a_function_are_counted_if_spark_need_not_compute_them(adaptive: Any) -> None:
    with flow.Pipeline("function") as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="rows").map_batches(lambda batch: [batch])
        rows.sink(op.foreach_batch(lambda frame, batch: frame.where("false").collect()), name="out")
    with pytest.warns(NewSparkAppWarning):
        assert p.run(flow.SparkRunner(adaptive), execution="batch").rows_out == {"out": 3}


def test_the_order_of_rows_is_known_whatever_types_other_columns_have(spark: Any) -> None:
    at = pa.array([n % 3 * 10**6 for n in range(40)], pa.timestamp("us"))
    table = pa.table({"k": [n % 7 for n in range(40)], "x": range(40), "at": at, "u": pa.array(range(40), pa.int64())})
    declared = table.set_column(3, "u", table["u"].cast(pa.uint64()))  # of which Spark has no type
    with flow.Pipeline("order") as p:
        rows = p.source(op.from_arrow(declared), name="rows").with_watermark("at", name="time")
        ends = {"first": col("u").first(), "last": col("u").last(), "all": col("x").to_list()}
        rows.key_by("k").agg(**ends, name="ends").sink(op.collect(), name="ends out")
        rows.unique("k", keep="last").sink(op.collect(), name="once")
        rows.agg(most=col("u").max()).sink(op.collect(), name="most")
    given = frame(spark, table).repartitionByRange(3, "x").sortWithinPartitions("x")
    found, expected = both(p, flow.SparkRunner(spark, sources={"rows": given}))
    for name in expected.tables:
        assert rows_of(found.table(name)) == rows_of(expected.table(name)), name
    assert found.rows_in == {"rows": 40}
