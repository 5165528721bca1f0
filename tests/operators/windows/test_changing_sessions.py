"""Sessions that change after they came out, of aggregates that cannot be merged: each batch folds only its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import operators as op
from dataflow.expressions import Aggregation, col
from dataflow.planning.aggregate_specs import Emit
from operators.steps.quantile import Quantiles
from operators.windows.row_cells import RowCells
from tests.operators.windows.sessioned import Sessioned, drawn_rows
from tests.operators.windows.windowed import END, MERGED
from tests.seeds import seeds

TEXT = col("x").cast(pa.string())
FREE = (
    col("x").quantile(0.5).alias("median"),
    col("x").to_list(by="t").alias("list"),
    col("x").count_distinct().alias("distinct"),
    TEXT.max().alias("greatest text"),
    TEXT.last(by="t").alias("last text"),
)
"""Aggregates that do not depend on the order of rows of different times."""
TIES = col("x") % 2
BOUND = (TEXT.last(by=TIES).alias("last text by x"), col("x").to_list(by=TIES).alias("list by x"))
"""Aggregates that depend on it."""


@pytest.fixture
def folded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each fold into quantiles."""
    rows: list[int] = []
    fold = Quantiles.fold

    def counted(self: Quantiles, records: Any, slots: Any, inputs: Any) -> None:
        rows.append(len(slots))
        fold(self, records, slots, inputs)

    monkeypatch.setattr(Quantiles, "fold", counted)
    return rows


def changing(*aggregations: Aggregation, lateness: int = 10_000) -> Sessioned:
    return Sessioned(10, lateness=lateness, emit=Emit.CHANGES, aggregations=aggregations)


def folded_sessions(w: Sessioned) -> int:
    cells = w.operator._cells
    assert isinstance(cells, RowCells)
    return len(cells._sessions)


def test_a_batch_folds_only_its_rows_into_a_session_that_changes(folded_rows: list[int]) -> None:
    w = changing(FREE[0])
    w.feed(*[("a", i, i) for i in range(1000)])
    w.advance(1020)
    for i in range(50):
        w.feed(("a", 1, 20 * i), ("a", 2, 20 * i + 1))
    assert sum(folded_rows) == 2 * 1000 + 50 * 2  # when it came out, and when it changed for the first time


def test_if_sessions_merge_the_rows_of_the_smaller_one_are_folded_again(folded_rows: list[int]) -> None:
    w = changing(FREE[0])
    w.feed(*[("a", i, i) for i in range(100)], *[("a", i, 119 + i) for i in range(900)])
    w.advance(1100)
    w.feed(("a", 1, 50), ("a", 1, 500))  # both change
    del folded_rows[:]
    w.feed(("a", 1, 109))  # and become one
    assert folded_rows == [102]  # the new row too, because its cell is new


def test_many_small_sessions_that_join_a_large_one_are_folded_once(folded_rows: list[int]) -> None:
    w = changing(FREE[0])
    w.feed(*[("a", i, i) for i in range(1000)], *[("a", i, 1019 + 20 * i) for i in range(40)])
    w.advance(5000)
    w.feed(("a", 1, 1))
    del folded_rows[:]
    for i in range(40):
        w.feed(("a", 1, 1009 + 20 * i))
    assert sum(folded_rows) == 40 * (1 + 2)  # each small session gets a record before it is taken back


@pytest.mark.parametrize(
    "aggregations",
    [FREE, (*MERGED, FREE[0]), (*FREE, *BOUND), (BOUND[0], MERGED[1])],
    ids=["free", "mean", "all", "by"],
)
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_rows_are_taken_back_as_they_came_out_before_a_restore(seed: int, aggregations: Sequence[Aggregation]) -> None:
    """One of two equal jobs folds all rows again after each step, because records are not stored."""
    draw = Random(seed)
    folded, again = changing(*aggregations, lateness=60), changing(*aggregations, lateness=60)
    watermark = -100
    for step in range(25):
        rows = drawn_rows(draw, 2 * step, 10)
        assert sorted(folded.feed(*rows), key=repr) == sorted(again.feed(*rows), key=repr)
        watermark = max(watermark, 2 * step - draw.choice([0, 10, 30]))
        assert sorted(folded.advance(watermark), key=repr) == sorted(again.advance(watermark), key=repr)
        again.restore()
    folded.advance(END)
    assert not folded_sessions(folded)


def test_records_are_dropped_with_their_sessions() -> None:
    w = changing(*FREE, lateness=20)
    for i in range(100):
        w.feed(("a", 1, 100 * i), ("b", 2, 100 * i))
        w.advance(100 * i + 15)
        w.feed(("a", 3, 100 * i + 5))
        assert folded_sessions(w) <= 2
    w.advance(END)
    assert not folded_sessions(w)


def test_a_new_session_takes_nothing_of_one_that_is_gone() -> None:
    """Its cell has the place of an old one, while another session has a record."""
    w = changing(FREE[2], lateness=20)
    w.feed(("a", 1, 0))
    w.advance(15)
    w.feed(("a", 2, 5), ("b", 1, 30))
    w.advance(45)
    w.feed(("b", 2, 35))
    assert w.advance(46) == [("b", 30, 45, 2, 1)]  # and the session of "a" is gone
    w.feed(("c", 7, 50), ("d", 8, 50))
    assert sorted(w.advance(61)) == [("c", 50, 60, 1, 1), ("d", 50, 60, 1, 1)]
    assert w.feed(("d", 9, 51)) == [("d", 50, 60, 1, -1)]
    assert w.advance(62) == [("d", 50, 61, 2, 1)]


def test_sessions_with_a_record_and_others_come_out_together() -> None:
    w = changing(FREE[0])
    w.feed(("a", 1, 0), ("b", 7, 0))
    w.advance(11)
    w.feed(("b", 7, 8))  # has a record from now on
    w.feed(("c", 1, 5))
    assert w.advance(30) == [("c", 5, 15, 1.0, 1), ("b", 0, 18, 7.0, 1)]


def test_functions_of_python_get_the_rows_of_a_session_in_the_order_of_arrival() -> None:
    add = {"add": lambda text, x: f"{text}{x}", "merge": lambda text, later: text + later}
    w = changing(op.aggregate_python("x", zero="", **add, state=pa.string()).alias("values"))
    w.feed(("a", 1, 5), ("a", 2, 0))
    assert w.advance(40) == [("a", 0, 15, "12", 1)]
    assert w.feed(("a", 3, 3)) == [("a", 0, 15, "12", -1), ("a", 0, 15, "123", 1)]


def test_columns_of_rows_are_kept_only_for_aggregates_that_cannot_be_merged() -> None:
    w = changing(*MERGED, TEXT.count_distinct().alias("distinct"), col("t").max().alias("last time"))
    kept = w.operator._cells._kept  # type: ignore[attr-defined]
    assert kept.names == ["x"]


def test_a_session_that_is_not_complete_any_more_is_taken_back_after_those_that_are_replaced() -> None:
    w = changing(col("x").sum().alias("sum"))
    w.feed(("b", 1, 5), ("a", 1, 0))
    w.advance(17)
    assert w.feed(("b", 1, 9), ("a", 1, 1)) == [("a", 0, 10, 1, -1), ("a", 0, 11, 2, 1), ("b", 5, 15, 1, -1)]
