"""What ``unique`` and ``top`` keep: keys alone, the first rows alone, and only changes in the next checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.window_kinds import Hopping, Tumbling
from dataflow.contracts.windows import EventTime
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.chosen_row_specs import Order, Ties, Top, Unique, WindowTop
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.keyed_rows import TIME
from dataflow.state.ttl import Ttl
from operators.chosen_rows import window_top
from operators.chosen_rows.top import TopOperator
from operators.chosen_rows.unique import UniqueOperator
from operators.chosen_rows.window_top import WindowTopOperator
from operators.stateful.expiry import SWEPT_AT_ONCE
from tests.forcing import Force, forced
from tests.operators.operating import Emitted, context_of, drained, made, stored

ROWS = pa.schema({"k": pa.int64(), "x": pa.int64()})
RANKED = ROWS.append(pa.field("rank", pa.int64()))
TIMED = pa.schema({"k": pa.int64(), "at": pa.timestamp("us"), "x": pa.int64()})
BY_WINDOW = pa.schema(
    {
        "k": pa.int64(),
        "window_start": pa.timestamp("us"),
        "window_end": pa.timestamp("us"),
        "at": pa.timestamp("us"),
        "x": pa.int64(),
        "rank": pa.int64(),
    }
)


def batch(*rows: tuple[int | None, int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "x": x} for k, x in rows], ROWS)


def unique(restored: Snapshot | None = None) -> UniqueOperator:
    context = context_of(ROWS, ROWS, restored=restored)
    return made(UniqueOperator(context, Unique(("k",), None, None)), context)


def top(n: int = 2, ties: Ties = "arrival", restored: Snapshot | None = None) -> TopOperator:
    spec = Top(("k",), Order(n, ("x",), (True,), ties), Emit.FINAL)
    context = context_of(ROWS, RANKED, restored=restored)
    return made(TopOperator(context, spec), context)


def windowed(window: Any, n: int = 2, restored: Snapshot | None = None) -> WindowTopOperator:
    spec = WindowTop(("k",), Order(n, ("x",), (True,), "arrival"), EventTime("at"), window, 0)
    context = context_of(TIMED, BY_WINDOW, restored=restored)
    return made(WindowTopOperator(context, spec), context)


def test_the_next_checkpoint_has_the_new_keys_alone() -> None:
    operator, out = unique(), Emitted()
    operator.process(0, batch((1, 0), (2, 0)), out)
    stored(operator.snapshot())
    operator._state.freeze(10**9)
    operator._state.durable(10**9)
    operator.process(0, batch((1, 1), (3, 1), (2, 1)), out)
    delta = operator._state.freeze(10**9 + 1, since=10**9)["keys"].read_all()
    assert delta["k"].to_pylist() == [3]
    assert out.take() == [(1, 0), (2, 0), (3, 1)]


def test_a_restored_key_is_known() -> None:
    operator, out = unique(), Emitted()
    operator.process(0, batch((1, 0), (None, 0)), out)
    again = unique(stored(operator.snapshot()))
    out.take()
    again.process(0, batch((None, 5), (2, 5), (1, 5)), out)
    assert out.take() == [(2, 5)]


def test_only_the_first_rows_are_kept() -> None:
    operator, out = top(), Emitted()
    for start in range(0, 100, 10):
        drained(operator.process(0, batch(*[(1, x) for x in range(start, start + 10)], (2, start)), out))
        assert operator._state.count_rows(operator._state.slots).max() <= 2
    operator = top(restored=stored(operator.snapshot()))
    operator._state.validate()
    drained(operator.process(0, batch((1, 98), (2, 90)), out))
    drained(operator.finish(out))
    assert out.take() == [(1, 99, 1), (1, 98, 2), (2, 90, 1), (2, 90, 2)]
    assert operator._state.live == 0


def test_rows_with_the_last_rank_are_all_kept() -> None:
    operator, out = top(2, "all"), Emitted()
    drained(operator.process(0, batch((1, 5), (1, 3), (1, 3), (1, 2), (1, 3)), out))
    assert operator._state.count_rows(operator._state.slots).tolist() == [4]
    drained(operator.finish(out))
    assert out.take() == [(1, 5, 1), (1, 3, 2), (1, 3, 2), (1, 3, 2)]


def test_a_key_is_new_again_at_the_watermark_though_nothing_swept_it_yet() -> None:
    operator, out = UniqueOperator(context_of(TIMED, TIMED), Unique(("k",), Ttl(5), EventTime("at"))), Emitted()
    keys = range(3 * SWEPT_AT_ONCE)
    operator.process(0, pa.record_batch({"k": keys, "at": [0] * len(keys), "x": keys}, schema=TIMED), out)
    operator.advance(100, out)
    assert operator._state.live > 0
    operator.process(0, pa.record_batch({"k": keys, "at": [2] * len(keys), "x": keys}, schema=TIMED), out)
    assert len(out.take()) == 2 * len(keys)


@pytest.mark.parametrize("again", [False, True])
def test_rows_of_equal_order_stay_in_the_order_of_arrival_over_batches(again: bool) -> None:  # noqa: FBT001
    operator, out = top(3), Emitted()
    drained(operator.process(0, batch((2, 0), (2, 0), (1, 7), (1, 5)), out))
    if again:
        operator = top(3, restored=stored(operator.snapshot()))
    drained(operator.process(0, batch((1, 7), (1, 7)), out))
    numbers = operator._kept(operator._state.find([pa.array([1])]))[1]
    arrived = operator._state.row_records[numbers, TIME].tolist()
    assert arrived == [2, 4, 5]


@pytest.mark.parametrize("window", [Tumbling(100), Hopping(100, 50)])
def test_a_large_slice_is_cut_down_to_rows_that_can_come_out(window: Any, force: Force) -> None:
    force(window_top, "_LARGE", 30, calls=WindowTopOperator._cut_down, times=10)
    rng = np.random.default_rng(1)
    operator, whole, out, expected = windowed(window), windowed(window), Emitted(), Emitted()
    for number in range(20):
        columns = [rng.integers(0, 3, 25), rng.integers(0, 100, 25), rng.integers(0, 1000, 25)]
        arrays = [pa.array(columns[0]), pa.array(columns[1], pa.timestamp("us")), pa.array(columns[2])]
        rows = pa.RecordBatch.from_arrays(arrays, schema=TIMED)
        operator.process(0, rows, out)
        with forced(window_top, "_LARGE", 1 << 30, without=WindowTopOperator._cut_down):
            whole.process(0, rows, expected)
        if number == 10:
            operator = windowed(window, restored=stored(operator.snapshot()))
    assert operator._log.entries < 150
    drained(operator.advance(MAX_WATERMARK, out))
    drained(whole.advance(MAX_WATERMARK, expected))
    assert sorted(out.take()) == sorted(expected.take())


def test_a_null_event_time_by_which_keys_expire_is_an_error() -> None:
    spec = Unique(("k",), Ttl(5), EventTime("at"))
    operator = UniqueOperator(context_of(TIMED, TIMED), spec)
    with pytest.raises(ValueError, match=r"op: 1 event times are null in 'at'; filter such rows out"):
        operator.process(0, pa.RecordBatch.from_pylist([{"k": 1, "at": None, "x": 1}], TIMED), Emitted())


def test_keys_that_have_expired_leave_the_state() -> None:
    operator = UniqueOperator(context_of(TIMED, TIMED), Unique(("k",), Ttl(5), EventTime("at")))
    for n in range(100):
        operator.process(0, pa.RecordBatch.from_pylist([{"k": n, "at": n, "x": 1}], TIMED), Emitted())
        operator.advance(n, Emitted())
    assert operator._state.live == 5


@pytest.mark.parametrize("again", [False, True])
def test_rows_of_equal_order_in_other_slices_go_by_arrival(again: bool) -> None:  # noqa: FBT001
    window = Hopping(100, 50)
    operator, out = windowed(window, 5), Emitted()

    def add(*times: int) -> None:
        rows = [{"k": 1, "at": time, "x": 7} for time in times]
        operator.process(0, pa.RecordBatch.from_pylist(rows, TIMED), out)

    add(60, 10)
    if again:
        operator = windowed(window, 5, restored=stored(operator.snapshot()))
    add(70, 20)
    drained(operator.advance(100, out))
    ranks = [(row[3].microsecond, row[5]) for row in out.take() if row[1].microsecond == 0]  # type: ignore[attr-defined]
    assert ranks == [(60, 1), (10, 2), (70, 3), (20, 4)]


@pytest.mark.parametrize("ties", ["arrival", "all"])
@pytest.mark.parametrize("emit", ["final", "changes"])
def test_rows_that_share_the_last_rank_come_out_with_it(ties: Ties, emit: str) -> None:
    table = pa.table({"x": [5, 3, 3, 2, 3, 4, 4, 3, 4], "n": list(range(9))})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1), parallelism=1)
    best = rows.top(2, by="x", ties=ties, emit=emit).collect(net=emit == "changes").sort_by("n")
    expected = [(0, 1), (5, 2)] if ties == "arrival" else [(0, 1), (5, 2), (6, 2), (8, 2)]
    assert list(zip(best["n"].to_pylist(), best["rank"].to_pylist(), strict=True)) == expected


def test_a_row_that_shares_the_last_rank_changes_nothing_else() -> None:
    table = pa.table({"x": [5, 3, 3], "n": [0, 1, 2]})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1), parallelism=1)
    changes = rows.top(2, by="x", ties="all", emit="changes").select("n", "rank").collect().to_pylist()
    assert changes == [{"n": n, "rank": rank, "change": 1} for n, rank in ((0, 1), (1, 2), (2, 2))]


def test_columns_that_no_other_operator_reads_are_still_compared() -> None:
    table = pa.table({"k": [1, 1], "x": [1, 2], "n": [10, 20], "at": pa.array([5, 4], pa.timestamp("us"))})
    rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    counts = rows.key_by("k", "x", "n").agg(c=op.count(), emit="changes")
    chosen = [
        rows.key_by("k").top(1, by="x"),
        rows.window(op.tumbling("1s")).top(1, by="x"),
        counts.key_by("k").top(1, by="x"),
        rows.unique("k", ttl="1s"),
        rows.unique("k", keep="last"),
    ]
    found = [stream.select("n").collect()["n"].to_pylist() for stream in chosen]
    assert found == [[20], [20], [20], [10], [10]]


def test_the_watermark_is_held_back_by_the_lateness_so_that_no_result_is_late() -> None:
    table = pa.table({"at": pa.array([0, 25, 10, 40], pa.timestamp("us")), "x": [1, 2, 3, 4]})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1), parallelism=1).with_watermark("at")
    best = rows.window(op.tumbling("20us"), lateness="15us").top(1, by="x", name="best")
    assert best.window(op.same_window()).agg(op.latest("x"), name="again").collect()["x"].to_pylist() == [3, 2, 4]


def test_rows_of_nested_types_are_kept() -> None:
    table = pa.table({"k": [1, 1, 2], "x": [1, 2, 3], "tags": [["a"], None, ["b", "c"]]})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1))
    found = rows.key_by("k").top(1, by="x").collect().sort_by("k")["tags"].to_pylist()
    assert found == [None, ["b", "c"]]
    assert rows.unique("k").collect()["tags"].to_pylist() == [["a"], ["b", "c"]]


def test_dictionaries_and_views_are_columns_like_others() -> None:
    texts = pa.array(["b", "a", "b", None])
    table = pa.table({"k": texts.dictionary_encode(), "v": texts.cast(pa.string_view()), "x": [1, 2, 3, 4]})
    rows = flow.Pipeline().source(op.from_arrow(table))
    assert rows.unique("k", "v").collect()["x"].to_pylist() == [1, 2, 4]
    assert rows.key_by("k").top(1, by=["v", "x"]).collect()["x"].to_pylist() == [3, 2, 4]
    assert rows.top(2, by="k").collect()["x"].to_pylist() == [1, 3]
