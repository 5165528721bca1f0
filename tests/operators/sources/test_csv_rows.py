"""Where rows of CSV text end: where Arrow's parser says they do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from operators.kernels.csv_rows import row_ends
from operators.sources.csv_files import CsvDialect


def ends_of(text: bytes, quote: str = '"', escape: str | None = None) -> tuple[list[int], bool]:
    places = np.empty(len(text), np.int64)
    marks = ord(","), ord(quote), -1 if escape is None else ord(escape)
    rows, last, opened = row_ends(np.frombuffer(text, np.uint8), *marks, places)
    assert rows == 0 or last == places[rows - 1]
    return places[:rows].tolist(), bool(opened)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (b"a,b\nc,d\n", [4, 8]),
        (b'a,"x\ny"\nb,c\n', [8, 12]),
        (b'a,"x""\ny"\nb\n', [10, 12]),
        (b'a,x"\nb"\n', [5, 8]),
        (b'"a"b"\nc\n', [6, 8]),
        (b"a\r\nb\rc\n", [3, 5, 7]),
        (b"\n\na\n", [1, 2, 4]),
        (b"", []),
        (b"a", []),
        (b"a\r", []),
    ],
)
def test_a_row_ends_at_a_newline_outside_quotes(text: bytes, ends: list[int]) -> None:
    assert ends_of(text) == (ends, False)


def test_an_open_quote_is_told() -> None:
    assert ends_of(b'a\n"b\nc\n') == ([2], True)


def test_an_escaped_newline_and_an_escaped_quote_end_nothing() -> None:
    assert ends_of(b'a\\\nb,"c\\"\nd"\ne\n', escape="\\") == ([13, 15], False)


def parsed(text: bytes) -> list[str] | None:
    options = csv.ParseOptions(newlines_in_values=True, delimiter=",", ignore_empty_lines=False)
    read = csv.ReadOptions(column_names=["x"], use_threads=False)
    convert = csv.ConvertOptions(column_types={"x": pa.string()})
    try:
        return csv.read_csv(pa.BufferReader(text), read, options, convert)["x"].to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return None


@given(st.lists(st.sampled_from([b"a", b'"', b"\n", b"\r", b"\r\n", b'""', b"bc"]), max_size=12).map(b"".join))
def test_rows_taken_apart_parse_to_what_they_are_together(text: bytes) -> None:
    ends, opened = ends_of(text)
    whole = parsed(text[: ends[-1]]) if ends else None
    if whole is None or opened:
        return
    apart = [parsed(text[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    assert [row for rows in apart if rows is not None for row in rows] == whole


@given(st.lists(st.sampled_from([b"a", b",", b"\n", b"\r", b"\r\n", b"bc"]), max_size=12).map(b"".join))
def test_rows_of_text_without_quotes_end_at_the_same_places_without_the_kernel(text: bytes) -> None:
    format = CsvDialect(None, 0, ",", '"', None, ("",), "typed", ".", (), "utf-8", ())
    ends = ends_of(text)[0]
    assert format.ends(text) == (ends if (ends or [0])[-1] == len(text) else [*ends, len(text)])
