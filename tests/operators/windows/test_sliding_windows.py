"""Sliding windows against a plain model: any order of rows and watermarks, late rows, restores, and bad input."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dataflow.expressions import col, count
from operators.stateful import changes
from operators.windows.late_results import LateResults
from tests.forcing import Force
from tests.operators.operating import drained
from tests.operators.windows.sliding import END, SCHEMA, Sliding, SlidingWindows, random_steps
from tests.seeds import seeds

LATENESS = [None, 0, 4, 25]


@pytest.mark.parametrize("keyed", ["keyed", "all rows"])
@pytest.mark.parametrize("lateness", LATENESS, ids=str)
@pytest.mark.parametrize("seed", seeds(1, 300))
def test_every_step_agrees_with_the_model(seed: int, lateness: int | None, keyed: str) -> None:
    windows = SlidingWindows(lateness, keyed == "keyed")
    for step in random_steps(Random(seed)):
        windows.step(step)


@pytest.mark.parametrize("lateness", LATENESS, ids=str)
@pytest.mark.parametrize("seed", seeds(1, 100))
def test_a_restore_after_each_step_changes_nothing(seed: int, lateness: int | None) -> None:
    windows = SlidingWindows(lateness, again=True)
    for step in random_steps(Random(seed), steps=25):
        windows.step(step)


@pytest.mark.parametrize("period", [1, 3, 1000], ids=str)
def test_windows_of_any_length_agree_with_the_model(period: int) -> None:
    windows = SlidingWindows(25, period=period)
    for step in random_steps(Random(period)):
        windows.step(step)


def test_a_row_comes_out_when_the_watermark_is_above_its_time() -> None:
    windows = Sliding(aggregations=[count().alias("n")])
    assert windows.feed(("a", 1, "s", 5)) == []
    assert windows.advance(5) == []
    assert windows.feed(("a", 2, "s", 5)) == []
    assert windows.advance(6) == [("a", 1, "s", 5, 2), ("a", 2, "s", 5, 2)]


def test_a_row_at_the_watermark_is_not_late_and_one_before_it_is() -> None:
    windows = Sliding(aggregations=[count().alias("n")])
    windows.advance(5)
    windows.feed(("a", 1, "s", 5), ("a", 2, "s", 4))
    assert windows.late() == [("a", 2, "s", 4)]
    assert (windows.context.tally.late, windows.context.tally.lateness.most) == (1, 1)


def test_the_first_row_of_a_window_is_after_its_start() -> None:
    windows = Sliding(aggregations=[count().alias("n")])
    windows.feed(("a", 1, "s", 0), ("a", 2, "s", 10), ("a", 3, "s", 9))
    assert [row[4] for row in windows.advance(END)] == [1, 2, 2]


def test_a_result_that_a_late_row_leaves_as_it_is_is_not_emitted_again() -> None:
    windows = Sliding(aggregations=[col("x").max().alias("m")], lateness=20)
    windows.feed(("a", 7, "s", 10), ("a", 9, "s", 12))
    windows.advance(13)
    assert windows.feed(("a", 8, "s", 9)) == [
        ("a", 8, "s", 9, 8, 1),
        ("a", 7, "s", 10, 7, -1),
        ("a", 7, "s", 10, 8, 1),
    ]


def test_changes_of_rows_of_equal_times_are_in_the_order_of_arrival() -> None:
    windows = Sliding(aggregations=[count().alias("n")], lateness=20)
    windows.feed(("b", 1, "s", 10), ("a", 1, "s", 10))
    windows.advance(13)
    changes = windows.feed(("b", 1, "s", 9), ("a", 1, "s", 9), ("b", 1, "s", 8))
    assert [(row[0], *row[3:]) for row in changes if row[-1] == 1] == [
        ("b", 8, 1, 1),
        ("b", 9, 2, 1),
        ("a", 9, 1, 1),
        ("b", 10, 3, 1),
        ("a", 10, 2, 1),
    ]


@pytest.mark.parametrize("at_once", [1, 3])
def test_changes_come_out_in_batches_of_a_largest_size(at_once: int, force: Force) -> None:
    force(changes, "AT_ONCE", at_once, calls=changes._changed, within=LateResults.changes, times=2)
    windows = SlidingWindows(25)
    for step in random_steps(Random(2)):
        windows.step(step)


def test_late_rows_at_the_end_of_64_bits_change_those_after_them() -> None:
    windows, last = Sliding(aggregations=[count().alias("n")], lateness=20), 2**63 - 2
    for time in (last - 1, last - 3):
        rows = pa.table(
            [pa.array([value], type_) for value, type_ in zip(("a", 1, "s", time), SCHEMA.types, strict=True)],
            schema=SCHEMA,
        )
        drained(windows.operator.process(0, rows.to_batches()[0], windows.out))
        drained(windows.operator.advance(last, windows.out))
    results = [batch.select(["n", "change"]).to_pylist() for batch in windows.out.batches[None]]
    assert [tuple(row.values()) for rows in results for row in rows] == [(1, 1), (1, 1), (1, -1), (2, 1)]


def test_sums_of_floats_are_taken_back_bit_by_bit() -> None:
    random = Random(3)
    floats = pa.schema([*list(SCHEMA)[:1], pa.field("x", pa.float64()), *list(SCHEMA)[2:]])
    aggregations = [col("x").sum().alias("sum"), col("x").mean().alias("mean"), col("x").variance().alias("spread")]
    windows = Sliding(aggregations=aggregations, lateness=1000, schema=floats)
    shown: dict[Any, int] = {}
    for now in range(0, 300, 3):
        rows = [("a", random.choice([random.gauss(0, 10.0**9), 0.1]), "s", now - random.randint(0, 40)) for _ in "abc"]
        for row in [*windows.feed(*rows), *windows.advance(now)]:
            shown[row[:-1]] = shown.get(row[:-1], 0) + row[-1]
            assert shown[row[:-1]] >= 0, f"{row} was not shown"
        if now % 60 == 0:
            again = windows.snapshot()
            windows = Sliding(aggregations=aggregations, lateness=1000, schema=floats, restored=again)


def test_nan_leaves_with_its_row() -> None:
    floats = pa.schema([*list(SCHEMA)[:1], pa.field("x", pa.float64()), *list(SCHEMA)[2:]])
    windows = Sliding(aggregations=[col("x").sum().alias("sum"), col("x").max().alias("max")], schema=floats)
    windows.feed(("a", math.nan, "s", 0), ("a", math.inf, "s", 5), ("a", 1.5, "s", 12), ("a", 2.0, "s", 16))  # type: ignore[arg-type]
    results = [row[4:] for row in windows.advance(END)]
    assert [math.isnan(value) for value in results[1]] == [True, True]
    assert results[2:] == [(math.inf, math.inf), (3.5, 2.0)]


def test_rows_are_kept_for_one_period_and_the_lateness() -> None:
    windows = Sliding(lateness=7)
    windows.feed(*[("a", 1, "s", time) for time in range(100)])
    windows.advance(60)
    kept = windows.snapshot().logs["state"][0]["rows"]  # type: ignore[index]
    assert sorted(kept["/time"].to_pylist())[0] == 60 - 7 - 10 + 1
    windows.advance(1000)
    assert windows.operator._state.live == 0


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_state_divides_by_key_group(seed: int) -> None:
    windows, steps = SlidingWindows(None), list(random_steps(Random(seed), steps=12))
    for step in steps[:-1]:
        windows.step(step)
    snapshot, before = windows.operator.snapshot(), len(windows.model.shown())
    halves = [Sliding(restored=snapshot, groups=groups) for groups in (range(50), range(50, 128))]
    windows.model.step(END)
    rest = [row for half in halves for row in half.advance(END)]
    assert sorted(rest, key=repr) == sorted(windows.model.shown()[before:], key=repr)


@pytest.mark.parametrize("time", [-(2**63) + 5, 2**63 - 1])
def test_a_time_without_a_window_is_an_error_that_names_the_column(time: int) -> None:
    with pytest.raises(OverflowError, match="op: event times in 't' are out of range"):
        Sliding().feed(("a", 1, "s", 0), ("a", 1, "s", time))


def test_a_null_time_is_an_error_that_names_the_column() -> None:
    with pytest.raises(ValueError, match="op: 1 event times are null in 't'"):
        Sliding().feed(("a", 1, "s", None))  # type: ignore[arg-type]


def test_a_sum_that_overflows_names_its_key() -> None:
    windows = Sliding(aggregations=[col("x").sum().alias("sum")])
    windows.feed(("a", 2**62, "s", 0), ("b", 2**62, "s", 0), ("b", 2**62, "s", 5), ("a", 2**62, "s", 50))
    with pytest.raises(OverflowError, match=r"'sum' of key .*'b'"):
        windows.advance(END)


def test_a_sum_that_overflows_because_of_a_late_row_names_its_key() -> None:
    windows = Sliding(aggregations=[col("x").sum().alias("sum")], lateness=20)
    windows.feed(("a", 1, "s", 0), ("b", 2**62, "s", 0))
    windows.advance(9)
    with pytest.raises(OverflowError, match=r"'sum' of key .*'b'"):
        windows.feed(("a", 1, "s", 1), ("b", 2**62, "s", 1))
