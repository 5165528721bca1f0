"""The CSV sink: quotes, nulls and options, and what independent readers make of its files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import operators as op
from dataflow.errors import SinkBroken
from tests.operators.odd_tables import AS_TEXT, ODD, written


def test_three_programs_read_the_same_text_from_a_csv(tmp_path: Path) -> None:
    file = str(written(op.write_csv(tmp_path, null_text="NULL"), tmp_path))
    duck = duckdb.sql(f"from read_csv('{file}', all_varchar=true, nullstr='NULL', allow_quoted_nulls=false)")
    polars = pl.read_csv(file, infer_schema=False, null_values="NULL")
    pandas = pd.read_csv(file, dtype=str, keep_default_na=False, na_values=["NULL"])
    assert duck.fetchall() == AS_TEXT
    assert polars.rows() == AS_TEXT
    assert [tuple(None if pd.isna(x) else x for x in row) for row in pandas.itertuples(index=False)] == AS_TEXT


def test_duckdb_finds_the_types_of_a_csv_by_itself(tmp_path: Path) -> None:
    file = written(op.write_csv(tmp_path), tmp_path)
    relation = duckdb.sql(f"from read_csv('{file}', allow_quoted_nulls=false)")
    assert [str(type_) for type_ in relation.types[1:]] == ["BIGINT", "DOUBLE", "TIMESTAMP WITH TIME ZONE"]
    assert [row[0] for row in relation.select("text").fetchall()] == ODD["text"].to_pylist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, '"s","n"\n"a",1\n"",\n,2\n'),
        ({"header": False}, '"a",1\n"",\n,2\n'),
        ({"delimiter": ";"}, '"s";"n"\n"a";1\n"";\n;2\n'),
        ({"quoting": "all_valid"}, '"s","n"\n"a","1"\n"",\n,"2"\n'),
        ({"null_text": "\\N"}, '"s","n"\n"a",1\n"",\\N\n\\N,2\n'),
    ],
)
def test_the_options_of_csv_do_what_they_say(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    table = pa.table({"s": ["a", "", None], "n": [1, None, 2]})
    file = written(op.write_csv(tmp_path, **options), tmp_path, table)
    assert file.read_text(encoding="utf-8") == expected
    assert op.read_committed(tmp_path).equals(table)


def test_without_quotes_the_empty_text_reads_like_null_and_a_delimiter_in_a_text_breaks_the_sink(
    tmp_path: Path,
) -> None:
    table = pa.table({"s": ["a", "", None]})
    file = written(op.write_csv(tmp_path / "a", quoting="none"), tmp_path / "a", table)
    assert file.read_text(encoding="utf-8") == '"s"\na\n\n\n'
    with pytest.raises(SinkBroken, match=r"Invalid value: b,c"):
        written(op.write_csv(tmp_path / "b", quoting="none"), tmp_path / "b", pa.table({"s": ["b,c"]}))


def test_a_null_in_a_file_of_one_column_is_an_empty_line_that_we_read_again(tmp_path: Path) -> None:
    table = pa.table({"x": [1, None, 3, None]})
    assert written(op.write_csv(tmp_path), tmp_path, table).read_bytes() == b'"x"\n1\n\n3\n\n'
    assert op.read_committed(tmp_path).equals(table)


def test_python_reads_the_csv_too(tmp_path: Path) -> None:
    text = written(op.write_csv(tmp_path), tmp_path).read_text(encoding="utf-8")
    assert list(csv.reader(io.StringIO(text)))[1:] == [[x or "" for x in row] for row in AS_TEXT]
