"""What can be claimed of a sink, by the path that leads to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.compare.claims import AnyRows, Claim, LastRowsOfKeys, Rows, Unsettled, claims
from dataflow.compare.comparing import most_late
from dataflow.contracts.operator import Operator
from dataflow.contracts.window_kinds import tumbling
from operators.sinks.collect import collect
from operators.sources.arrow import from_arrow


class _Keeps(Operator):
    """It might have state."""


def _claim(path: Callable[[flow.Stream], flow.Stream]) -> Claim:
    with flow.Pipeline() as p:
        path(p.source(from_arrow(pa.table({"k": [1], "x": [1.0]})), name="in")).sink(collect(), name="out")
    return claims(p.graph)["out"]


def _updates(stream: flow.Stream, emit: str = "updates", name: str = "agg") -> flow.Stream:
    return stream.key_by("k").agg(col("x").sum().alias("s"), emit=emit, name=name)


SUMS = pa.schema({"k": pa.int64(), "s": pa.float64()})
CHANGELOG = LastRowsOfKeys(("k",), ("k",), "agg", updates=True, first=True)


@pytest.mark.parametrize(
    "path",
    [
        lambda s: s.filter(col("x") > 0).select("x"),
        lambda s: s.union(s).rebalance(),
        lambda s: s.map_batches(lambda batch: batch, schema=s.schema),
    ],
)
def test_paths_without_state_keep_every_row(path: Callable[[flow.Stream], flow.Stream]) -> None:
    assert _claim(path) == Rows()


def test_an_operator_that_may_have_state_gives_any_rows() -> None:
    assert _claim(lambda s: s.apply(lambda context: _Keeps(), schema=s.schema)) == AnyRows()


def test_a_changelog_is_compared_by_its_last_rows() -> None:
    assert _claim(_updates) == CHANGELOG
    assert _claim(lambda s: _updates(s).filter(col("k") > 1)) == CHANGELOG
    assert _claim(lambda s: _updates(s).key_by("k")) == CHANGELOG


def test_keys_are_followed_through_new_names() -> None:
    claim = _claim(lambda s: _updates(s).select("s", col("k").alias("key")))
    assert claim == LastRowsOfKeys(("key",), ("k",), "agg", updates=True, first=True)


def test_keys_of_updates_are_followed_to_a_copy() -> None:
    claim = _claim(lambda s: _updates(s).with_columns(copy=col("k")).select("s", "copy"))
    assert claim == LastRowsOfKeys(("copy",), ("k",), "agg", updates=True, first=True)


def test_a_final_aggregate_without_its_keys_still_gives_the_same_rows() -> None:
    assert _claim(lambda s: _updates(s, "final").select("s")) == AnyRows()


def test_an_aggregate_of_final_rows_is_not_the_first_state() -> None:
    claim = _claim(lambda s: _updates(_updates(s, "final", "before").select("k", col("s").alias("x"))))
    assert claim == LastRowsOfKeys(("k",), ("k",), "agg", updates=True, first=False)


@pytest.mark.parametrize(
    "path",
    [
        lambda s: s,
        lambda s: s.select("s"),
        lambda s: s.filter(col("s") > 1),
        lambda s: s.rebalance(),
        lambda s: s.key_by("s").agg(n=col("k").count()),
        lambda s: s.map_batches(lambda b: b, schema=SUMS),
    ],
)
def test_updates_that_count_as_rows_are_not_compared(path: Callable[[flow.Stream], flow.Stream]) -> None:
    claim = _claim(lambda s: path(_updates(s).as_rows()))
    assert isinstance(claim, Unsettled)
    assert "the updates of 'agg' count as rows" in claim.reason


def test_windows_are_compared_by_key_and_window_unless_rows_come_late() -> None:
    table = pa.table({"k": [1], "x": [1.0], "t": pa.array([1], pa.timestamp("s"))})
    with flow.Pipeline() as p:
        windows = p.source(from_arrow(table), name="in").with_watermark("t").key_by("k").window(tumbling("10s"))
        windows.agg(col("x").sum().alias("s"), name="agg").sink(collect(), name="out")
    key = ("k", "window_start")
    assert claims(p.graph)["out"] == LastRowsOfKeys(key, key, "agg", updates=False, first=False, windowed=True)


def test_late_rows_are_counted_by_operator_and_not_added_up_over_runs() -> None:
    times = pa.array([0, 10, 1, 11, 2], pa.timestamp("s"))
    with flow.Pipeline("late") as p:
        rows = p.source(op.from_arrow(pa.table({"k": 5 * ["a"], "at": times}), batch_rows=1), name="rows")
        windows = rows.with_watermark("at", delay="2s").key_by("k").window(op.tumbling("5s"))
        counts = windows.agg(op.count().alias("n"), name="counts")
        counts.sink(op.collect(), name="out")
        counts.side("late").sink(op.collect(), name="late")
    once = most_late({"other": 7}, p.run("simulated"))
    assert once == {"other": 7, "counts": 2}
    assert most_late(once, p.run("simulated")) == once


def test_signed_changes_are_compared_by_what_is_left_of_them() -> None:
    assert _claim(lambda s: _updates(s, "changes")) == replace(CHANGELOG, updates=False)
    assert _claim(lambda s: _updates(s, "changes").filter(col("s") > 1)) == replace(CHANGELOG, updates=False)
    unsettled = _claim(lambda s: _updates(s, "changes").as_rows())
    assert isinstance(unsettled, Unsettled)
    assert "the signed changes of 'agg' count as rows" in unsettled.reason
