"""Whether two engines gave the same answer: whole tables, in any order of rows, floats to nine digits.

Answers of many millions of rows are compared by what stands for them: for each value of the last key the number of
rows, and sums of two hashes of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.types as types

__all__ = ["difference"]

WHOLE = 5_000_000
"""Rows up to which answers are sorted and compared value by value."""


def difference(one: Path, other: Path, keys: Sequence[str], whole: int = WHOLE) -> str | None:
    """What differs between the Parquet files below two directories; None: nothing does.

    ``keys`` tell the rows of an answer apart; an answer without them has one row. Of more than ``whole`` rows digests
    are compared.

    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     places = [Path(folder, name) for name in "ab"]
    ...     for place, n in zip(places, [[1, 2], [2, 3]], strict=True):
    ...         place.mkdir()
    ...         pq.write_table(pa.table({"k": n[::-1], "n": n}), place / "x.parquet")
    ...     difference(*places, ["k"])
    "row 0 of 2, by ['k']: {'k': 1, 'n': 2} and {'k': 2, 'n': 3}"
    """
    answers = [_files(place) for place in (one, other)]
    rows = [answer.count_rows() for answer in answers]
    if rows[0] != rows[1]:
        return f"{rows[0]} and {rows[1]} rows"
    if answers[0].schema.names != answers[1].schema.names:
        return f"columns {answers[0].schema.names} and {answers[1].schema.names}"
    if rows[0] > whole:
        return _difference(_digest(one, keys), _digest(other, keys), keys[-1:])
    return _difference(*(_plain(answer.to_table()) for answer in answers), keys)


def _files(place: Path) -> ds.Dataset:
    return ds.dataset([str(file) for file in sorted(place.rglob("*.parquet"))])


def _difference(one: pa.Table, other: pa.Table, keys: Sequence[str]) -> str | None:
    order = [(key, "ascending") for key in keys]
    if order:
        one, other = one.sort_by(order), other.sort_by(order)
    same = np.ones(one.num_rows, bool)
    for left, right in zip(one.columns, other.columns, strict=True):
        same &= _same(left, right)
    if same.all():
        return None
    row = int(np.argmin(same))
    left, right = one.slice(row, 1).to_pylist()[0], other.slice(row, 1).to_pylist()[0]
    return f"row {row} of {len(same)}, by {list(keys)}: {left} and {right}"


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    if types.is_floating(left.type):
        return np.isclose(left.to_numpy(), right.to_numpy(), rtol=1e-9, atol=0, equal_nan=True)
    return np.asarray(left.to_numpy() == right.to_numpy())


def _plain(table: pa.Table) -> pa.Table:
    """Engines differ in how they hold text and times: dictionaries, views, units."""
    for i, column in enumerate(table.columns):
        type_ = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
            type_ = pa.large_string()
        elif types.is_timestamp(type_):
            type_ = pa.timestamp("us")
        table = table.set_column(i, table.schema.names[i], column.cast(type_))
    return table


def _digest(place: Path, keys: Sequence[str]) -> pa.Table:
    import duckdb

    columns = ", ".join(f'"{name}"' for name in _files(place).schema.names if name != keys[-1])
    with duckdb.connect() as connection:
        connection.execute("set threads = 2")
        return connection.sql(
            f'select "{keys[-1]}", count(*) n, sum(hash({columns}) % 1000000007)::bigint low, '
            f"sum(hash(0, {columns}) // 1000000007 % 1000000007)::bigint high "
            f"from read_parquet('{place}/**/*.parquet') group by 1"
        ).to_arrow_table()
