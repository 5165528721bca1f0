"""Tables of every column type from a seed, as files of uneven row groups; and rows of two engines in one notation.

Each type has a few values of its own, extremes and oddities among them; one of them is hot, and nulls are frequent.
Floats are multiples of 1/4 and small, but for NaN, infinities and zeros of both signs: their sums are exact in any
order, so engines that add in different orders must agree to the bit.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

__all__ = ["NESTED", "POOLS", "SUMMED", "by_key", "cells", "generated", "near", "rows_of", "typed", "write_files"]

_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NAN_WITH_PAYLOAD = struct.unpack("<d", struct.pack("<q", -0x0007_FFFF_FFFF_FF01))[0]
_TEXTS = ["north", "", "a", "ab", "naïve 😀", "x" * 40, 'say "it", twice\n', "NaN", "null", "0"]
_BYTES = [text.encode() for text in _TEXTS] + [b"\x00", b"\x00\x00", b"\xff\xfe"]
_FLOATS = [1.5, -0.0, 0.0, float("nan"), float("inf"), float("-inf"), -2.25, 1e3, 0.25]
_CENTS = ["1.00", "-0.01", "0.00", "99.99", "-12345.67", "10.00"]
_SECONDS = [0, -1, 1, 1_700_000_000, -1_000_000_000, 86_400, -86_400]


def _extremes(type_: pa.DataType) -> list[int]:
    signed = pa.types.is_signed_integer(type_)
    low = -(2 ** (type_.bit_width - 1)) if signed else 0
    high = 2 ** (type_.bit_width - 1) - 1 if signed else 2**type_.bit_width - 1
    return [7, low, high, 0, 1, high - 1, low + 1, 100]


def _stamps(unit: str) -> list[int]:
    """Times around and far from the epoch, negative ones among them, that use every digit of ``unit``."""
    per_second = 1_000_000_000 // _UNITS[unit]
    return [second * per_second + (second * 7 + 3) % per_second for second in _SECONDS] + [-1, 0]


def _of_day(unit: str) -> list[int]:
    per_second = 1_000_000_000 // _UNITS[unit]
    return [0, 1, 86_400 * per_second - 1, 3_600 * per_second, 43_200 * per_second + 5]


_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_STAMPED = [pa.timestamp(unit, zone) for unit in _UNITS for zone in (None, "UTC")] + [
    pa.timestamp("us", "Asia/Kolkata")
]

POOLS: dict[pa.DataType, Sequence[Any]] = {
    **{type_: _extremes(type_) for type_ in _INTEGERS},
    pa.float16(): [np.float16(value) for value in _FLOATS],
    pa.float32(): _FLOATS,
    pa.float64(): [*_FLOATS, _NAN_WITH_PAYLOAD],
    pa.bool_(): [True, False],
    pa.string(): _TEXTS,
    pa.large_string(): _TEXTS,
    pa.string_view(): _TEXTS,
    pa.binary_view(): _BYTES,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.binary(3): [b"abc", b"\x00\x00\x00", b"ab\x00", b"\xff\xff\xff"],
    pa.dictionary(pa.int32(), pa.string()): _TEXTS,
    pa.decimal128(12, 2): [Decimal(text) for text in _CENTS],
    pa.decimal128(38, 10): [Decimal(text) for text in [*_CENTS, "9" * 20 + ".0123456789", "-" + "9" * 25 + ".5"]],
    pa.date32(): [0, -1, 19_000, -100_000, 1],
    pa.date64(): [day * 86_400_000 for day in (0, -1, 19_000, -100_000, 1)],
    **{pa.time32(unit): _of_day(unit) for unit in ("s", "ms")},
    **{pa.time64(unit): _of_day(unit) for unit in ("us", "ns")},
    **{type_: _stamps(type_.unit) for type_ in _STAMPED},
    **{pa.duration(unit): [0, -1, 5, 10**12, -(10**12)] for unit in _UNITS},
}
"""The values of each type; times and dates as the integers that stand for them. The first value is the hot one."""

NESTED: dict[pa.DataType, Sequence[Any]] = {
    pa.list_(pa.int64()): [[1, None, 3], [], [2**62]],
    pa.struct({"x": pa.int32(), "s": pa.string()}): [{"x": 1, "s": "a"}, {"x": None, "s": ""}],
    pa.map_(pa.string(), pa.int64()): [[("a", 1), ("b", None)], []],
}
"""Types that pipelines carry along, but neither key nor aggregate."""

SUMMED = [*(type_ for type_ in _INTEGERS if type_.bit_width < 64), pa.float32(), pa.float64(), pa.bool_()]
SUMMED += [pa.decimal128(12, 2)]
"""Types whose sums over some thousand rows fit."""


def typed(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """An array of ``type_``; times come as integers."""
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    if pa.types.is_temporal(type_):
        width = pa.int32() if type_.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(type_)
    return pa.array(values, type_)


def generated(seed: int, rows: int = 400) -> pa.Table:
    """A column of each type, called by the type, and three for all: ``n`` numbers the rows in a random order, ``k`` is
    a hot key, ``price`` a small number. About one value in eight is null, never in ``n``."""
    draw = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {
        "n": pa.array(draw.permutation(rows)),
        "k": typed(_drawn(["hot", "a", "b", "", "é"], rows, draw), pa.string()),
        "price": pa.array(_drawn([int(value) for value in draw.integers(-500, 500, 50)], rows, draw), pa.int64()),
    }
    for type_, pool in {**POOLS, **NESTED}.items():
        columns[str(type_)] = typed(_drawn(pool, rows, draw), type_)
    return pa.table(columns)


def _drawn(pool: Sequence[Any], rows: int, draw: np.random.Generator) -> list[Any]:
    """Half of the values are the first of ``pool``, an eighth are null."""
    kinds, others = draw.random(rows), draw.integers(0, len(pool), rows)
    return [
        None if kind < 0.125 else pool[0] if kind < 0.5 else pool[other]
        for kind, other in zip(kinds, others, strict=True)
    ]


def write_files(table: pa.Table, folder: Path) -> list[str]:
    """``table`` as four Parquet files: one without rows, one with a single row, and two with row groups of every size.

    Among the row groups are such without rows and such with one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    half = table.num_rows // 2
    rest = table.num_rows - half - 10
    shapes = {"a.parquet": [0], "b.parquet": [1], "c.parquet": [half, 0, 1, 7], "d.parquet": [0, 1, rest]}
    start, paths = 0, []
    for name, groups in shapes.items():
        paths.append(str(folder / name))
        with pq.ParquetWriter(paths[-1], table.schema) as file:
            for rows in groups:
                file.write_table(table.slice(start, rows))
                start += rows
    assert start == table.num_rows, f"{start} of {table.num_rows} rows were written"
    return paths


