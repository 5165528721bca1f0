"""Columns under new names, constants, and keys: what ``select``, ``with_columns``, ``agg`` and ``key_by`` are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import Stream, col, lit
from dataflow.errors import GraphError, SchemaMismatch, UnknownColumn

ROWS = pa.table({"id": [1, 2, 1], "seller": ["Ann", "Bob", "Ann"], "price": [3, 4, 5]})


def rows(table: pa.Table = ROWS) -> Stream:
    return flow.Pipeline().source(op.from_arrow(table), name="rows")


def test_select_takes_a_mapping_for_names_that_are_options() -> None:
    stream = rows().select("id", {"name": "seller", "parallelism": col("price") * 2}, one=1)
    assert stream.collect().slice(1, 1).to_pylist() == [{"id": 2, "name": "Bob", "parallelism": 8, "one": 1}]


def test_with_columns_takes_a_mapping() -> None:
    stream = rows().with_columns({"name": "seller", "id": col("id") + 1}, name="named")
    assert (stream.name, stream.schema.names) == ("named", ["id", "seller", "price", "name"])
    assert stream.collect()["id"].to_pylist() == [2, 3, 2]


def test_agg_takes_a_mapping() -> None:
    keyed = rows().key_by("seller")
    counts = keyed.agg({"name": op.count(), "every": col("price").max()}, name="counts")
    assert sorted(map(str, counts.collect().to_pylist())) == [
        "{'seller': 'Ann', 'name': 2, 'every': 5}",
        "{'seller': 'Bob', 'name': 1, 'every': 4}",
    ]


def test_drop_and_rename_keep_the_other_columns_in_their_places() -> None:
    stream = rows().rename({"seller": "id", "id": "seller"}).drop("price")
    assert stream.collect().slice(0, 1).to_pylist() == [{"seller": 1, "id": "Ann"}]
    assert rows().drop("id", "seller", name="one").name == "one"


REFUSED: dict[str, tuple[Callable[[Stream], Any], type[Exception], str]] = {
    "drop unknown": (
        lambda s: s.drop("prize"),
        UnknownColumn,
        "drop: there is no column 'prize' .did you mean 'price'",
    ),
    "drop nothing": (lambda s: s.drop(), GraphError, "drop: no column is given"),
    "drop all": (lambda s: s.drop("id", "seller", "price"), GraphError, "drop: no column would be left"),
    "drop an expression": (lambda s: s.drop(col("id")), TypeError, "drop takes names of columns"),  # type: ignore[arg-type]
    "rename unknown": (lambda s: s.rename({"prize": "p"}), UnknownColumn, "rename: there is no column 'prize'"),
    "rename nothing": (lambda s: s.rename({}), GraphError, "rename: no column is given"),
    "rename to a name in use": (lambda s: s.rename({"id": "price"}), GraphError, "rename: .*'price'"),
    "rename two to one": (lambda s: s.rename({"id": "x", "seller": "x"}), GraphError, "rename: .*'x'"),
    "rename to no text": (lambda s: s.rename({"id": 1}), TypeError, "alias takes a name"),  # type: ignore[dict-item]
    "rename by text": (lambda s: s.rename("id"), TypeError, "rename takes a mapping"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_cannot_be_dropped_or_renamed_are_named(case: str) -> None:
    build, error, said = REFUSED[case]
    with pytest.raises(error, match=f"^{said}"):
        build(rows())


def test_event_time_follows_a_rename_and_goes_with_a_drop() -> None:
    at = pa.array([1, 12, 2], pa.timestamp("s"))
    timed = rows(pa.table({"k": ["a"] * 3, "at": at})).with_watermark("at", delay="15s")
    renamed = timed.rename({"at": "time"})
    assert (renamed.time, timed.rename({"k": "key"}).time, timed.drop("at").time) == ("time", "at", None)
    counts = renamed.key_by("k").window(op.tumbling("10s")).agg(op.count().alias("n"))
    assert counts.collect()["n"].to_pylist() == [2, 1]


def test_update_keys_follow_a_rename_and_cannot_be_dropped() -> None:
    updates = rows().key_by("id", "seller").agg(op.count().alias("n"), emit="updates", name="counts")
    renamed = updates.rename({"id": "who", "n": "id"})
    assert renamed.changes == "updates"
    assert renamed.drop("id").changes == "updates"
    with pytest.raises(GraphError, match="drop: it drops or changes the update key 'who'"):
        renamed.drop("who")


Lost = Callable[[Stream], Any]
LOST: dict[str, tuple[Lost, str]] = {
    "a column in select": (lambda s: s.select("id", name="seller"), r"select\(\{'name': col\('seller'\)\}\)"),
    "an expression": (lambda s: s.select("id", name=col("seller")), r"col\('seller'\)\.alias\('name'\)"),  # type: ignore[arg-type]
    "with_columns": (lambda s: s.with_columns(name="seller"), r"with_columns\(\{'name': col\('seller'\)\}\)"),
    "parallelism": (lambda s: s.select(parallelism="price"), r"select\(\{'parallelism': col\('price'\)\}\)"),  # type: ignore[arg-type]
    "agg": (lambda s: s.key_by("id").agg(name=op.count()), r"agg\(\{'name': count\(\)\}\)"),  # type: ignore[arg-type]
    "agg, a column": (lambda s: s.key_by("id").agg(op.count(), name="price"), r"\{'name': col\('price'\)\.max\(\)\}"),
    "agg, every": (lambda s: s.key_by("id").agg(every=col("price").min()), r"agg\(\{'every': "),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", LOST)
def test_a_column_given_as_an_option_is_never_lost(case: str) -> None:
    write, shown = LOST[case]
    with pytest.raises(GraphError, match=shown):
        write(rows())


def test_a_windowed_agg_loses_no_column_either() -> None:
    timed = rows().with_columns(ts=flow.from_epoch("price", "s")).with_watermark("ts").key_by("id")
    with pytest.raises(GraphError, match=r"agg\(\{'name': count\(\)\}\)"):
        timed.window(op.tumbling("1s")).agg(name=op.count())  # type: ignore[arg-type]


def test_an_operators_name_is_text() -> None:
    with pytest.raises(GraphError, match=r"filter\(name=\) must be text, the operator's name, got col\('id'\)"):
        rows().filter(col("id") > 1, name=col("id"))  # type: ignore[arg-type]


def test_plain_values_with_a_name_are_constants() -> None:
    made = rows().select(five=5, half=0.5, big=2**63, yes=True).collect()
    assert made.schema.types == [pa.int64(), pa.float64(), pa.uint64(), pa.bool_()]
    assert made.slice(0, 1).to_pylist() == [{"five": 5, "half": 0.5, "big": 2**63, "yes": True}]
    with pytest.raises(GraphError, match="expected a column name or an expression, got \\[1\\]"):
        rows().select(y=[1])
    with pytest.raises(GraphError, match="does not fit 64 bits"):
        rows().select(y=2**64)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Decimal("NaN"), "is not a decimal number"),
        (Decimal("-Infinity"), "is not a decimal number"),
        (Decimal("1e100"), "fits no type: Decimal precision"),
        (Decimal("1e-80"), "fits no type: Decimal precision"),
        (timedelta.max, "fits no type: Timedelta too large"),
        ("\ud800", "fits no type: .*surrogates"),
        (datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=3601))), "fits no type: Offset must"),
        (time(1, tzinfo=UTC), "has a zone"),
        (pandas.Timestamp(1), "has nanoseconds"),
        (pandas.Timedelta(1), "has nanoseconds"),
        (pandas.NaT, "fits no type"),
        (np.uint64(2**64 - 1) + np.float64(0), None),
        (np.uint64(2**63), None),
        (np.int8(-1), None),
        (pandas.Timestamp(1_000), None),
        (datetime(1, 1, 1), None),
    ],
    ids=repr,
)
def test_a_literal_that_no_type_can_hold_is_refused_when_it_is_written(value: Any, problem: str | None) -> None:
    words = (lambda: lit(value), lambda: col("id") == value, lambda: col("id").is_in([value]))
    for word in words:
        if problem is None:
            word()
        else:
            with pytest.raises(GraphError, match=f"the literal .* {problem}"):
                word()


@pytest.mark.parametrize(
    "word",
    [
        lambda: col("at") < datetime(1, 1, 1),
        lambda: col("at").is_in([datetime(9999, 1, 1)]),
        lambda: col("at").fill_null(datetime(1, 1, 1)),
        lambda: flow.when(col("at").is_null()).then(datetime(1, 1, 1)).otherwise(col("at")),
        lambda: col("took") == timedelta(days=200_000),
    ],
)
def test_a_time_that_a_column_of_nanoseconds_has_no_room_for_is_refused_while_the_graph_is_built(
    word: Callable[[], flow.Expr],
) -> None:
    stream = rows(pa.table({"at": pa.array([0], pa.timestamp("ns")), "took": pa.array([0], pa.duration("ns"))}))
    with pytest.raises(SchemaMismatch, match=r"cast\(type\)"):
        stream.select(y=word())


def test_a_literal_above_int64_is_refused_where_int64_is_computed() -> None:
    with pytest.raises(SchemaMismatch, match=r'is in int64, and 9223372036854775808 exceeds it.*cast\("uint64"\)'):
        rows().select(y=col("id") + 2**63)
    assert rows().filter(col("id") < 2**63).collect().num_rows == 3


@pytest.mark.parametrize(
    "keys", [("id", "seller"), (["id", "seller"],), (col("id"), "seller"), ((col("id"), "seller"),)]
)
def test_keys_are_names_plain_columns_or_lists_of_these(keys: Any) -> None:
    keyed = rows().key_by(*keys)
    assert keyed.keys == ("id", "seller")
    assert keyed.agg(n=op.count()).collect().num_rows == 2


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [
        (col("id") + 1, GraphError, r"with_columns\(key=col\('id'\) \+ 1\)"),
        (col("id").alias("x"), GraphError, "a key must be a plain column"),
        (5, GraphError, "expected names of columns, got 5"),
        ([], GraphError, "no key is given"),
        (["id", "id"], GraphError, "duplicate column 'id'"),
        (col("ids"), UnknownColumn, "did you mean 'id'"),
    ],
)
def test_other_keys_are_refused_with_what_to_do(key: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^key_by: .*{said}"):
        rows().key_by(key)


NESTED = {
    "list": pa.array([[1]]),
    "struct": pa.array([{"a": 1}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "list_view": pa.array([[1]], pa.list_view(pa.int64())),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_keys_are_refused_while_the_graph_is_built(kind: str) -> None:
    stream = rows(pa.table({"k": NESTED[kind]}))
    with pytest.raises(SchemaMismatch, match=f"^key_by: the column 'k' of type {kind}.* cannot be a key"):
        stream.key_by("k")


def test_a_type_that_keyed_state_has_no_room_for_is_refused_while_the_graph_is_built() -> None:
    column = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    keyed = rows(pa.table({"k": column, "at": pa.array([1], pa.timestamp("s"))})).with_watermark("at").key_by("k")
    windows = keyed.window(op.tumbling("1s"))
    calls = {
        "agg": lambda: keyed.agg(op.count()),
        "top": lambda: keyed.top(1, by="at"),
        "unique": lambda: keyed.unique("k"),
        "join": lambda: keyed.join(keyed, on="k"),
    }
    of_windows = [("agg", lambda: windows.agg(op.count())), ("top", lambda: windows.top(1, by="at"))]
    for word, call in [*calls.items(), *of_windows]:
        with pytest.raises(SchemaMismatch, match=rf"^{word}: the column 'k' of type .* cannot be a key"):
            call()
