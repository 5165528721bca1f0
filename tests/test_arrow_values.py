"""``dataflow.arrow_values`` against pyarrow's own functions: each value in each type, in whichever way both end."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.arrow_values import to_array, to_numbers, to_scalar

TYPES = [
    *(None, pa.null(), pa.bool_(), pa.int64(), pa.int8(), pa.uint64(), pa.uint8(), pa.float64(), pa.float32()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.date32(), pa.date64(), pa.time64("us")),
    *(pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.duration("us"), pa.duration("ns")),
    *(pa.decimal128(10, 2), pa.list_(pa.int64()), pa.dictionary(pa.int32(), pa.string())),
]
VALUES = [
    *(None, 1, 0, -1, 300, 2**53 + 1, 2**63, -(2**63) - 1, 1.5, math.nan, math.inf, True, "a", "é😀", "\ud800", b"x"),
    *(dt.datetime(2020, 1, 2, 3, 4, 5, 6), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), dt.date(1, 1, 1)),
    *(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=-1, microseconds=5), dt.timedelta.max, dt.time(3)),
    *(Decimal("1.5"), [1], np.int64(4), np.float64("nan")),
]
LISTS = [[], [1, 1.5], [1, True], ["a", 1], (1, 2), *([v, None] for v in VALUES), *([None, v, v] for v in VALUES)]
NUMPY = [
    *(np.arange(9), np.arange(9)[::2], np.arange(3, dtype=np.int8), np.array([2**60]), np.array([2**63], np.uint64)),
    *(np.array([1.5, np.nan]), np.array([1.0, 2.0]), np.array([1.0], np.float32), np.array([1], ">i8")),
    *(np.array([True, False] * 9), np.array([], np.int64), np.array([], np.bool_), np.array([[1, 2]])),
    np.array(["2020-01-01"], "M8[us]"),
]
COLUMNS = [
    *(pa.array([1, 2, 3], pa.int16()), pa.array([True] * 9 + [False] * 12), pa.array([1.5, 2]), pa.array([1, None])),
    *(pa.array([True, None]), pa.array(["a"]), pa.array([], pa.bool_()), pa.array([], pa.int32())),
    *(pa.array([1], pa.timestamp("us")), pa.chunked_array([[1], [2]])),
]


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> object:
    """Return type and contents of a result, or class and text of the error."""
    try:
        made = function(*arguments, **named)
    except Exception as error:
        return type(error), str(error)
    column = pa.repeat(made, 1) if isinstance(made, pa.Scalar) else made
    column.validate()
    return made.type, str(column), column.null_count


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_scalar_is_that_of_pyarrow(type_: pa.DataType | None) -> None:
    for value in VALUES:
        assert outcome(to_scalar, value, type_) == outcome(pa.scalar, value, type_), repr(value)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_an_array_of_python_values_is_that_of_pyarrow(type_: pa.DataType | None) -> None:
    for values in LISTS:
        assert outcome(to_array, values, type_) == outcome(pa.array, values, type_), repr(values)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_an_array_of_numpy_values_is_that_of_pyarrow(type_: pa.DataType | None) -> None:
    for values, size in itertools.product(NUMPY, (0, 1)):
        for mask in (None, np.arange(len(values) + size) % 2 == 0, np.zeros(len(values), np.bool_)):
            ours, theirs = (outcome(make, values, type_, mask=mask) for make in (to_array, pa.array))
            assert ours == theirs, (values, mask)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.type}-{len(column)}")
def test_numbers_are_those_of_pyarrow_at_any_offset(column: Any) -> None:
    for start in range(len(column) + 1):
        part = column.slice(start)
        options = {} if isinstance(part, pa.ChunkedArray) else {"zero_copy_only": False}
        ours, theirs = to_numbers(part), part.to_numpy(**options)
        assert (ours.dtype, repr(ours.tolist())) == (theirs.dtype, repr(theirs.tolist())), start


def test_an_array_of_numpy_shares_its_memory() -> None:
    values = np.arange(4)
    assert to_array(values).buffers()[1].address == values.ctypes.data


def test_an_array_that_means_more_than_its_memory_is_left_to_pyarrow() -> None:
    masked = np.ma.array([1, 2, 3], mask=[False, True, False])
    assert to_array(masked).to_pylist() == pa.array(masked).to_pylist() == [1, None, 3]
    with pytest.raises(pa.ArrowTypeError):
        to_array(np.array([1], np.longdouble), pa.string())