# --- rows of two engines in one notation


def cells(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, equal where two engines mean the same: times in nanoseconds, dates in days, one NaN, one
    zero, numbers of any width as Python's. Durations are plain numbers, for DuckDB reads them as such."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        column = column.cast(type_.value_type)
    elif pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        integers = column.cast(pa.int32() if type_.bit_width == 32 else pa.int64())
        return [None if value is None else value * _UNITS[type_.unit] for value in integers.to_pylist()]
    elif pa.types.is_duration(type_):
        column = column.cast(pa.int64())
    elif pa.types.is_date(type_):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_floating(type_):
        return [_float(value) for value in column.to_pylist()]
    return [
        value if isinstance(value, int | str | bytes | Decimal | None) else repr(value) for value in column.to_pylist()
    ]


def _float(value: float | None) -> float | str | None:
    if value is None:
        return None
    number = float(value)
    return "NaN" if number != number else number + 0.0


def rows_of(table: pa.Table, columns: Iterable[str] | None = None) -> Counter[tuple[Any, ...]]:
    """The rows with their multiplicity: tables are equal where these are."""
    names = list(table.column_names if columns is None else columns)
    return Counter(zip(*(cells(table[name]) for name in names), strict=True))


def by_key(table: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The other columns of each key, which has one row."""
    others = [name for name in table.column_names if name not in keys]
    found = dict(
        zip(*(list(zip(*(cells(table[name]) for name in names), strict=True)) for names in (keys, others)), strict=True)
    )
    assert len(found) == table.num_rows, f"{table.num_rows} rows are of {len(found)} keys"
    return found


def near(rows: dict[tuple[Any, ...], tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What ``by_key`` answers, floats to be met to nine digits: means and variances depend on the order of rows."""
    return {key: tuple(_near(cell) for cell in row) for key, row in rows.items()}


def _near(cell: Any) -> Any:
    return pytest.approx(cell, rel=1e-9) if isinstance(cell, float) else cell
