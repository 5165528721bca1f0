"""Lookups in pipelines: their columns, what is refused, and what the rows mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, DataflowError, GraphError, SchemaMismatch, SourceError, UnknownColumn

LEFT = pa.table({"k": [2, 1, 7], "x": [5, 6, 8], "at": pa.array([1, None, 3], pa.timestamp("s"))})
TABLE = pa.table({"k": [1, 2], "x": [10, 20], "l": [[1], [2]]})


def rows(table: pa.Table = LEFT, **options: Any) -> flow.Stream:
    return flow.Pipeline().source(op.from_arrow(table, **options), name="rows")


CASES: dict[str, tuple[Callable[[], Any], type[DataflowError], str]] = {
    "no keys": (lambda: rows().lookup(TABLE), GraphError, r"lookup: name the columns.*on=.*left_on= and right_on="),
    "an unknown key": (lambda: rows().lookup(TABLE, on="q"), UnknownColumn, r"lookup\(on=\).*'q'"),
    "keys of two types": (
        lambda: rows().lookup(TABLE.set_column(0, "k", pa.array([1, 2], pa.int32())), on="k"),
        SchemaMismatch,
        r"'k' of the left side is int64 and 'k' of the right side is int32; cast one.*cast\(",
    ),
    "a list as a key": (
        lambda: rows(TABLE).lookup(TABLE, on="l"),
        SchemaMismatch,
        r"lookup.*'l'",
    ),
    "two columns of one name": (
        lambda: rows().lookup(TABLE, on="k", suffix=""),
        GraphError,
        r"lookup: the result would have two columns 'x'",
    ),
    "a stream": (lambda: rows().lookup(rows(), on="k"), GraphError, r"lookup.*got the stream 'rows'.*join\(\)"),
    "no table": (lambda: rows().lookup(7, on="k"), GraphError, r"lookup: its table is a bounded source.*got 7 \(int\)"),
    "a reader": (
        lambda: rows().lookup(TABLE.to_reader(), on="k"),
        GraphError,
        r"at each start of the job.*read only once.*pa.Table",
    ),
    "how": (lambda: rows().lookup(TABLE, on="k", how="full"), ConfigurationError, r"lookup\(how=\).*'full'"),
    "on_change": (
        lambda: rows().lookup(TABLE, on="k", on_change="x"),
        ConfigurationError,
        r"lookup\(on_change=\) must be 'refuse' or 'reload', got 'x'",
    ),
    "updates": (
        lambda: rows().key_by("k").agg(n=op.count(), emit="updates").lookup(TABLE, on="k"),
        GraphError,
        r"lookup.*emit=\"changes\"",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistakes_are_refused_when_the_pipeline_is_built(case: str) -> None:
    build, error, message = CASES[case]
    with pytest.raises(error, match=message):
        build()


def test_watched_directories_are_refused(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    with pytest.raises(GraphError, match=r"lookup reads its table whole.*unbounded.*read_parquet.*join_asof"):
        rows().lookup(op.watch(tmp_path, op.read_parquet), on="k")


def test_sources_that_set_rows_aside_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k\n1\n")
    with pytest.raises(GraphError, match="leave out on_error="):
        rows().lookup(op.read_csv(tmp_path, schema={"k": "int64"}, on_error="side"), on="k")


def test_a_missing_table_fails_the_start(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    looked = rows().lookup(op.read_parquet(tmp_path), on="k", name="prices")
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(SourceError, match=r"operator 'prices': lookup cannot read its table.*x\.parquet"):
        looked.collect()


def test_the_result_has_keys_then_left_columns_then_those_of_the_table() -> None:
    looked = rows().lookup(TABLE.rename_columns(["id", "x", "l"]), left_on="k", right_on="id", how="left")
    assert looked.schema.names == ["k", "x", "at", "x_right", "l"]
    assert looked.collect().to_pylist() == [
        {**LEFT.slice(0, 1).to_pylist()[0], "x_right": 20, "l": [2]},
        {**LEFT.slice(1, 1).to_pylist()[0], "x_right": 10, "l": [1]},
        {**LEFT.slice(2, 1).to_pylist()[0], "x_right": None, "l": None},
    ]


def test_columns_that_nobody_reads_change_no_row() -> None:
    looked = rows().lookup(TABLE, on="k", how="left")
    assert looked.select("x_right").collect()["x_right"].to_pylist() == [20, 10, None]
    assert looked.select("x").collect()["x"].to_pylist() == [5, 6, 8]
    assert looked.filter(col("x_right") > 10).select("at").collect().num_rows == 1
    assert looked.agg(n=op.count()).collect()["n"].to_pylist() == [3]


def test_the_result_keeps_event_time() -> None:
    timed = rows(LEFT.filter(LEFT["at"].is_valid())).with_watermark("at")
    looked = timed.lookup(TABLE, on="k", how="left")
    assert looked.time == "at"
    counts = looked.window(op.tumbling("2s")).agg(n=op.count(), total=col("x_right").sum())
    assert counts.collect().select(["n", "total"]).to_pylist() == [{"n": 1, "total": 20}, {"n": 1, "total": None}]


def test_null_event_times_pass_through() -> None:
    assert rows().lookup(TABLE, on="k").collect()["at"].null_count == 1


def test_signed_changes_stay_signed_and_net_to_the_lookup_of_the_net() -> None:
    counts = rows(pa.table({"k": [1, 2, 1, 1, 3]}), batch_rows=1).key_by("k").agg(n=op.count(), emit="changes")
    table = pa.table({"k": [1, 1, 3], "v": ["a", "b", "c"]})
    looked = counts.lookup(table, on="k", how="left")
    assert (looked.changes, looked.schema.names) == ("signed", ["k", "n", "v", "change"])
    net = [tuple(row.values()) for row in looked.collect(net=True).to_pylist()]
    assert sorted(net, key=str) == [(1, 3, "a"), (1, 3, "b"), (2, 1, None), (3, 1, "c")]


def test_explain_and_the_summary_show_the_lookup() -> None:
    looked = rows().lookup(TABLE, on="k", name="prices")
    looked.sink(op.collect(), name="out")
    assert "prices    lookup" in str(looked._pipeline.explain())
    (prices,) = [operator for operator in looked._pipeline.run().operators if operator.operator == "prices"]
    assert (prices.rows_in, prices.rows_out) == (3, 2)
