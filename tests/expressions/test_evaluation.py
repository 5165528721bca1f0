"""Corners of the pyarrow lowering: constants, times, text, dictionaries, casts, empty and sliced batches."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.expressions import Expr, col, lit

UTC = datetime.UTC
DAY = datetime.datetime(2020, 1, 1, tzinfo=UTC)


def values(expr: Expr, **columns: pa.Array) -> list[Any]:
    batch = pa.record_batch(columns) if columns else pa.record_batch({"n": [1, 2]})
    made = expr.evaluate(batch)
    assert isinstance(made, pa.Array)
    assert made.type == expr.dtype(batch.schema)
    made.validate(full=True)
    assert len(made) == batch.num_rows
    return made.to_pylist()


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (lit(7) // 2, 3),
        (lit(-7) % 3, 2),
        (lit(7) // 0, None),
        (lit(7) / 0, float("inf")),
        (lit(2).is_in([1, 2]), True),
        (lit(2).is_in([]), False),
        (lit(None).is_null(), True),
        (lit(None).fill_null(3), 3),
        (lit(None) + 1, None),
        (lit(None) == lit(None), None),
        (-lit(None), None),
        (~lit(None), None),
        (lit(None) & lit(value=False), False),
        (lit("2").cast("int32"), 2),
        (lit(2).alias("x").abs(), 2),
        (lit(2**64 - 1), 2**64 - 1),
        (lit(np.float32(0.5)) + np.int8(1), 1.5),
    ],
)
def test_constants_are_as_long_as_the_batch(expr: Expr, expected: object) -> None:
    assert values(expr) == [expected, expected]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_compare_in_every_unit(unit: str) -> None:
    times = pa.array([DAY, None], pa.timestamp(unit, "UTC"))
    later = DAY + datetime.timedelta(microseconds=1)
    assert values(col("t") < later, t=times) == [True, None]
    assert values(col("t").is_in([DAY, later]), t=times) == [True, None]
    assert values(col("t") == col("u"), t=times, u=times.cast(pa.timestamp("ns", "UTC"))) == [True, None]


def test_times_and_durations_combine() -> None:
    times = pa.array([DAY, None], pa.timestamp("us", "UTC"))
    assert values(col("t") + datetime.timedelta(days=1), t=times) == [DAY + datetime.timedelta(days=1), None]
    assert values(col("t") - DAY, t=times) == [datetime.timedelta(0), None]


def test_decimals_are_exact_but_for_true_division() -> None:
    prices = pa.array([Decimal("1.10"), None], pa.decimal128(5, 2))
    assert values(col("p") * 3, p=prices) == [Decimal("3.30"), None]
    assert values(col("p") + Decimal("0.001"), p=prices) == [Decimal("1.101"), None]
    assert values(col("p") / 2, p=prices) == [0.55, None]
    assert values(col("p") > 1, p=prices) == [True, None]
    assert values(col("p").is_in([1, Decimal("1.1")]), p=prices) == [True, None]
    assert values(col("p") == col("i"), p=prices, i=pa.array([1, 2])) == [False, None]


def test_text_of_any_width_compares() -> None:
    small, large = pa.array(["a", None]), pa.array(["a", "b"], pa.large_string())
    assert values(col("s") == col("l"), s=small, l=large) == [True, None]
    assert values(col("l") >= "b", l=large) == [False, True]


def test_views_compare_and_fill_as_what_they_show() -> None:
    one, two = pa.array(["unused", "a", None], pa.string_view()).slice(1), pa.array(["a", "b"], pa.string_view())
    assert values(col("v") == col("w"), v=one, w=two) == [True, None]
    assert values(col("v") < "b", v=one) == [True, None]
    assert values(col("v").fill_null(col("w")), v=one, w=two) == ["a", "b"]
    assert values(col("v").is_in(["a"]), v=one) == [True, None]
    assert values(col("v") == b"a", v=one.cast(pa.binary_view())) == [True, None]


def test_a_narrow_column_keeps_its_type_beside_a_literal_that_fits() -> None:
    batch = pa.record_batch({"x": pa.array([None, 3], pa.int8())})
    assert col("x").fill_null(0).dtype(batch.schema) == pa.int8()
    assert col("x").fill_null(300).dtype(batch.schema) == pa.int64()
    assert values(col("x") < 300, x=batch["x"]) == [None, True]
    assert values(col("x").is_in([3, 300]), x=batch["x"]) == [None, True]


def test_a_float32_compares_as_float64() -> None:
    assert values(col("x") == 0.1, x=pa.array([0.1], pa.float32())) == [False]


def test_ints_round_to_floats_beyond_two_to_the_53() -> None:
    big = 2**53 + 1
    assert values(col("x") + 0.0, x=pa.array([big])) == [float(big)]
    assert values(col("x").cast("float64"), x=pa.array([big])) == [float(big)]


@pytest.mark.parametrize(
    ("expr", "error"),
    [
        (col("i").cast("int8"), OverflowError),
        (col("i").cast("uint32"), OverflowError),
        (col("s").cast("int64"), ValueError),
        (col("i") * 2**62, OverflowError),
    ],
)
def test_a_value_that_cannot_be_names_the_expression(expr: Expr, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        values(expr, i=pa.array([-300]), s=pa.array(["x1"]))
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"expression: {expr}: ")


def test_what_lies_under_a_null_does_not_matter() -> None:
    hidden = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([-(2**63), 6]).tobytes())], null_count=1
    )
    assert values(col("x") // -1, x=hidden) == [None, -6]
    assert values(col("x") * 4, x=hidden) == [None, 24]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_dictionary_answers_as_its_values_do(rows: int) -> None:
    plain = pa.array((["a", None, "b", "a", "c"])[:rows], pa.string())
    encoded = plain.dictionary_encode()
    bigger = pa.concat_arrays([plain, pa.array([f"z{n}" for n in range(9)])]).dictionary_encode().slice(0, rows)
    for expr in (col("k") == "a", col("k") != "a", col("k") > "b", col("k").is_in(["a", "c"]), col("k").fill_null("x")):
        expected = values(expr, k=plain)
        assert values(expr, k=encoded) == values(expr, k=bigger) == expected


@pytest.mark.parametrize(
    ("text", "target"),
    [("a", "int64"), ("999", "int8"), ("?", "bool"), ("1.2.3", pa.decimal128(9, 2)), ("now", "date32")],
)
def test_text_that_cannot_be_read_comes_with_advice_that_fits(text: str, target: pa.DataType | str) -> None:
    with pytest.raises(ValueError, match=r"some of this text cannot be read as .*map_batches") as caught:
        values(col("s").cast(target), s=pa.array([text]))
    assert "wider" not in str(caught.value)
