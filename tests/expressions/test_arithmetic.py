"""The arithmetic table of ``dataflow.expressions``, each rule against Python's own arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dataflow.expressions import Expr, col

MIN, MAX = -(2**63), 2**63 - 1
edges = st.sampled_from([MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX])
ints = st.one_of(st.none(), edges, st.integers(-20, 20), st.integers(MIN, MAX))
floats = st.one_of(
    st.none(), st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308]), st.floats()
)
int_rows = st.lists(st.tuples(ints, ints), max_size=8)
float_rows = st.lists(st.tuples(floats, floats), max_size=8)
SUMS = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def evaluated(expr: Expr, rows: list[tuple[Any, Any]], dtype: pa.DataType) -> list[Any]:
    """Over a sliced batch, so that offsets count."""
    padded = [(7, 7), *rows, (7, 7)] if not pa.types.is_boolean(dtype) else [(True, True), *rows, (True, True)]
    columns = {name: pa.array([row[i] for row in padded], dtype) for i, name in enumerate("ab")}
    return expr.evaluate(pa.record_batch(columns).slice(1, len(rows))).to_pylist()


def each(function: Callable[[Any, Any], Any], rows: list[tuple[Any, Any]]) -> list[Any]:
    return [None if a is None or b is None else function(a, b) for a, b in rows]


def same(left: list[Any], right: list[Any]) -> bool:
    """Equal in value, type, sign of zero, with NaN equal to NaN."""
    return [repr(value) for value in left] == [repr(value) for value in right]


def divided(a: float, b: float) -> float:
    if b != 0 or math.isnan(b):
        return float(a) / float(b)
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


@pytest.mark.parametrize("function", SUMS)
@given(rows=int_rows)
def test_int_sums_are_pythons_or_overflow(function: Callable[[Any, Any], Any], rows: list[tuple[Any, Any]]) -> None:
    expected = each(function, rows)
    if all(value is None or MIN <= value <= MAX for value in expected):
        assert evaluated(function(col("a"), col("b")), rows, pa.int64()) == expected
    else:
        with pytest.raises(OverflowError, match="overflow"):
            evaluated(function(col("a"), col("b")), rows, pa.int64())


@pytest.mark.parametrize("function", SUMS)
@given(rows=float_rows)
def test_float_sums_are_pythons(function: Callable[[Any, Any], Any], rows: list[tuple[Any, Any]]) -> None:
    assert same(evaluated(function(col("a"), col("b")), rows, pa.float64()), each(function, rows))


@pytest.mark.parametrize(("function", "dtype"), [(operator.floordiv, pa.int64()), (operator.mod, pa.int64())])
@given(rows=int_rows)
@example(rows=[(MIN, 1), (7, -2), (-7, 2), (None, 0), (0, None), (5, 0), (0, 0)])
def test_int_floor_and_remainder_are_pythons_and_null_by_zero(
    function: Callable[[Any, Any], Any], dtype: pa.DataType, rows: list[tuple[Any, Any]]
) -> None:
    assume((MIN, -1) not in rows)
    expected = each(lambda a, b: None if b == 0 else function(a, b), rows)
    assert evaluated(function(col("a"), col("b")), rows, dtype) == expected


@pytest.mark.parametrize("function", [operator.floordiv, operator.mod])
@given(a=ints, b=ints)
def test_an_int_literal_on_either_side_divides_alike(function: Callable[[Any, Any], Any], a: int, b: int) -> None:
    assume((a, b) != (MIN, -1) and a is not None and b is not None)
    expected = [None if b == 0 else function(a, b)]
    assert evaluated(function(col("a"), b), [(a, b)], pa.int64()) == expected
    assert evaluated(function(a, col("b")), [(a, b)], pa.int64()) == expected


def test_the_least_int_floor_divided_by_minus_one_overflows_and_its_remainder_is_zero() -> None:
    with pytest.raises(OverflowError, match="//"):
        evaluated(col("a") // col("b"), [(MIN, -1)], pa.int64())
    assert evaluated(col("a") % col("b"), [(MIN, -1)], pa.int64()) == [0]


@pytest.mark.parametrize("function", [operator.floordiv, operator.mod])
@given(rows=float_rows)
def test_float_floor_and_remainder_are_pythons(
    function: Callable[[Any, Any], Any], rows: list[tuple[Any, Any]]
) -> None:
    by_zero = divided if function is operator.floordiv else lambda a, b: math.nan
    expected = each(lambda a, b: by_zero(a, b) if b == 0 else function(a, b), rows)
    assert same(evaluated(function(col("a"), col("b")), rows, pa.float64()), expected)


@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()])
@given(data=st.data())
def test_true_division_is_ieee_division_of_float64(dtype: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(int_rows if dtype == pa.int64() else float_rows)
    expected = each(lambda a, b: divided(float(a), float(b)), rows)
    assert same(evaluated(col("a") / col("b"), rows, dtype), expected)


@pytest.mark.parametrize("function", COMPARISONS)
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()])
@given(data=st.data())
def test_comparisons_are_pythons_and_null_beside_null(
    function: Callable[[Any, Any], Any], dtype: pa.DataType, data: st.DataObject
) -> None:
    rows = data.draw(int_rows if dtype == pa.int64() else float_rows)
    assert evaluated(function(col("a"), col("b")), rows, dtype) == each(function, rows)


@given(a=st.integers(0, 2**64 - 1), b=st.integers(MIN, MAX))
def test_signed_and_unsigned_ints_compare_exactly(a: int, b: int) -> None:
    batch = pa.record_batch({"a": pa.array([a], pa.uint64()), "b": pa.array([b], pa.int64())})
    assert (col("a") < col("b")).evaluate(batch).to_pylist() == [a < b]
    assert (col("a") == b).evaluate(batch).to_pylist() == [a == b]


def kleene_and(*sides: bool | None) -> bool | None:
    return False if False in sides else None if None in sides else True


@given(rows=st.lists(st.tuples(*[st.sampled_from([True, False, None])] * 2)))
def test_logic_is_kleenes(rows: list[tuple[Any, Any]]) -> None:
    inverse = {True: False, False: True, None: None}
    assert evaluated(col("a") & col("b"), rows, pa.bool_()) == [kleene_and(a, b) for a, b in rows]
    either = [inverse[kleene_and(inverse[a], inverse[b])] for a, b in rows]
    assert evaluated(col("a") | col("b"), rows, pa.bool_()) == either
    assert evaluated(~col("a"), rows, pa.bool_()) == [inverse[a] for a, _ in rows]


@given(rows=float_rows, values=st.lists(floats.filter(lambda value: value is not None)))
def test_is_in_is_an_or_of_comparisons(rows: list[tuple[Any, Any]], values: list[Any]) -> None:
    expected = [None if a is None else any(a == value for value in values) for a, _ in rows]
    assert evaluated(col("a").is_in(values), rows, pa.float64()) == expected


@given(rows=int_rows)
def test_negation_and_abs_are_pythons_or_overflow(rows: list[tuple[Any, Any]]) -> None:
    if any(a == MIN for a, _ in rows):
        for expr in (-col("a"), col("a").abs()):
            with pytest.raises(OverflowError):
                evaluated(expr, rows, pa.int64())
    else:
        assert evaluated(-col("a"), rows, pa.int64()) == [None if a is None else -a for a, _ in rows]
        assert evaluated(col("a").abs(), rows, pa.int64()) == [None if a is None else abs(a) for a, _ in rows]


@pytest.mark.parametrize("dtype", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()])
def test_narrow_ints_are_computed_in_int64(dtype: pa.DataType) -> None:
    batch = pa.record_batch({"a": pa.array([100], dtype)})
    for expr, expected in ((col("a") * 100, 10_000), (col("a") - 200, -100), (-col("a"), -100), (col("a") // -3, -34)):
        assert expr.evaluate(batch).equals(pa.array([expected], pa.int64()))


def test_uint64_stays_unsigned_among_its_own() -> None:
    batch = pa.record_batch({"a": pa.array([2**64 - 1], pa.uint64()), "b": pa.array([1], pa.int64())})
    assert (col("a") - 1).evaluate(batch).equals(pa.array([2**64 - 2], pa.uint64()))
    assert (col("a") // 2).evaluate(batch).equals(pa.array([2**63 - 1], pa.uint64()))
    assert (col("a") // col("a")).evaluate(batch).equals(pa.array([1], pa.uint64()))
    for expr in (col("a") + 1, col("a") + col("b"), -col("a")):
        with pytest.raises(OverflowError):
            expr.evaluate(batch)


def test_decimals_become_the_nearest_floats() -> None:
    random = Random(7)
    types = [
        pa.decimal128(9, 2),
        pa.decimal128(20, 4),
        pa.decimal128(38, 30),
        pa.decimal256(70, 3),
        pa.decimal64(15, 7),
    ]
    for dtype in types:
        for digits in (6, min(15, dtype.precision), dtype.precision):
            values = [Decimal(random.randrange(-(10**digits), 10**digits)).scaleb(-dtype.scale) for _ in range(60)]
            column = pa.array([None, *values], pa.decimal256(76, dtype.scale)).cast(dtype)
            batch = pa.record_batch({"x": column.slice(1)})
            assert col("x").cast("float64").evaluate(batch).to_pylist() == [float(value) for value in values]


@given(a=st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 2**62))
def test_a_float_cast_to_int_truncates_toward_zero(a: float) -> None:
    assert evaluated(col("a").cast("int64"), [(a, None)], pa.float64()) == [int(a)]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.0**63])
def test_a_float_without_an_int_overflows_when_cast(value: float) -> None:
    with pytest.raises(OverflowError, match="cast"):
        evaluated(col("a").cast("int64"), [(value, None)], pa.float64())
