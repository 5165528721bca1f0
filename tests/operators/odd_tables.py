"""Columns of every type with values that are hard to write, and the file that a sink makes of a table."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

import operators as op
from operators.sinks.files import FileSink, committed_files
from tests.operators.sinks.test_parquet_sink import run

__all__ = ["AS_TEXT", "NESTED", "ODD", "UNSPEAKABLE", "WRITERS", "columns", "nested", "written"]


WRITERS = {"csv": op.write_csv, "json": op.write_json, "ipc": op.write_ipc}


def columns() -> dict[str, pa.Array]:
    """A column of each flat type: a value, a null, an extreme."""
    found: dict[str, pa.Array] = {}
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = pa.array([1, None, -(2 ** (bits - 1))], f"int{bits}")
        found[f"uint{bits}"] = pa.array([1, None, 2**bits - 1], f"uint{bits}")
    found |= {f"float{bits}": pa.array([1.5, None, -0.0], f"float{bits}") for bits in (16, 32, 64)}
    texts = (pa.string(), pa.large_string(), pa.string_view())
    found |= {str(type_): pa.array(['a,"b"\r\n\\ü\x01\t😀', None, ""], type_) for type_ in texts}
    for unit in ("s", "ms", "us", "ns"):
        found[f"timestamp {unit}"] = pa.array([1, None, -1], pa.timestamp(unit))
        found[f"zoned {unit}"] = pa.array([1, None, -1], pa.timestamp(unit, "Europe/Berlin"))
        found[f"duration {unit}"] = pa.array([1, None, -1], pa.duration(unit))
        found[f"time {unit}"] = pa.array([1, None, 3], (pa.time32 if unit in ("s", "ms") else pa.time64)(unit))
    decimals = [Decimal("1.50"), None, Decimal("-0.00000001")]
    return found | {
        "bool": pa.array([True, None, False]),
        "null": pa.nulls(3),
        "decimal128": pa.array(decimals, pa.decimal128(20, 8)),
        "decimal256": pa.array(decimals, pa.decimal256(50, 8)),
        "date32": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
        "date64": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date64()),
        "dictionary of text": pa.array(["b", None, ""]).dictionary_encode(),
        "dictionary of int": pa.array([7, None, 8]).dictionary_encode(),
        "dictionary of times": pa.array([1, None, 3], pa.timestamp("us", "Asia/Tokyo")).dictionary_encode(),
    }


def nested() -> dict[str, pa.Array]:
    """Columns with values inside values."""
    pairs = pa.map_(pa.decimal128(5, 2), pa.date32())
    deep = pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.time32("s"))))]))
    lists = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
    return {
        **{str(of(pa.int64())): pa.array([[1, None], None, []], of(pa.int64())) for of in lists},
        "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        "struct": pa.array([{"a": 1, 'b"': "x"}, None, {"a": None, 'b"': None}]),
        "empty struct": pa.array([{}, None, {}], pa.struct([])),
        "map": pa.array([[(Decimal("1.5"), date(2020, 1, 1))], None, []], pairs),
        "deep": pa.array([[{"m": [(1, [time(1)])]}], None, [None]], deep),
        "dictionaries": pa.array([["a"], None, ["b", None]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "runs": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])),
    }


BYTES = {"b": pa.binary(), "f": pa.binary(2), "v": pa.binary_view()}
UNSPEAKABLE = BYTES | {"i": pa.month_day_nano_interval(), "u": pa.sparse_union([pa.field("x", pa.int64())])}
NESTED = {name: column.type for name, column in nested().items()}

ODD = pa.table(
    {
        "text": ["plain", 'a,"b"\nnext', "ü 😀", None, ""],
        "int": [1, None, -(2**63), 2**63 - 1, 0],
        "float": [1.5, None, float("nan"), float("-inf"), 1e300],
        "at": pa.array([1, None, -1, 0, 1577836800000001], pa.timestamp("us", "Asia/Tokyo")),
    }
)
AS_TEXT = [
    ("plain", "1", "1.5", "1970-01-01 00:00:00.000001Z"),
    ('a,"b"\nnext', None, None, None),
    ("ü 😀", str(-(2**63)), "nan", "1969-12-31 23:59:59.999999Z"),
    (None, str(2**63 - 1), "-inf", "1970-01-01 00:00:00.000000Z"),
    ("", "0", "1e+300", "2020-01-01 00:00:00.000001Z"),
]


def written(sink: FileSink, path: Path, table: pa.Table = ODD) -> Path:
    """The one file that ``sink``, which writes into ``path``, makes of ``table``."""
    run(sink, table.to_batches(), table.schema)
    (file,) = committed_files(path)
    return file
