"""Text that is cast: what is read, as what, and what is not, on Spark as on the local engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dataflow.expressions import col
from tests.runners.spark.engine import failure, on_spark, plain

TEXTS = {
    "int64": "5|0xFF|0X1f|-0x1|-5|+5| 5|5 |5\n|007||-|1.0|1e3|9223372036854775808|-0|\u0663",
    "uint8": "5|0xFF|-5|-0|256|255|5L",
    "float64": "5|+5|.5|5.|-.5|1e5|1e|1d|1f|0x1p3|1_0|inf|-Infinity|nan|nan(1)|1e999|1e-999|1e-320| 1|1\n|.|4.35|2.0.0"
    "|9007199254740993|179769313486231570000e289",
    "float32": "16777217|0.1|1e39|1e-46",
    "bool": "true|TRUE|t|1|0|yes| true|False|on|10",
    "decimal": "1.239|1.230|+1.2|-.5|1.|.||0.0000|12345678.9|123456789.1|00000000001| 1",
    "whole": "5.0|5.1|5.|.0|12",
    "date32": "2024-02-29|2023-02-29|2024-1-1|20240101| 2024-01-01|0000-01-01|2024-01-01T00|-2024-01-01",
    "timestamp[us]": "2024-02-29|2024-02-29 10|2024-02-29T10:11|2024-02-29 10:11:12.5|2024-02-29 10:11:12.1234567"
    "|2024-02-29 10:11:12Z|2024-02-29 24:00:00|2024-02-29 23:59:60|2023-02-29 10:00|2024-02-29  10|10:11",
    "timestamp[s]": "2024-02-29 10:11:12|2024-02-29 10:11:12.0",
    "zoned": "2024-02-29|2024-02-29T10Z|2024-02-29 10:11+01|2024-02-29 10:11:12-0130|2024-02-29 10:11:12.5+05:30"
    "|2024-02-29 10:11:12|2024-02-29 10:11:12 Z|2024-02-29Z|2024-02-29+01:00|2024-02-29 10:11 UTC|2024-02-29 10-0130",
}
NAMED = {"decimal": pa.decimal128(10, 2), "whole": pa.decimal128(4, 0), "zoned": pa.timestamp("us", "UTC")}


def test_text_is_read_in_the_forms_that_the_local_engine_reads(spark: Any) -> None:
    listed = {name: texts.split("|") for name, texts in TEXTS.items()}
    longest = max(map(len, listed.values()))
    rows = pa.table({name: pa.array(texts + [None] * (longest - len(texts))) for name, texts in listed.items()})
    exprs = [col(name).cast(NAMED.get(name, name), strict=False) for name in TEXTS]
    for expr, made in zip(exprs, on_spark(spark, rows, exprs), strict=True):
        written = rows[expr.columns()[0]].to_pylist()
        expected = plain(expr.evaluate(rows.to_batches()[0]))
        assert list(zip(written, plain(made), strict=True)) == list(zip(written, expected, strict=True)), expr


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("1E3", pa.decimal128(10, 2)),
        ("2024-02-29 10:00+19:00", pa.timestamp("us", "UTC")),
    ],
)
def test_text_that_only_the_local_engine_reads_raises_even_where_a_cast_is_lenient(
    spark: Any, text: str, target: pa.DataType
) -> None:
    rows, expr = pa.table({"s": [text]}), col("s").cast(target, strict=False)
    assert expr.evaluate(rows.to_batches()[0]).null_count == 0
    assert type(failure(spark, rows, expr)) is ValueError
