"""Choices, casts that may fail, and hashes against their models, one row at a time."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.expressions import Expr, col, lit, when
from dataflow.state.hashing import hash_rows

MAX = 2**63 - 1
truths = st.sampled_from([True, False, None])
a, b, p, q = col("a"), col("b"), col("p"), col("q")


def evaluated(expr: Expr, **columns: pa.Array) -> list[Any]:
    batch = pa.record_batch(columns)
    made = expr.evaluate(batch)
    made.validate(full=True)
    assert made.type == expr.dtype(batch.schema)
    return made.to_pylist()


@given(st.lists(st.tuples(truths, truths, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=9))
def test_a_row_takes_the_first_branch_that_is_true(rows: list[tuple[Any, ...]]) -> None:
    types = {"p": pa.bool_(), "q": pa.bool_(), "a": pa.int64(), "b": pa.int8()}
    padded = [(True, False, 7, 7), *rows]  # so that columns are slices
    columns = {name: pa.array([row[i] for row in padded], types[name])[1:] for i, name in enumerate(types)}
    expected = [x if one else y if two else -1 for one, two, x, y in rows]
    assert evaluated(when(p).then(a).when(q).then(b).otherwise(-1), **columns) == expected
    without = [x if one else y if two else None for one, two, x, y in rows]
    assert evaluated(when(p).then(a).when(q).then(b), **columns) == without


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1, 5, MAX])), max_size=9))
def test_what_a_row_does_not_take_raises_nothing(rows: list[tuple[int, int]]) -> None:
    columns = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ab")}
    expr = when(b < 9).then(b * b).when(a > 0).then(lit("x").cast("int64")).when(b + 1 < 0).then(0).otherwise(b - a)
    failing = any(y == MAX for _, y in rows)  # a > 0 takes the cast; else b + 1 is computed, and overflows
    if failing:
        with pytest.raises((OverflowError, ValueError), match=r"overflow|parse"):
            evaluated(expr, **columns)
    else:
        assert evaluated(expr, **columns) == [y * y for _, y in rows]


def test_nested_choices_are_lazy_in_each_other() -> None:
    inner = when(b != 0).then(a * b).otherwise(0)
    columns = {"a": pa.array([MAX, 2, MAX]), "b": pa.array([0, 3, 7])}
    assert evaluated(when(a < 5).then(inner).otherwise(-1), **columns) == [-1, 6, -1]
    with pytest.raises(OverflowError, match=r"col\('a'\) \* col\('b'\)"):
        evaluated(inner, **columns)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (when(lit(value=True)).then(a * 2).otherwise(0), None),
        (when(lit(value=False)).then(a * 2).otherwise(0), [0, 0]),
        (when(lit(None)).then(a * 2).otherwise(b), [1, 2]),
        (when(lit(value=True)).then(b).when(a * 2 > 0).then(0), [1, 2]),
        (when(a > 0).then(1).when(a * 2 > 0).then(0), [1, 1]),
    ],
    ids=str,
)
def test_constant_and_exhausted_predicates_leave_the_rest_alone(expr: Expr, expected: list[int] | None) -> None:
    columns = {"a": pa.array([MAX, MAX]), "b": pa.array([1, 2])}
    if expected is None:
        with pytest.raises(OverflowError):
            evaluated(expr, **columns)
    else:
        assert evaluated(expr, **columns) == expected


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array([b"a", None, b""], pa.binary()),
        pa.array([Decimal("1.5"), None, Decimal(0)], pa.decimal128(9, 3)),
        pa.array([[1], None, []], pa.list_(pa.int64())),
        pa.array([{"x": 1}, None, {"x": 2}]),
        pa.array([True, None, False]),
        pa.nulls(3),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_every_type_can_be_chosen(values: pa.Array) -> None:
    chosen = pa.array([True, True, False])
    assert evaluated(when(p).then(a), p=chosen, a=values) == [*values.to_pylist()[:2], None]
    assert evaluated(when(~p).then(None).otherwise(a), p=chosen, a=values) == [*values.to_pylist()[:2], None]


def one_by_one(column: pa.Array, target: str) -> list[Any]:
    """Null where the strict cast of that one value raises."""
    made = []
    for value in column:
        try:
            made += evaluated(a.cast(target), a=pa.array([value.as_py()], column.type))
        except (ValueError, OverflowError):
            made.append(None)
    return made


texts = st.none() | st.sampled_from(
    ["1", "-7", "300", "1.5", "nan", "1e3", "", " 1", "x", "true", "2024-02-29", "2024-02-30"]
)
numbers = (
    st.none() | st.floats() | st.sampled_from([1.9, -1.9, 127.5, 128.0, -128.9, -129.0, 2.0**63, -(2.0**63), 2.0**64])
)
wholes = st.none() | st.integers(-(2**63), MAX) | st.sampled_from([-129, -128, 127, 128, 255, 256, 2**32])


@given(st.lists(texts, max_size=6), st.sampled_from(["int8", "int64", "double", "bool", "date32", "timestamp[us]"]))
def test_a_lenient_cast_of_text_is_the_strict_one_or_null(values: list[str | None], target: str) -> None:
    for column in (pa.array(values, pa.string()), pa.array(values, pa.string()).dictionary_encode()):
        made = evaluated(a.cast(target, strict=False), a=column)
        assert repr(made) == repr(one_by_one(pa.array(values, pa.string()), target))


@pytest.mark.parametrize("target", ["int64", "double", "bool", "date32", "timestamp[us]"])
@given(st.lists(st.text("0123456789+-.eExXaAfF inftyNTZ:_", max_size=5), max_size=6))
def test_no_text_that_can_be_read_is_put_aside(target: str, values: list[str]) -> None:
    column = pa.array(["?", *values, "12", "-1.5", "+inf", "0X1f", "True", "2024-02-29", "2024-02-29T10:00Z"])
    assert repr(evaluated(a.cast(target, strict=False), a=column)) == repr(one_by_one(column, target))


@pytest.mark.parametrize("text", ["0xFF", "0X1f"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int64"])
def test_hexadecimal_text_is_no_integer(text: str, target: str) -> None:
    """Arrow reads the bits: 0xFF as int8 is -1."""
    texts = pa.array(["7", text])
    for column in (texts, texts.cast(pa.large_string()), texts.dictionary_encode()):
        assert evaluated(a.cast(target, strict=False), a=column) == [7, None]
        with pytest.raises(ValueError, match=f"Failed to parse string: '{text}'"):
            evaluated(a.cast(target), a=column[1:])
        assert evaluated(a.cast(target), a=column[:1]) == [7]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_hexadecimal_bytes_are_no_integer_either(type_: pa.DataType) -> None:
    column = pa.array([b"7", b"0xFF"], type_)
    assert evaluated(a.cast("int8", strict=False), a=column) == [7, None]
    with pytest.raises(ValueError, match="Failed to parse string"):
        evaluated(a.cast("int8"), a=column)


@pytest.mark.parametrize("target", ["int64", "double", "bool"])
def test_a_lenient_cast_of_views_is_null_where_text_cannot_be_read(target: str) -> None:
    column = pa.array(["?", None, "0x1"], pa.string_view())
    assert evaluated(a.cast(target, strict=False), a=column) == [None, None, None]


@pytest.mark.parametrize("type_", ["string", "binary"])
def test_a_constant_null_of_text_is_a_null_integer(type_: str) -> None:
    assert evaluated(lit(None).cast(type_).cast("int64"), a=pa.array([1, 2])) == [None, None]


@given(st.lists(numbers, max_size=6), st.sampled_from(["int8", "uint8", "int32", "int64", "uint64"]))
def test_a_lenient_cast_of_floats_is_the_strict_one_or_null(values: list[float | None], target: str) -> None:
    column = pa.array(values, pa.float64())
    assert evaluated(a.cast(target, strict=False), a=column) == one_by_one(column, target)


@given(st.lists(wholes, max_size=6), st.sampled_from(["int8", "uint8", "int32", "uint64", "double"]))
def test_a_lenient_cast_of_ints_is_the_strict_one_or_null(values: list[int | None], target: str) -> None:
    column = pa.array(values, pa.int64())
    assert evaluated(a.cast(target, strict=False), a=column) == one_by_one(column, target)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, -1], pa.int8()),
        pa.array([1.5, None, -0.0, math.nan]),
        pa.array(["a", None, "é" * 20]),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array([Decimal("1.5"), None], pa.decimal128(9, 3)),
        pa.array([b"12", None], pa.binary(2)),
        pa.array([0, None], pa.timestamp("us", "UTC")),
        pa.array([True, None]),
        pa.nulls(2),
    ],
    ids=lambda values: str(values.type),
)
def test_a_hash_is_that_of_the_keys_and_null_of_null(values: pa.Array) -> None:
    hashes = hash_rows([values]).astype("int64").tolist()
    expected = [None if value is None else found for value, found in zip(values.to_pylist(), hashes, strict=True)]
    assert evaluated(a.hash(), a=values) == expected
    assert evaluated(a.hash(), a=values.slice(1)) == expected[1:]
