"""Null markers in quotes: null where text cannot be meant, text in columns of text; and markers that never match."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError
from operators import read_csv
from tests.operators.reading import check_every_position, rejected_of, rows_of, table_of

TYPES = {
    "i": "int64",
    "f": "float64",
    "b": "bool",
    "d": "date32",
    "t": "timestamp[us]",
    "z": "timestamp[us, tz=UTC]",
    "c": "time64[us]",
    "m": "decimal128(9, 2)",
    "e": "duration[s]",
    "s": "string",
    "y": "binary",
}
VALUES = "3,0.5,true,2024-01-01,2024-01-01 10:00,2024-01-01 10:00Z,10:00:00,1.50,7,x,y"
ONE: dict[str, object] = {
    "i": 3,
    "f": 0.5,
    "b": True,
    "d": dt.date(2024, 1, 1),
    "t": dt.datetime(2024, 1, 1, 10),
    "z": dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
    "c": dt.time(10),
    "m": Decimal("1.50"),
    "e": dt.timedelta(seconds=7),
    "s": "x",
    "y": b"y",
}
NULLS: dict[str, object] = dict.fromkeys(TYPES)


def write(folder: Path, text: str) -> Path:
    path = folder / "a.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("bad_row", ["", "x\n"])
@pytest.mark.parametrize("marker", ["", "NA"])
def test_a_quoted_marker_is_null_but_in_columns_of_text(tmp_path: Path, marker: str, bad_row: str) -> None:
    """Also beside a row that is rejected, for which a block is read field by field."""
    quoted, plain = ",".join([f'"{marker}"'] * len(TYPES)), ",".join([marker] * len(TYPES))
    path = write(tmp_path, ",".join(TYPES) + f"\n{quoted}\n{VALUES}\n{bad_row}{plain}\n")
    options: dict[str, Any] = {"schema": TYPES, "null_values": [marker], "on_error": "skip"}
    texts = {"s": marker, "y": marker.encode()}
    assert rows_of(read_csv(path, **options)) == [NULLS | texts, ONE, NULLS]
    assert rows_of(read_csv(path, **options, quoted_nulls="always")) == [NULLS, ONE, NULLS]
    assert rows_of(read_csv(path, **options, quoted_nulls="never")) == [ONE, NULLS]
    check_every_position(read_csv(path, **options, block_bytes=150))


def test_a_quoted_marker_does_not_keep_a_column_from_being_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, 'i,f,d,s,e\n"","","","",""\n"3","0.5","2024-01-01","x",""\n"","","","",""\n')
    nulls = {"i": None, "f": None, "d": None, "s": "", "e": ""}
    source = read_csv(path)
    assert source.schema.types == [pa.int64(), pa.float64(), pa.date32(), pa.string(), pa.string()]
    assert rows_of(source) == [nulls, {"i": 3, "f": 0.5, "d": dt.date(2024, 1, 1), "s": "x", "e": ""}, nulls]
    assert read_csv(path, quoted_nulls="never").schema.types == [pa.string()] * 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        ('"NA"', "NA"),
        ('"N"A', "NA"),
        ('""NA', "NA"),
        ('"\\NA"', "NA"),
        ("NA", None),
        ("", None),
        ("x", "x"),
    ],
)
def test_a_text_is_null_only_without_quotes_however_these_are_set(tmp_path: Path, text: str, value: object) -> None:
    path = write(tmp_path, f"i,s\n1,{text}\n2,\n")
    source = read_csv(path, null_values=["", "NA"], escape="\\")
    assert rows_of(source) == [{"i": 1, "s": value}, {"i": 2, "s": None}]


def test_an_empty_field_that_is_no_marker_stays_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, 'i,s\n1,\nNA,NA\n,x\n"",x\n"NA",x\n')
    source = read_csv(path, schema={"i": "int64"}, null_values=["NA"], on_error="side")
    assert rows_of(source) == [{"i": 1, "s": ""}, {"i": None, "s": None}, {"i": None, "s": "x"}]
    assert [row["row"] for row in rejected_of(source)] == [",x", '"",x']


def test_files_that_others_quote_have_their_nulls(tmp_path: Path) -> None:
    """pandas and polars write a null as an empty text in quotes if they quote everything."""
    table = pl.DataFrame({"i": [1, None], "f": [None, 0.5], "b": [True, None], "d": [None, dt.date(2024, 1, 1)]})
    by_pandas = pd.DataFrame({"i": pd.array([1, None], "Int64"), "f": [None, 0.5]})
    path = write(tmp_path, table.write_csv(quote_style="always"))
    assert table_of(read_csv(path)).to_pydict() == table.to_dict(as_series=False)
    out = io.StringIO()
    by_pandas.to_csv(out, index=False, quoting=1)
    path = write(tmp_path, out.getvalue())
    assert rows_of(read_csv(path)) == [{"i": 1, "f": None}, {"i": None, "f": 0.5}]


def test_what_write_csv_writes_is_read_back(tmp_path: Path) -> None:
    table = pa.table({"i": [1, None, 3, 4], "s": ["", None, "NULL", 'a"b']})
    for quoting, null_text in (("needed", ""), ("all_valid", ""), ("needed", "NULL"), ("all_valid", "NULL")):
        folder = tmp_path / f"{quoting}{null_text}"
        with flow.Pipeline("there-and-back") as p:
            sink = op.write_csv(folder, quoting=quoting, null_text=null_text)  # type: ignore[arg-type]
            p.source(op.from_arrow(table), name="rows").sink(sink, name="out")
        p.run()
        source = read_csv(folder, schema={"i": "int64", "s": "string"}, null_values=[null_text])
        assert table_of(source).equals(table), (quoting, null_text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"escape": "\\", "null_values": ["", "\\N"]}, r"null_values has '\\\\N', but escape='\\\\'"),
        ({"null_values": "NA"}, r"null_values must be a list of texts, got 'NA'; write \['NA'\]"),
        ({"null_values": [None]}, "null_values must be a list of texts, got None among them"),
        ({"timestamp_parsers": "%Y"}, "timestamp_parsers must be a list of texts"),
        ({"quoted_nulls": "text"}, "quoted_nulls must be one of .*'typed', 'always', 'never'.*got 'text'"),
        ({"delimiter": "\n"}, r"delimiter must be no line end and not NUL, got '\\n'; to read each line as one column"),
        ({"quote": "\r"}, r"quote must be no line end and not NUL, got '\\r'; leave it out$"),
        ({"escape": "\n"}, r"escape must be no line end and not NUL, got '\\n'; leave it out$"),
        ({"delimiter": "\0"}, "delimiter must be no line end and not NUL"),
        ({"decimal_point": "\n"}, "decimal_point must be no line end"),
        ({"quote": ","}, "delimiter, quote and escape must differ"),
        ({"escape": '"'}, "delimiter, quote and escape must differ"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"read_csv: {message}"):
        read_csv(write(tmp_path, "i\n1\n"), **options)


def test_a_marker_with_a_backslash_is_read_if_there_is_no_escape(tmp_path: Path) -> None:
    path = write(tmp_path, "i,s\n1,\\N\n\\N,N\n")
    assert rows_of(read_csv(path, null_values=["\\N"])) == [{"i": 1, "s": None}, {"i": None, "s": "N"}]


@pytest.mark.parametrize("line", ["a;b", "a,b", '"a'])
def test_lines_can_be_read_as_one_column(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"{line}\n")
    assert rows_of(read_csv(path, column_names=["line"], delimiter="\x01", quote=None)) == [{"line": line}]
