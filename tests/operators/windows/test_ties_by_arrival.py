"""Of rows with equal ``by``, aggregates that choose a row go by arrival, however a window puts its parts together."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.windows import EventTime, Window
from dataflow.planning.aggregate_specs import Emit, WindowAggregate
from operators.aggregation.partials import takes_records
from tests.operators.operating import stored
from tests.operators.windows.sessioned import Sessioned
from tests.operators.windows.windowed import Windowed

CHOICES = ("first", "last", "arg_min", "arg_max")
SECOND = timedelta(seconds=1)
WINDOWS = {
    "hopping": op.hopping("10s", every="2s"),
    "cumulate": op.cumulate("20s", every="5s"),
    "session": op.session("2s"),
    "sliding": op.sliding("10s"),
}

Row = dict[str, Any]


def rows_in_any_order(seed: int) -> pa.Table:
    """Rows whose ``by`` has two values and null, in any order of time."""
    rng = random.Random(seed)
    return pa.table(
        {
            "k": [rng.choice("ab") for _ in range(60)],
            "ts": pa.array([rng.randint(0, 40) for _ in range(60)], pa.timestamp("s")),
            "by": pa.array([rng.choice([None, 1, 2]) for _ in range(60)], pa.int64()),
            "x": list(range(60)),
            "s": [f"row {i}" for i in range(60)],
        }
    )


def chosen(kind: str, rows: list[Row], column: str) -> Any:
    """Return what an aggregate chooses of rows in the order of arrival."""
    ordered = [row for row in rows if row["by"] is not None]
    if not ordered:
        return rows[0 if kind == "first" else -1][column] if kind in ("first", "last") else None
    best = (min if kind in ("first", "arg_min") else max)(row["by"] for row in ordered)
    equal = [row for row in ordered if row["by"] == best]
    return equal[-1 if kind == "last" else 0][column]


def expected(result: Row, rows: list[Row], column: str, kinds: tuple[str, ...], *, keyed: bool) -> Row:
    """Return the values of a result by its window: all rows of the input that are in it, in the order of arrival."""
    if "window_start" in result:
        inside = [row for row in rows if result["window_start"] <= row["ts"] < result["window_end"]]
    else:
        inside = [row for row in rows if result["ts"] - 10 * SECOND < row["ts"] <= result["ts"]]
    inside = [row for row in inside if not keyed or row["k"] == result["k"]]
    return {kind: chosen(kind, inside, column) for kind in kinds}


def check(window: Window, column: str, *, keyed: bool, parallelism: int = 1, **options: Any) -> None:
    """Run a pipeline and compare its results with the model."""
    table = rows_in_any_order(len(str(window)))
    emit = options.pop("emit", None)
    kinds = CHOICES[:2] if isinstance(window, type(WINDOWS["sliding"])) else CHOICES
    with flow.Pipeline("ties") as p:
        timed = p.source(op.from_arrow(table, batch_rows=7)).with_watermark("ts", delay="2s" if emit else "1min")
        source = timed.key_by("k") if keyed else timed
        windows = source.window(window, **({"lateness": "1h"} if emit else {}), **options)
        results = {kind: getattr(col(column), kind)("by") for kind in kinds}
        stream = windows.agg(**results, **({"emit": emit} if emit else {}), name="chosen")
        stream.sink(op.collect(net=emit is not None), name="out")
    out = p.run(parallelism=parallelism).table("out").to_pylist()
    assert len(out) > 1
    for result in out:
        model = expected(result, table.to_pylist(), column, kinds, keyed=keyed)
        assert {kind: result[kind] for kind in kinds} == model, result


@pytest.mark.parametrize("column", ["x", "s"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_ties_go_by_arrival_however_time_divides_the_rows(kind: str, column: str) -> None:
    check(WINDOWS[kind], column, keyed=True)


@pytest.mark.parametrize("kind", ["hopping", "session"])
def test_ties_over_all_rows_go_by_arrival(kind: str) -> None:
    check(WINDOWS[kind], "x", keyed=False)


@pytest.mark.parametrize("kind", WINDOWS)
def test_ties_of_results_that_are_taken_back_go_by_arrival(kind: str) -> None:
    check(WINDOWS[kind], "x", keyed=True, emit="changes", parallelism=2)


TIES = [col("x").first(col("x") * 0).alias("first"), col("x").last(col("x") * 0).alias("last")]


@pytest.mark.parametrize(("kind", "window"), [(Windowed, op.hopping("10us", every="2us")), (Sessioned, 10)])
def test_rows_that_come_after_a_restore_arrive_later(kind: Any, window: Any) -> None:
    before = kind(window, aggregations=TIES, emit=Emit.FINAL)
    before.feed(("b", 0, 17), ("b", 0, 17), ("a", 1, 17), ("a", 2, 15))
    after = kind(window, aggregations=TIES, emit=Emit.FINAL, restored=stored(before.operator.snapshot()))
    after.feed(("a", 3, 8))
    assert {row[-2:] for row in after.advance(40) if row[:2] == ("a", 8)} == {(1, 3)}


def test_a_result_is_the_same_whether_a_trigger_folds_the_rows() -> None:
    def last_panes(**early: Any) -> list[Any]:
        timed = flow.Pipeline().source(op.from_arrow(rows_in_any_order(1), batch_rows=7))
        windows = timed.with_watermark("ts", delay="1min").key_by("k").window(op.hopping("10s", every="2s"), **early)
        panes = windows.agg(first=col("x").first("by"), last=col("x").last("by")).collect().to_pylist()
        return sorted({(row["k"], row["window_end"]): (row["first"], row["last"]) for row in panes}.items())

    assert last_panes() == last_panes(early=op.after_rows(3))


@pytest.mark.parametrize(("by", "folds"), [("ts", True), ("by", False)])
def test_rows_are_folded_before_a_shuffle_only_if_ties_are_in_one_slice(by: str, folds: bool) -> None:  # noqa: FBT001
    first = col("x").first(by).alias("first")
    spec = WindowAggregate(("k",), EventTime("ts"), op.hopping("10s", every="2s"), 0, (first,), Emit.FINAL)
    assert takes_records(spec, rows_in_any_order(1).schema) is folds
