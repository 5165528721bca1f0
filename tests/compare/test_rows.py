"""Tables compared: as multisets, by the last row of a key, and with floats that were added up in another order."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from dataflow.compare.rows import difference, differing_keys, last_rows, same_but_for_rounding

NEXT = math.nextafter(0.3, 1)


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 1],
        ["a", None],
        pa.array(["a", "b", "a"]).dictionary_encode(),
        [[1, 2], None, [1, 2]],
        [{"a": 1}, {"a": None}],
        [1.5, float("nan"), None],
        pa.nulls(3),
    ],
)
def test_a_table_does_not_differ_from_itself_in_another_order(values: Any) -> None:
    table = pa.table({"x": values})
    backwards = table.take(list(reversed(range(table.num_rows))))
    assert difference(table, backwards)[1:] == (0, 0)
    assert same_but_for_rounding(table, backwards)


def test_a_difference_counts_copies() -> None:
    rows, more, fewer = difference(pa.table({"x": ["a", "a", "a", "b"]}), pa.table({"x": ["a", "c", "c"]}))
    assert (sorted(rows["x"].to_pylist()), more, fewer) == (["a", "b", "c"], 3, 2)


def test_columns_may_stand_in_another_order() -> None:
    assert difference(pa.table({"x": [1], "y": [2]}), pa.table({"y": [2], "x": [1]}))[1:] == (0, 0)


@pytest.mark.parametrize(("other", "same"), [(NEXT, True), (0.3 * (1 + 2e-9), False), (None, False)])
def test_floats_may_differ_by_rounding(other: float | None, same: bool) -> None:  # noqa: FBT001 - the expectation
    one, two = pa.table({"k": [1, 2], "x": [0.3, 5.0]}), pa.table({"k": [2, 1], "x": [5.0, other]})
    assert same_but_for_rounding(one, two) is same
    assert differing_keys(one, two, ["k"])["k"].to_pylist() == ([] if same else [1])


def test_the_last_row_of_each_key_is_the_lowest_in_the_table() -> None:
    table = pa.table({"k": ["a", None, "a", None], "x": [[1], [2], [3], None]})
    assert sorted(map(str, last_rows(table, ["k"]).to_pylist())) == ["{'k': 'a', 'x': [3]}", "{'k': None, 'x': None}"]


def test_a_key_that_one_table_lacks_differs() -> None:
    one, two = pa.table({"k": [1, None], "x": ["a", "b"]}), pa.table({"k": [None, 3], "x": ["b", "c"]})
    assert sorted(differing_keys(one, two, ["k"])["k"].to_pylist()) == [1, 3]


@pytest.mark.parametrize("zero", [0, 0.0, ""])
def test_a_null_is_not_the_value_below_it(zero: object) -> None:
    one, two = pa.table({"k": [1, 2], "x": [None, zero]}), pa.table({"k": [1, 2], "x": [zero, None]})
    assert sorted(differing_keys(one, two, ["k"])["k"].to_pylist()) == [1, 2]
