"""Sliding windows: what is refused when they are built, each with a way out, and what their stream is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, DataflowError, GraphError, SchemaMismatch, UnknownColumn

TABLE = pa.table({"k": ["a", "b"], "x": [1, 2], "l": [[1], [2]], "at": pa.array([1, 2], pa.timestamp("us"))})


def timed(*columns: str, table: pa.Table = TABLE) -> flow.KeyedStream:
    rows = flow.Pipeline().source(op.from_arrow(table), name="rows").with_watermark("at")
    return rows.select(*(columns or ("k", "x", "at"))).key_by("k")


def slid(**options: Any) -> flow.Stream:
    return timed().window(op.sliding("10s")).agg(**{"n": op.count(), **options})


REFUSED: dict[str, tuple[Callable[[], Any], type[DataflowError], str]] = {
    "no period": (lambda: op.sliding("0s"), ConfigurationError, r"sliding\(period\) must be above 0"),
    "months": (lambda: op.sliding("2mo"), ConfigurationError, r"sliding\(period\): months.*have no fixed length"),
    "a list": (
        lambda: slid(all=col("x").to_list()),
        GraphError,
        r"'all' is .*to_list.*sliding windows compute count, count_distinct, .*op.hopping",
    ),
    "a quantile": (lambda: slid(q=col("x").quantile(0.5)), GraphError, r"'q'.*quantile.*sliding windows compute"),
    "a row of a greatest": (
        lambda: slid(b=col("x").arg_max("x")),
        GraphError,
        r"'b'.*arg_max.*sliding windows compute",
    ),
    "updates": (lambda: slid(emit="updates"), GraphError, r"emit='updates'.*use emit='changes'"),
    "an unknown word": (lambda: slid(emit="often"), ConfigurationError, r"emit=\) must be one of"),
    "lateness alone": (
        lambda: timed().window(op.sliding("10s"), lateness="5s").agg(n=op.count()),
        GraphError,
        r"lateness=\).*agg\(emit='changes'\).*leave lateness out",
    ),
    "lateness with final results": (
        lambda: timed().window(op.sliding("10s"), lateness="5s").agg(n=op.count(), emit="final"),
        GraphError,
        r"agg\(emit='changes'\)",
    ),
    "a column of that name": (lambda: slid(x=op.count()), GraphError, r"duplicate column 'x'.*rename one, or drop it"),
    "a column called change": (
        lambda: (
            timed("k", "change", "at", table=TABLE.rename_columns(["k", "change", "l", "at"]))
            .window(op.sliding("10s"))
            .agg(n=op.count(), emit="changes")
        ),
        GraphError,
        r"has a column 'change'",
    ),
    "a list among the columns": (
        lambda: timed("k", "l", "at").window(op.sliding("10s")).agg(n=op.count()),
        SchemaMismatch,
        r"the column 'l' of type list.* cannot be kept.*drop it before",
    ),
    "signed changes": (
        lambda: slid(emit="changes").key_by("k").window(op.sliding("1s")),
        GraphError,
        r"it would count rows that are taken back",
    ),
    "a column that is not there": (lambda: slid(y=col("y").sum()), UnknownColumn, "y"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_slide_is_refused_when_it_is_built(case: str) -> None:
    build, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        build()


def test_the_columns_are_those_of_the_row_and_the_aggregates() -> None:
    stream = slid(s=col("x").sum())
    assert stream.schema.names == ["k", "x", "at", "n", "s"]
    assert (stream.changes, stream.time) == ("rows", "at")


def test_changes_are_a_signed_stream_with_the_time_of_its_rows() -> None:
    stream = timed().window(op.sliding("10s"), lateness="5s").agg(n=op.count(), emit="changes")
    assert stream.schema.names == ["k", "x", "at", "n", "change"]
    assert (stream.changes, stream.time) == ("signed", "at")
    assert stream.side("late").schema.names == ["k", "x", "at"]


def test_a_year_of_gap_and_a_long_period_are_no_work() -> None:
    table = pa.table({"at": pa.array([0, 31_536_000, 31_536_001], pa.timestamp("s"))})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1), name="rows").with_watermark("at")
    assert rows.window(op.sliding("1ms")).agg(n=op.count()).collect()["n"].to_pylist() == [1, 1, 1]
    assert rows.window(op.sliding("36500d")).agg(n=op.count()).collect()["n"].to_pylist() == [1, 2, 3]


def test_windows_slide_over_results_of_windows() -> None:
    at = pa.array([1, 2, 11, 12, 13, 35], pa.timestamp("s"))
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": at}), batch_rows=1), name="rows").with_watermark("at")
    counts = rows.window(op.tumbling("10s")).agg(n=op.count())
    recent = counts.window(op.sliding("20s")).agg(recent=col("n").sum()).collect()
    assert recent["recent"].to_pylist() == [2, 5, 1]


def test_no_rows_give_no_results() -> None:
    assert timed(table=TABLE.slice(0, 0)).window(op.sliding("1s")).agg(n=op.count()).collect().num_rows == 0
