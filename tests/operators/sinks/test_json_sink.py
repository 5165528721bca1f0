"""The JSON lines sink: valid JSON for every value, and what independent readers make of it."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import operators as op
from operators.sinks.json_text import json_text
from tests.operators.odd_tables import AS_TEXT, ODD, columns, nested, written


def test_json_lines_are_valid_json_with_every_column_in_every_row(tmp_path: Path) -> None:
    file = written(op.write_json(tmp_path), tmp_path)
    rows = [json.loads(line, parse_constant=pytest.fail) for line in file.read_bytes().splitlines()]
    expected = [(*row[:3], row[3] and row[3].replace(" ", "T")) for row in AS_TEXT]
    assert [tuple(row) for row in rows] == [tuple(ODD.column_names)] * 5
    assert [row["text"] for row in rows] == ODD["text"].to_pylist()
    assert [row["int"] for row in rows] == ODD["int"].to_pylist()
    assert [row["float"] for row in rows] == [1.5, None, None, None, 1e300]
    assert [row["at"] for row in rows] == [row[3] for row in expected]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # of pandas 2, at -2**63
def test_three_programs_read_the_same_rows_from_json_lines(tmp_path: Path) -> None:
    file = str(written(op.write_json(tmp_path), tmp_path, ODD.select(["text", "int"])))
    expected = [tuple(row.values()) for row in ODD.select(["text", "int"]).to_pylist()]
    assert duckdb.sql(f"from read_json('{file}')").fetchall() == expected
    assert pl.read_ndjson(file).rows() == expected
    pandas = pd.read_json(file, lines=True, dtype_backend="pyarrow")
    assert pandas["text"].tolist()[1:3] == ['a,"b"\nnext', "ü 😀"]
    assert pandas["int"].tolist()[2] == -(2**63)


def test_every_character_survives_json() -> None:
    characters = [chr(i) for i in (*range(0x300), 0x2028, 0x2029, 0xFFFF, 0x1F600, 0x10FFFF)]
    texts = pa.array([*characters, "".join(characters), "\\\\n", '\\"'])
    assert [json.loads(text) for text in json_text(texts, "t").to_pylist()] == texts.to_pylist()


def test_nested_values_are_arrays_and_objects() -> None:
    texts = {name: json_text(column, name)[0].as_py() for name, column in nested().items()}
    assert texts["fixed"] == "[1,2]"
    assert texts["struct"] == '{"a":1,"b\\"":"x"}'
    assert texts["map"] == '[{"key":"1.50","value":"2020-01-01"}]'
    assert texts["deep"] == '[{"m":[{"key":1,"value":["01:00:00"]}]}]'


def test_the_json_of_a_slice_is_a_slice_of_the_json() -> None:
    for name, column in (columns() | nested()).items():
        whole = json_text(column, name).to_pylist()
        for start in range(len(column) + 1):
            assert json_text(column[start:], name).to_pylist() == whole[start:], name
            assert json_text(column[:start], name).to_pylist() == whole[:start], name
