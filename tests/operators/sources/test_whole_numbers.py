"""Whole numbers above int64 in text files: read exactly or refused, never rounded to floats, in CSV and JSON alike."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import Source
from dataflow.errors import SourceError
from operators import read_csv, read_json
from tests.operators.reading import check_every_position, rejected_of, rows_of

MOST, ABOVE = 2**63 - 1, 2**63
FORMATS = ["csv", "json"]


def write(folder: Path, format: str, *tokens: str, name: str = "a") -> Path:
    path = folder / f"{name}.{format}"
    lines = ["i,s", *(f"{token},x" for token in tokens)]
    if format == "json":
        lines = [f'{{"i": {token or "null"}, "s": "x"}}' for token in tokens]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, **options: object) -> Source:
    return (read_csv if path.suffix == ".csv" else read_json)(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("tokens", "kind"),
    [
        (["1", str(MOST), "-5"], pa.int64()),
        ([str(-(2**63)), "", str(MOST)], pa.int64()),
        (["1", "", str(ABOVE)], pa.uint64()),
        ([str(ABOVE), str(ABOVE + 1), str(2**64 - 1)], pa.uint64()),
        ([str(ABOVE), "1.5"], pa.float64()),
        ([str(ABOVE), "1e3"], pa.float64()),
        ([str(2**64), "-1", "2E0"], pa.float64()),
    ],
)
def test_whole_numbers_have_the_integer_type_that_holds_them(
    tmp_path: Path, format: str, tokens: list[str], kind: pa.DataType
) -> None:
    source = read(write(tmp_path, format, *tokens))
    assert source.schema.field("i").type == kind
    convert = float if kind == pa.float64() else int
    assert [row["i"] for row in rows_of(source)] == [convert(token) if token else None for token in tokens]
    check_every_position(source)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("tokens", [["-1", str(ABOVE)], ["1", str(2**64)], [str(-(2**63) - 1)], ["9" * 50]])
def test_whole_numbers_that_no_integer_type_holds_ask_for_a_schema(
    tmp_path: Path, format: str, tokens: list[str]
) -> None:
    path = write(tmp_path, format, *tokens)
    with pytest.raises(SourceError, match=r"column 'i' .*neither int64 nor uint64.*schema=") as caught:
        read(path)
    shown = (
        "-1 and 9223372036854775808: neither" if tokens[0] == "-1" else f"has {tokens[-1]}: neither int64 nor uint64"
    )
    assert shown in str(caught.value)
    assert [row["s"] for row in rows_of(read(path, columns=["s"]))] == ["x"] * len(tokens)
    given = read(path, schema={"i": pa.decimal128(38, 0), "s": pa.string()}, on_error="skip")
    assert [int(row["i"]) for row in rows_of(given)] == [int(token) for token in tokens if len(token) < 39]  # type: ignore[call-overload]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("first", "later"), [("1", str(ABOVE)), (str(ABOVE), "-1"), (str(ABOVE), str(2**64)), ("1", "1.0"), ("1", "1e0")]
)
def test_a_later_number_that_does_not_fit_is_an_error_of_its_row(
    tmp_path: Path, format: str, first: str, later: str
) -> None:
    path = write(tmp_path, format, *[first] * 20, later, first)
    source = read(path, on_error="side", block_bytes=64)
    assert [row["i"] for row in rows_of(source)] == [int(first)] * 21
    (rejected,) = rejected_of(source)
    assert rejected["where"] == f"{path}:{21 + (format == 'csv')}"
    assert later in str(rejected["error"])
    assert "schema=" in str(rejected["error"])


@pytest.mark.parametrize("format", FORMATS)
def test_two_ids_above_int64_stay_two_keys(tmp_path: Path, format: str) -> None:
    path = write(tmp_path, format, str(ABOVE), str(ABOVE + 1), str(ABOVE + 1))
    stream = flow.Pipeline().source(read(path), name="ids")
    counts = stream.key_by("i").agg(op.count().alias("n"), name="count").collect()
    assert sorted(zip(*counts.to_pydict().values(), strict=True)) == [(ABOVE, 1), (ABOVE + 1, 2)]


@pytest.mark.parametrize("format", FORMATS)
def test_later_files_and_watched_files_have_the_type_of_the_first(tmp_path: Path, format: str) -> None:
    first = write(tmp_path, format, str(ABOVE), name="a")
    write(tmp_path, format, "7", "-7", name="b")
    source = read(first.with_name(f"?.{format}"), on_error="skip")
    assert sorted(row["i"] for row in rows_of(source)) == [7, ABOVE]  # type: ignore[type-var]
    watched = op.watch(tmp_path, read_csv if format == "csv" else read_json)
    assert watched.schema.equals(source.schema)


def test_numbers_within_lists_and_objects_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"deep": {"ids": [1, ABOVE + 1]}, "f": [1, 0.5], "q": str(2**70)}, {"deep": {"ids": None}, "f": [ABOVE]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    source = read_json(path)
    assert source.schema.types == [
        pa.struct({"ids": pa.list_(pa.uint64())}),
        pa.list_(pa.float64()),
        pa.string(),
    ]
    assert rows_of(source)[0] == rows[0]
    path.write_text(json.dumps({"deep": [{"id": -1}, {"id": ABOVE}]}))
    with pytest.raises(SourceError, match=r"column 'deep\[\]\.id' .*schema="):
        read_json(path)


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [
        (["0", "-0", " 8", "-10"], pa.int64()),
        ([f"{ABOVE}", '"5"'], pa.uint64()),
        (["1", "nan", "inf"], pa.float64()),
        ([f"{ABOVE}x"], pa.string()),
    ],
)
def test_other_ways_to_write_a_number_in_csv(tmp_path: Path, tokens: list[str], kind: pa.DataType) -> None:
    source = read_csv(write(tmp_path, "csv", *tokens))
    assert source.schema.field("i").type == kind
    assert len(rows_of(source)) == len(tokens)


@pytest.mark.parametrize("tokens", [[str(ABOVE), "-0"], [str(ABOVE), "-inf"]])
def test_signs_that_no_integer_type_takes_ask_for_a_schema(tmp_path: Path, tokens: list[str]) -> None:
    with pytest.raises(SourceError, match=r"among numbers that float64 would round.*schema="):
        read_csv(write(tmp_path, "csv", *tokens))


@pytest.mark.parametrize("format", FORMATS)
def test_a_value_that_is_no_number_does_not_round_the_ids_beside_it(tmp_path: Path, format: str) -> None:
    path = write(tmp_path, format, str(ABOVE), "NaN", str(ABOVE + 1))
    with pytest.raises(SourceError, match=r"has '(nan|NaN)' among numbers that float64 would round.*null.*schema="):
        read(path)
    with pytest.raises(SourceError, match="among numbers that float64 would round"):
        read(write(tmp_path, format, str(-(2**53) - 1), "NaN"))
    assert read(write(tmp_path, format, "1", "NaN")).schema.field("i").type == pa.float64()


@pytest.mark.parametrize("token", ["NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
def test_each_way_to_write_what_is_no_number_in_json_is_told_from_the_numbers_beside_it(
    tmp_path: Path, token: str
) -> None:
    with pytest.raises(SourceError, match="among numbers that float64 would round"):
        read_json(write(tmp_path, "json", str(ABOVE), token))
    path = tmp_path / "b.json"
    path.write_text(f'{{"i": 1, "s": "Inf \\" Inf", "n": {ABOVE}}}\n{{"i": {token}, "s": "Inf", "n": 1}}\n')
    source = read_json(path)
    assert source.schema.types == [pa.float64(), pa.string(), pa.uint64()]
    assert [row["s"] for row in rows_of(source)] == ['Inf " Inf', "Inf"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_number_of_more_digits_than_python_converts_asks_for_a_schema(tmp_path: Path, format: str) -> None:
    with pytest.raises(SourceError, match=r"column 'i' .*neither int64 nor uint64.*schema="):
        read(write(tmp_path, format, "1", "9" * 5_000))


HEXADECIMAL = ["0xFF", "0Xff", " 0xFF ", "0xFFFFFFFFFFFFFFFF"]


@pytest.mark.parametrize("token", [*HEXADECIMAL, "0b1", "0o7", "1_000", "\uff11", "-0xFF", "0x1p3", "1f"])
def test_what_is_no_decimal_number_makes_a_column_text(tmp_path: Path, token: str) -> None:
    source = read(write(tmp_path, "csv", "255", token, "7"))
    assert source.schema.field("i").type == pa.string()
    assert [row["i"] for row in rows_of(source)] == ["255", token, "7"]


@pytest.mark.parametrize("token", HEXADECIMAL)
@pytest.mark.parametrize("type_", [None, "int8", "int64", "uint64"])
def test_a_hexadecimal_number_in_a_column_of_integers_is_an_error_of_its_row(
    tmp_path: Path, token: str, type_: str | None
) -> None:
    """Arrow reads the bits: 0xFF as int8 is -1."""
    path = write(tmp_path, "csv", *["1"] * 40, token, "2")
    source = read(path, schema=type_ and {"i": type_}, on_error="side", block_bytes=64)
    assert [row["i"] for row in rows_of(source)] == [*[1] * 40, 2]
    (rejected,) = rejected_of(source)
    assert rejected["where"] == f"{path}:42"
    assert f"column 'i': invalid value '{token}' for {type_ or 'int64'}" in str(rejected["error"])


def test_a_hexadecimal_number_is_found_from_every_position(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", *["1"] * 40, "0xFF", "2")
    check_every_position(read(path, schema={"i": "int8"}, on_error="side", block_bytes=64))


def test_hexadecimal_text_beside_integers_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('i,s\n1,0xFF\n2,"a 0x1"\n')
    assert rows_of(read(path)) == [{"i": 1, "s": "0xFF"}, {"i": 2, "s": "a 0x1"}]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('"0x"FF', {}),
        ('"0"xFF', {}),
        ("0\\xFF", {"escape": "\\"}),
        ("0x\\FF", {"escape": "\\"}),
        ("'0'xFF", {"quote": "'"}),
    ],
)
def test_a_hexadecimal_number_is_found_if_quotes_or_escapes_interrupt_it(
    tmp_path: Path, text: str, options: dict[str, str]
) -> None:
    source = read(write(tmp_path, "csv", "1", text), schema={"i": "int8"}, on_error="skip", **options)
    assert [row["i"] for row in rows_of(source)] == [1]


def test_a_hexadecimal_number_is_no_duration(tmp_path: Path) -> None:
    source = read(write(tmp_path, "csv", "1", "0xFF"), schema={"i": "duration[s]"}, on_error="skip")
    assert [row["i"] for row in rows_of(source)] == [timedelta(seconds=1)]
