"""Signed changes while the graph is built: where they may go, what they become, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col, lit
from dataflow.contracts.operator import Operator
from dataflow.errors import GraphError, NegativeNet, SchemaMismatch, UnknownColumn
from dataflow.runners.run_result import presented

ROWS = pa.table({"k": ["a", "a", "a", "b"], "x": [1, 2, 3, 4], "at": pa.array([1, 12, 2, 30], pa.timestamp("s"))})
Way = Callable[[flow.Stream], Any]


def rows(table: pa.Table = ROWS) -> flow.Stream:
    return flow.Pipeline().source(op.from_arrow(table, batch_rows=1), name="in")


def counts(stream: flow.Stream | None = None) -> flow.Stream:
    """How many rows there are of each key so far, as signed changes."""
    return (stream or rows()).key_by("k").agg(n=op.count(), emit="changes", name="counts")


class Passes(Operator):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


ACCEPTED: dict[str, tuple[Way, list[dict[str, Any]]]] = {
    "as it is": (lambda s: s, [{"k": "a", "n": 3}, {"k": "b", "n": 1}]),
    "filter on a value, as HAVING": (lambda s: s.filter(col("n") > 1), [{"k": "a", "n": 3}]),
    "select": (lambda s: s.select(m=col("n") + 1), [{"m": 2}, {"m": 4}]),
    "with_columns": (
        lambda s: s.with_columns(one=lit(1)),
        [{"k": "a", "n": 3, "one": 1}, {"k": "b", "n": 1, "one": 1}],
    ),
    "map": (lambda s: s.map(lambda row: {**row, "n": -row["n"]}), [{"k": "a", "n": -3}, {"k": "b", "n": -1}]),
    "flat_map": (
        lambda s: s.flat_map(lambda row: [row] * row["n"]),
        [{"k": "a", "n": 3}, {"k": "a", "n": 3}, {"k": "a", "n": 3}, {"k": "b", "n": 1}],
    ),
    "rebalance": (lambda s: s.rebalance(), [{"k": "a", "n": 3}, {"k": "b", "n": 1}]),
    "union": (
        lambda s: s.filter(col("k") == "b").union(s.filter(col("n") > 2)),
        [{"k": "a", "n": 3}, {"k": "b", "n": 1}],
    ),
    "agg of agg": (lambda s: s.key_by("n").agg(keys=op.count()), [{"n": 1, "keys": 1}, {"n": 3, "keys": 1}]),
    "agg of agg as changes": (
        lambda s: s.key_by("n").agg(keys=op.count(), emit="changes"),
        [{"n": 1, "keys": 1}, {"n": 3, "keys": 1}],
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_net_is_the_answer_over_complete_data(name: str, parallelism: int) -> None:
    way, expected = ACCEPTED[name]
    table = way(counts()).collect(net=True, parallelism=parallelism)
    assert sorted(table.to_pylist(), key=repr) == sorted(expected, key=repr)


def test_change_is_the_last_column_and_is_kept_without_being_named() -> None:
    stream = counts()
    assert stream.schema.names == ["k", "n", "change"]
    assert stream.schema.field("change").type == pa.int8()
    assert stream.changes == "signed"
    for way in (
        stream.select("n"),
        stream.with_columns(m=col("n")),
        stream.map(lambda row: row),
        stream.filter(col("n") > 1),
    ):
        assert (way.schema.names[-1], way.changes) == ("change", "signed")
    assert stream.as_rows().changes == "rows"
    assert stream.as_rows().select("change").schema.names == ["change"]


def test_rows_count_plus_one_in_a_union_with_signed_changes() -> None:
    p = flow.Pipeline()
    plain = p.source(op.from_arrow(ROWS), name="in")
    signed = plain.key_by("k").agg(x=col("x").max(), emit="changes")
    both = plain.select("k", "x").union(signed)
    assert both.changes == "signed"
    assert sorted(both.collect(net=True)["x"].to_pylist()) == [1, 2, 3, 3, 4, 4]
    with pytest.raises(GraphError, match="union: 'other' has a column 'change'"):
        p.source(op.from_arrow(pa.table({"change": [1]})), name="other")._added()


REFUSED: dict[str, tuple[Way, str]] = {
    "window": (lambda s: s.key_by("k").window(op.tumbling("1s")), "window: it would count rows that are taken back"),
    "map_batches": (lambda s: s.map_batches(lambda batch: batch), "map_batches: it would count rows"),
    "apply": (lambda s: s.apply(Passes), "apply: it would count rows"),
    "broadcast": (lambda s: s.broadcast(), "broadcast: every subtask would emit every row once more"),
    "updates": (
        lambda s: s.key_by("k").agg(op.count(), emit="updates"),
        "an update cannot say that a group has no rows",
    ),
    "ttl": (lambda s: s.key_by("k").agg(op.count(), ttl="1s"), "could be taken back after its group has expired"),
    "first without an order": (lambda s: s.key_by("k").agg(col("n").first()), "'n_first' goes by the order of arrival"),
    "latest without an order": (lambda s: s.key_by("k").agg(op.latest("n")), "'n' goes by the order of arrival"),
    "a list without an order": (lambda s: s.key_by("k").agg(col("n").to_list()), "goes by the order of arrival"),
    "an aggregate of change": (lambda s: s.key_by("k").agg(col("change").sum()), "reads 'change'"),
    "a key": (lambda s: s.key_by("change"), "'change' says how a row counts, so it is no key"),
    "a filter on change": (lambda s: s.filter(col("change") > 0), "filter: the condition reads 'change'"),
    "a column of change": (lambda s: s.select(c=col("change")), "select: 'change' is kept without being named"),
    "change by name": (lambda s: s.select("n", "change"), "'change'"),
    "a column called change": (lambda s: s.with_columns(change=lit(1)), "'change'"),
    "a schema with change": (lambda s: s.map(dict, schema=s.schema), "'change' is kept without being declared"),
    "upserts without keys": (lambda s: s.sink(op.upsert_batches(print)), "name the columns by which rows replace"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_miscount_signed_changes_is_refused(name: str) -> None:
    way, message = REFUSED[name]
    with pytest.raises(GraphError, match=message):
        way(counts())


def test_rows_with_a_column_change_cannot_become_signed_changes() -> None:
    table = pa.table({"k": ["a"], "change": [1]})
    for aggregate in (op.count(), col("change").sum()):
        with pytest.raises(GraphError, match=r"agg\(emit='changes'\): the stream has a column 'change'"):
            rows(table).key_by("k").agg(n=aggregate, emit="changes")
    assert rows(table).key_by("k").agg(change=op.count(), emit="updates").collect().num_rows == 1


def test_unbounded_signed_changes_become_signed_changes_by_default() -> None:
    ticks = flow.Pipeline().source(op.generate({"k": op.sequence()}), name="ticks")
    changing = ticks.key_by("k").agg(n=op.count(), emit="changes")
    again = changing.key_by("n").agg(keys=op.count())
    assert again.changes == "signed"
    assert changing.key_by("n").agg(keys=op.count(), emit="final").changes == "rows"


def test_a_row_that_was_taken_back_and_never_added_is_an_error_with_the_row() -> None:
    odd = counts().as_rows().filter(col("change") < 0)
    taken_back = odd._pipeline.graph.nodes[-1]
    assert taken_back.meaning is None
    table = counts().as_rows().filter(col("change") < 0).collect()
    with pytest.raises(NegativeNet, match=r"the row \{'k': 'a', 'n': 1\} was taken back 1 times more"):
        op.collect(net=True).present(table, "signed")


def test_updates_have_no_net() -> None:
    updates = rows().key_by("k").agg(n=op.count(), emit="updates")
    with pytest.raises(GraphError, match=r"collect\(net=True\) counts rows"):
        updates.collect(net=True)
    with pytest.raises(GraphError, match=r"upsert_batches\(keys=\) is for signed changes"):
        updates.sink(op.upsert_batches(print, keys="k"))


def test_keys_of_a_sink_are_checked() -> None:
    with pytest.raises(UnknownColumn, match="'key'"):
        counts().sink(op.upsert_batches(print, keys="key"))
    lists = rows().key_by("k").agg(all=col("x").to_list(), emit="changes")
    with pytest.raises(SchemaMismatch, match=r"cannot compare keys of column 'all' of type list<.*take another column"):
        lists.sink(op.upsert_batches(print, keys="all"))
    coded = pa.schema(
        [("k", pa.string()), ("l", pa.list_(pa.dictionary(pa.int32(), pa.string()))), ("change", pa.int8())]
    )
    with pytest.raises(SchemaMismatch, match=r"cannot keep column 'l' of type list<.*with a dictionary in it; cast it"):
        op.upsert_batches(print, keys="k").check(coded)


def test_nan_is_one_value_and_zero_has_no_sign_in_the_net() -> None:
    nan, weights = float("nan"), pa.array([1, -1, 1, -1, 1], pa.int8())
    table = pa.table({"x": [nan, nan, 0.0, -0.0, 1.0], "l": [[nan], [nan], [0.0], [-0.0], None], "change": weights})
    assert op.collect(net=True).present(table, "signed").to_pylist() == [{"x": 1.0, "l": None}]


def test_drop_and_rename_keep_change_and_do_not_see_it() -> None:
    assert counts().drop("k").schema.names == ["n", "change"]
    renamed = counts().rename({"n": "count"})
    assert (renamed.schema.names, renamed.changes) == (["k", "count", "change"], "signed")
    with pytest.raises(UnknownColumn, match="'change'"):
        counts().drop("change")
    with pytest.raises(GraphError, match="'change' is kept without being named"):
        counts().rename({"n": "change"})


def test_a_row_that_was_taken_back_too_often_is_left_out_if_rows_may_have_come_twice() -> None:
    with flow.Pipeline("x") as p:
        numbers = p.source(op.from_arrow(pa.table({"k": [1]})), name="in")
        numbers.key_by("k").agg(n=op.count(), emit="changes").sink(op.collect(net=True), name="out")
    changes = {"k": [1, 2, 2], "n": [1, 1, 1], "change": pa.array([1, -1, -1], pa.int8())}
    tables = presented(p.graph, {"out": pa.table(changes)}, repeated=True)
    assert tables["out"].to_pylist() == [{"k": 1, "n": 1}]
