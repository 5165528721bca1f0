"""Ids, zip codes and telephone numbers in CSV keep their zeros and signs: a column of them is text, not integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from dataflow.errors import SourceError
from operators import read_csv, watch
from operators.kernels.csv_rows import has_padded_number, may_have_padded_number
from tests.operators.reading import check_every_position, rejected_of, rows_of
from tests.operators.sources.watching import Watching
from tests.seeds import part_of_the_examples

TEXT, WHOLE, FLOAT = pa.string(), pa.int64(), pa.float64()


def write(folder: Path, *tokens: str, name: str = "a") -> Path:
    path = folder / f"{name}.csv"
    path.write_text("\n".join(["i,s", *[f"{token},x" for token in tokens]]) + "\n")
    return path


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [
        (["00501", "501"], TEXT),
        (["501", "", "00"], TEXT),
        (["1", "-01"], TEXT),
        (["1", " 01"], TEXT),
        (["1", '"01"'], TEXT),
        (["+5", "-3"], TEXT),
        (["+41791234567", "0791234567"], TEXT),
        ([str(2**63), "+5"], TEXT),
        (["1", str(2**64), f"000{2**63}"], TEXT),
        (["nan", "007"], TEXT),
        (["0", "-0", "10", "-10"], WHOLE),
        (["1.5", "007", "+7"], FLOAT),
        (["0.5", "1"], FLOAT),
        (["01.5", "1"], FLOAT),
        (["1e3", "01"], FLOAT),
    ],
)
def test_a_column_is_text_if_a_whole_number_has_a_plus_or_zeros_in_front(
    tmp_path: Path, tokens: list[str], kind: pa.DataType
) -> None:
    source = read_csv(write(tmp_path, *tokens))
    assert source.schema.field("i").type == kind
    rows = rows_of(source)
    assert len(rows) == len(tokens)
    if kind == TEXT:
        assert [row["i"] or "" for row in rows] == [token.strip('"') for token in tokens]


@pytest.mark.parametrize("token", ["007", "-07", " 007", "00", '"007"', "+7"])
def test_such_a_number_after_the_first_rows_is_an_error_of_its_row(tmp_path: Path, token: str) -> None:
    path = write(tmp_path, *["1"] * 40, token, "2")
    source = read_csv(path, on_error="side", block_bytes=64)
    assert [row["i"] for row in rows_of(source)] == [*[1] * 40, 2]
    (rejected,) = rejected_of(source)
    assert (rejected["where"], rejected["row"]) == (f"{path}:42", f"{token},x")
    assert f"column 'i': {'invalid value ' * (token == '+7')}'{token.strip(chr(34))}' " in str(rejected["error"])
    assert "schema=" in str(rejected["error"])
    check_every_position(source, cuts=(3,))
    if token != "+7":
        assert len(rows_of(read_csv(path, schema={"i": "int64"}, block_bytes=64))) == 42


def test_later_files_and_watched_files_have_the_rule_of_the_first(tmp_path: Path) -> None:
    write(tmp_path, "1", "2", name="a")
    write(tmp_path, "007", name="b")
    with pytest.raises(SourceError, match=r"b\.csv:2: column 'i': '007' has zeros in front.*schema= gives another"):
        rows_of(read_csv(tmp_path))
    with pytest.raises(SourceError, match=r"b\.csv:2: column 'i': '007' has zeros in front.*schema= gives another"):
        Watching(watch(tmp_path, read_csv)).rows()
    assert len(rows_of(read_csv(tmp_path, schema={"i": "int64"}))) == 3
    assert Watching(watch(tmp_path, read_csv, schema={"i": "string"})).rows() == ["1", "2", "007"]


def test_such_text_beside_whole_numbers_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,zip,at,day\n" + "".join(f'{n},"0{n:04}",09:0{n % 10}:00,01.02.2024\n' for n in range(40)))
    source = read_csv(path, schema={"zip": "string"}, block_bytes=100)
    assert [(row["n"], row["zip"]) for row in rows_of(source)] == [(n, f"0{n:04}") for n in range(40)]


@pytest.mark.parametrize(
    "row", ['"0","10"', "0, 0", "-0,0", "09:30:00,05.03.2024", "2024-01-05 09:00,0.5", "00ff,01.5", '"0""",0', "0,0 "]
)
def test_the_fast_search_passes_over_what_is_often_in_files(row: str) -> None:
    codes = np.frombuffer(f"{row}\n".encode() * 300, np.uint8)
    assert not may_have_padded_number(codes, ord(","), ord('"'), 255)


FIELD = st.lists(st.sampled_from([b"0", b"0", b"1", b"-", b" ", b'"', b"\\", b"x", b".", b"+", b"\t"]), max_size=5)
ROWS = st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=90)


@part_of_the_examples(2)
@given(rows=ROWS, escape=st.booleans(), watch_second=st.booleans())
def test_zeros_in_front_are_found_in_the_fields_that_arrow_reads(
    rows: list[tuple[list[bytes], list[bytes]]], *, escape: bool, watch_second: bool
) -> None:
    text = b"".join(b"".join(first) + b"," + b"".join(second) + b"\n" for first, second in rows)
    parse = csv.ParseOptions(newlines_in_values=True, escape_char="\\" if escape else False)
    read = csv.ReadOptions(column_names=["a", "b"], use_threads=False)
    convert = csv.ConvertOptions(column_types=dict.fromkeys("ab", pa.string()), strings_can_be_null=False)
    try:
        fields = csv.read_csv(pa.BufferReader(text), read, parse, convert)["b" if watch_second else "a"].to_pylist()
    except pa.ArrowInvalid:
        return  # a quote makes the rows differ in their fields
    found = [field.lstrip(" \t").removeprefix("-")[:2] in ("00", "01") for field in fields]
    codes, marks = np.frombuffer(text, np.uint8), [ord(","), ord('"'), ord("\\") if escape else -1]
    watched = np.array([not watch_second, watch_second], np.uint8)
    assert has_padded_number(codes, *marks, watched) == any(found)
    whole = [
        is_padded and field.strip(" \t").lstrip("-").isdigit() for field, is_padded in zip(fields, found, strict=True)
    ]
    assert may_have_padded_number(codes, *[255 if mark < 0 else mark for mark in marks]) >= any(whole)
