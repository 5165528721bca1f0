"""Compare tables as multisets of rows, or by the last row of each key; floats may differ by rounding after sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["difference", "differing_keys", "last_rows", "same_but_for_rounding"]

_RELATIVE = 1e-9
"""Relative difference of floats that is allowed, because sums may be formed in another order."""
_TIMES, _ROW = "(times)", "(row)"


def difference(actual: pa.Table, expected: pa.Table) -> tuple[pa.Table, int, int]:
    """Return the distinct rows whose numbers of copies differ, the number of copies too many, and of missing ones.

    >>> import pyarrow as pa
    >>> rows, more, fewer = difference(pa.table({"x": [1, 1, 2]}), pa.table({"x": [1, 2, 3]}))
    >>> sorted(rows["x"].to_pylist()), more, fewer
    ([1, 3], 1, 1)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = [_with(_plain(actual), _TIMES, 1), _with(_plain(expected.select(actual.schema.names)), _TIMES, -1)]
    counted = pa.concat_tables(tables, promote_options="permissive")
    sums = counted.group_by(actual.schema.names).aggregate([(_TIMES, "sum")])
    apart = sums.filter(pc.not_equal(sums[f"{_TIMES}_sum"], 0))
    times = apart[f"{_TIMES}_sum"]
    more = pc.sum(times.filter(pc.greater(times, 0))).as_py() or 0
    fewer = pc.sum(times.filter(pc.less(times, 0))).as_py() or 0
    return apart.select(actual.schema.names), more, -fewer


def _with(table: pa.Table, name: str, value: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    return table.append_column(name, pa.array(np.full(table.num_rows, value)))


def same_but_for_rounding(actual: pa.Table, expected: pa.Table) -> bool:
    """Return whether both tables have the same rows; floats may differ by a relative 1e-9."""
    import pyarrow as pa

    if actual.num_rows != expected.num_rows:
        return False
    floats = [field.name for field in actual.schema if pa.types.is_floating(field.type)]
    order = [(name, "ascending") for name in [n for n in actual.schema.names if n not in floats] + floats]
    ordered = [_plain(table.select(actual.schema.names)).sort_by(order) for table in (actual, expected)]
    return all(_same(ordered[0][name], ordered[1][name]).all() for name in actual.schema.names)


def last_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each key."""
    import numpy as np
    import pyarrow as pa

    numbered = _plain(table.select(list(keys))).append_column(_ROW, pa.array(np.arange(table.num_rows)))
    return table.take(numbered.group_by(list(keys)).aggregate([(_ROW, "max")])[f"{_ROW}_max"])


def differing_keys(actual: pa.Table, expected: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the keys whose row differs, or that only one table has. Each table has one row per key.

    >>> import pyarrow as pa
    >>> one, other = pa.table({"k": [1, 2, 3], "x": [0.1 + 0.2, 5, 6]}), pa.table({"k": [3, 1], "x": [7, 0.3]})
    >>> sorted(differing_keys(one, other, ["k"])["k"].to_pylist())
    [2, 3]
    """
    import numpy as np
    import pyarrow as pa

    expected = expected.select(actual.schema.names)
    both = pa.concat_tables([_plain(t.select(list(keys))) for t in (actual, expected)], promote_options="permissive")
    numbered = both.append_column(_ROW, pa.array(np.arange(both.num_rows)))
    places = numbered.group_by(list(keys)).aggregate([(_ROW, "min"), (_ROW, "max")])
    first, last = places[f"{_ROW}_min"].to_numpy(), places[f"{_ROW}_max"].to_numpy()
    pairs = first != last
    same = np.ones(int(pairs.sum()), dtype=bool)
    ours, theirs = actual.take(pa.array(first[pairs])), expected.take(pa.array(last[pairs] - actual.num_rows))
    for name in actual.schema.names:
        same &= _same(ours[name], theirs[name])
    apart = np.ones(len(first), dtype=bool)
    apart[pairs] = ~same
    return places.select(list(keys)).filter(pa.array(apart))


def _same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Any:
    """Return whether the values of each row are equal, as a numpy array; null equals null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(ours.type) and pa.types.is_floating(theirs.type):
        nulls = [np.asarray(column.is_null()) for column in (ours, theirs)]
        one, other = (column.cast(pa.float64()).fill_null(0.0).to_numpy() for column in (ours, theirs))
        return np.isclose(one, other, rtol=_RELATIVE, atol=0.0, equal_nan=True) & (nulls[0] == nulls[1])
    ours, theirs = _simple(ours), _simple(theirs)
    if ours.type != theirs.type:
        return np.zeros(len(ours), dtype=bool)
    nulls = pc.and_(ours.is_null(), theirs.is_null())
    return np.asarray(pc.coalesce(pc.equal(ours, theirs), nulls))


def _plain(table: pa.Table) -> pa.Table:
    """Return the same rows in columns that can be grouped and sorted."""
    import pyarrow as pa

    return pa.table({name: _simple(table[name]) for name in table.schema.names})


def _simple(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.string())])
    return column
