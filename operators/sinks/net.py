"""The net of signed changes: the rows that are left when added rows and equal rows that were taken back cancel out.

NaN equals NaN, and 0.0 equals -0.0. Values of nested types are compared as Python values.

>>> changes = pa.table({"x": [1, 2, 1, 2], "change": pa.array([1, 1, -1, 1], pa.int8())})
>>> net_rows(changes).to_pylist()
[{'x': 2}, {'x': 2}]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.updates import CHANGE
from dataflow.errors import NegativeNet
from dataflow.state.arrays import is_key, plain
from dataflow.state.dictionaries import decoded
from dataflow.state.keyed import KeyIndex

__all__ = ["equal_rows", "left_rows", "net_rows"]

_AT_ONCE = 32
"""Columns whose values are compared at once; a key of keyed state has at most 62."""


def net_rows(table: pa.Table) -> pa.Table:
    """Return the net of signed changes, without the column ``change``, in the order in which rows were first added.

    Args:
        table: rows with a column ``change`` of int8, +1 or -1.

    Raises: NegativeNet if a row was taken back more often than it was added.
    """
    numbers, counts = _counts(table)
    if (counts < 0).any():
        number = int(np.argmin(counts))
        (row,) = render_rows(table.drop_columns([CHANGE]).slice(int(np.argmax(numbers == number)), 1))
        raise NegativeNet(
            f"the row {row} was taken back {-counts[number]} times more than it was added ({int((counts < 0).sum()):,} "
            "such rows): functions over signed changes must return the same for the same row"
        )
    return _left(table, numbers, counts)


def left_rows(table: pa.Table) -> pa.Table:
    """Return the net of signed changes that may have come twice: as `net_rows`, without rows below zero.

    >>> changes = pa.table({"x": [1, 2, 2], "change": pa.array([1, -1, -1], pa.int8())})
    >>> left_rows(changes).to_pylist()
    [{'x': 1}]
    """
    return _left(table, *_counts(table))


def _counts(table: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a number for each row, equal for equal rows, and the sum of the changes of each number."""
    if not table.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    numbers = equal_rows([column.combine_chunks() for column in table.drop_columns([CHANGE]).columns])
    weights = to_numbers(table.column(CHANGE)).astype(np.int64)
    return numbers, np.bincount(numbers, weights).astype(np.int64)  # exact: there are fewer than 2**53 rows


def _left(table: pa.Table, numbers: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows with counts above zero, each as often as its count, in the order in which they were added."""
    added = np.flatnonzero(to_numbers(table.column(CHANGE)) > 0)
    _, first = np.unique(numbers[added], return_index=True)
    places = np.sort(added[first])
    times = np.maximum(counts[numbers[places]], 0)
    return table.drop_columns([CHANGE]).take(to_array(np.repeat(places, times)))


def equal_rows(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Return a number for each row, such that equal rows have equal numbers, from 0 on."""
    values = [_comparable(column) for column in columns]
    numbers: npt.NDArray[np.int64] | None = None
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        if numbers is not None:
            some = [to_array(numbers), *some]
        index = KeyIndex(pa.schema([pa.field(f"{i}", value.type) for i, value in enumerate(some)]))
        numbers = index.slots(some).astype(np.int64)
    assert numbers is not None, "rows without columns"
    return numbers


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column that may be a key and has equal values in the same rows."""
    column = plain(decoded(column))
    return column if is_key(column.type) else to_array([_text(value) for value in column.to_pylist()], pa.string())


def _text(value: object) -> str | None:
    """Return text that is equal for equal values of nested types; None for null."""
    match value:
        case None:
            return None
        case float():
            return repr(value + 0.0)  # there is one zero
        case list():
            return f"[{', '.join([str(_text(each)) for each in value])}]"
        case tuple():  # an entry of a map
            return f"({', '.join([str(_text(each)) for each in value])})"
        case dict():
            return f"{{{', '.join([f'{name!r}: {_text(each)}' for name, each in value.items()])}}}"
    return repr(value)
