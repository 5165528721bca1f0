"""JSON lines as a source: the same rows as others read, from every position, and lines that are wrong."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import SchemaMismatch, SourceError, UnknownColumn
from dataflow.runners.faults import Faults
from operators import read_json
from tests.operators.reading import check_every_position, rejected_of, rows_of, table_of
from tests.seeds import seeds

SIZES = [1, 50, 1 << 20]


def write(path: Path, *lines: object) -> Path:
    text = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in lines]
    path.write_bytes(b"\n".join(text))
    return path


def nested(path: Path, rows: int = 30) -> Path:
    objects = [
        {"i": n, "f": n / 4, "s": None if n % 5 == 2 else f"größe {n}\n", "b": n % 2 == 0}
        | ({"list": [n, None, n + 1]} if n % 3 == 0 else {})
        | {"deep": {"x": [{"y": n}], "z": "long" * n}, "at": f"2024-01-01T00:00:{n:02}"}
        for n in range(rows)
    ]
    return write(path, *objects)


@pytest.mark.parametrize("block_bytes", SIZES)
def test_nested_rows_are_what_duckdb_reads(tmp_path: Path, block_bytes: int) -> None:
    path = nested(tmp_path / "a.jsonl")
    schema = read_json(path).schema
    expected = duckdb.sql(f"select * from read_json('{path}', format='newline_delimited')").to_arrow_table()
    found = table_of(read_json(path, schema=schema, block_bytes=block_bytes))
    assert found.to_pylist() == expected.select(found.column_names).to_pylist()


def test_flat_rows_are_what_polars_reads(tmp_path: Path) -> None:
    path = nested(tmp_path / "a.jsonl")
    found = table_of(read_json(path, columns=["i", "f", "s", "b"]))
    assert pl.from_arrow(found).equals(pl.read_ndjson(path).select("i", "f", "s", "b"))  # type: ignore[arg-type]


@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_reader_at_any_position_gives_exactly_the_rest(tmp_path: Path, block_bytes: int) -> None:
    path = nested(tmp_path / "a.jsonl", 12)
    check_every_position(read_json(path, schema=read_json(path).schema, block_bytes=block_bytes))


WRONG = [
    ({"i": "x"}, "from number to string"),
    (b'{"i": 1', "Missing a comma"),
    (b"null", "expected a JSON object"),
    (b"[1]", "expected a JSON object"),
    (b'{"i": 1} {"i": 2}', "more than one object"),
    (b'{"i": 1} null', "more than one object"),
    ({"i": 1, "j": 1}, "unexpected field"),
    ({"i": 1.5}, "couldn't parse:1.5"),
    (b'{"i": 1, "s": "\xff"}', "not UTF-8"),
    (b'{"i": 1, "i": 2}', "specified twice"),
]


@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize(("line", "reason"), WRONG)
def test_a_line_that_is_wrong_is_set_aside(tmp_path: Path, line: object, reason: str, block_bytes: int) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1, "s": "ä"}, b"", line, {"i": 4})
    types = {"i": pa.int64(), "s": pa.string()}
    source = read_json(path, schema=types, on_error="side", block_bytes=block_bytes)
    assert [row["i"] for row in rows_of(source)] == [1, 4]
    (rejected,) = rejected_of(source)
    assert rejected["where"] == f"{path}:3"
    assert reason in str(rejected["error"])
    check_every_position(source)


def test_a_line_that_is_wrong_ends_the_job_and_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1}, {"i": 2}, {"i": "three"})
    with pytest.raises(SourceError, match=r"a\.jsonl:3: .*from number to string"):
        rows_of(read_json(path))


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_side_output_errors_has_each_wrong_line_once_through_crashes(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "a.jsonl", *[{"i": n} if n % 4 else b"{" for n in range(60)])
    with flow.Pipeline("aside") as p:
        source = read_json(path, schema={"i": pa.int64()}, on_error="side", batch_rows=3, block_bytes=60)
        numbers = p.source(source, name="numbers")
        numbers.sink(op.collect(), name="good")
        numbers.side("errors").sink(op.collect(), name="bad")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    result = p.run(crashing, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("good")["i"].to_pylist()) == [n for n in range(60) if n % 4]
    assert sorted(result.table("bad")["where"].to_pylist()) == sorted(f"{path}:{n + 1}" for n in range(0, 60, 4))


def test_types_that_json_has_not_are_read_from_text(tmp_path: Path) -> None:
    types = {
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "m": pa.decimal128(5, 2),
        "c": pa.dictionary(pa.int8(), pa.string()),
    }
    row = {"d": "1969-12-31", "t": "2024-01-01T02:00:00+02:00", "m": "1.50", "c": "x"}
    source = read_json(write(tmp_path / "a.jsonl", row, {**row, "d": "1969-13-31"}, {}), schema=types, on_error="side")
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    expected = {"d": dt.date(1969, 12, 31), "t": at, "m": Decimal("1.50"), "c": "x"}
    assert rows_of(source) == [expected, dict.fromkeys(types)]
    assert source.schema.field("c").type == pa.dictionary(pa.int32(), pa.string())
    assert "1969-13-31" in str(rejected_of(source))


@pytest.mark.parametrize("wrong", ["", "25:00:00", "10:00:00Z", "10:00:00.5", "x", "2024-01-01T10:00:00", 7])
def test_times_of_day_are_read_from_text_and_durations_from_numbers(tmp_path: Path, wrong: object) -> None:
    types = {"s": pa.time32("s"), "ns": pa.time64("ns"), "took": pa.duration("ms")}
    path = write(tmp_path / "a.jsonl", {"s": "23:59:59", "ns": "00:00:00.000000001", "took": -5}, {"s": wrong}, {})
    source = read_json(path, schema=types, on_error="side")
    columns = flow.Pipeline().source(source).collect()
    assert [column.cast(pa.int32() if i == 0 else pa.int64()).to_pylist() for i, column in enumerate(columns)] == [
        [86_399, None],
        [1, None],
        [-5, None],
    ]
    assert rejected_of(source)[0]["where"] == f"{path}:2"


def test_a_type_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="map<string, int64>"):
        read_json(write(tmp_path / "a.jsonl", {"m": 1}), schema={"m": pa.map_(pa.string(), pa.int64())})


def test_fields_that_are_not_chosen_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1, "j": 2}, {"j": 3, "i": 2, "new": []})
    assert rows_of(read_json(path, columns=["i"])) == [{"i": 1}, {"i": 2}]
    with pytest.raises(UnknownColumn, match="did you mean 'i'"):
        read_json(path, columns=["ii"])


def test_types_are_inferred_from_the_lines_ahead_of_one_that_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1}, {"i": 2}, b"null", {"i": 4})
    assert rows_of(read_json(path, on_error="skip")) == [{"i": 1}, {"i": 2}, {"i": 4}]
    with pytest.raises(SourceError, match=r"first row cannot be parsed.*give schema="):
        read_json(write(tmp_path / "b.jsonl", b"null"), on_error="skip")


@pytest.mark.parametrize("text", [b'\n\n{"i":1}\n\n', b'{"i":1}\r\n', b'\xef\xbb\xbf{"i":1}', b'  {"i":1}  \n \n'])
@pytest.mark.parametrize("block_bytes", SIZES)
def test_line_ends_marks_and_empty_lines_do_not_matter(tmp_path: Path, text: bytes, block_bytes: int) -> None:
    source = read_json(write(tmp_path / "a.jsonl", text), block_bytes=block_bytes)
    assert rows_of(source) == [{"i": 1}]


def test_files_without_rows_need_types(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", b"\n")
    with pytest.raises(SourceError, match="nothing to infer columns from; give schema="):
        read_json(tmp_path)
    assert rows_of(read_json(tmp_path, schema={"i": pa.int64()})) == []


def test_a_field_without_values_is_text(tmp_path: Path) -> None:
    source = read_json(write(tmp_path / "a.jsonl", {"a": None, "b": [], "c": {"d": None}}))
    assert source.schema.types == [pa.string(), pa.list_(pa.string()), pa.struct({"d": pa.string()})]


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    plain = nested(tmp_path / "a.jsonl", 12)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.ndjson.gz").write_bytes(gzip.compress(plain.read_bytes()))
    source = read_json(tmp_path / "packed", schema=read_json(plain).schema, block_bytes=100)
    assert rows_of(source) == rows_of(read_json(plain))
    check_every_position(source, cuts=(2,))


def test_a_source_pickles(tmp_path: Path) -> None:
    source = read_json(nested(tmp_path / "a.jsonl")).select(["i", "deep"])
    assert rows_of(pickle.loads(pickle.dumps(source))) == rows_of(source)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    ("early", "late", "field"),
    [({"i": 1}, {"i": 1, "j": 2}, "j"), ({"i": {"a": 1}}, {"i": {"a": 1, "j": 2}}, "i.j")],
)
def test_a_field_that_first_appears_later_is_an_error_of_its_row_and_named(
    tmp_path: Path, early: object, late: object, field: str, on_error: str
) -> None:
    source = read_json(write(tmp_path / "a.jsonl", *[early] * 20, late, early), block_bytes=64, on_error=on_error)
    if on_error == "skip":
        assert len(rows_of(source)) == 21
    else:
        with pytest.raises(SourceError, match=rf"a\.jsonl:21: unexpected field '{field}': .*inferred.*schema= adds it"):
            rows_of(source)


@pytest.mark.parametrize("other", [{"k": 1}, {"k": "x"}], ids=["alike", "of two types"])
def test_a_field_within_a_chosen_column_is_never_lost(tmp_path: Path, other: dict[str, object]) -> None:
    rows = [{"i": [{"a": 1}], "k": 0}, {"i": [{"a": 2, "b": 3}], **other}, {"i": None, **other}]
    path = write(tmp_path / "a.jsonl", *rows)
    types = {"i": pa.list_(pa.struct({"a": pa.int64()})), "k": pa.int64()}
    source = read_json(path, schema=types, columns=["i"], on_error="side")
    assert rows_of(source) == [{"i": [{"a": 1}]}, {"i": None}]
    (rejected,) = rejected_of(source)
    assert "unexpected field 'i.b': schema= adds it" in str(rejected["error"])
    check_every_position(source)


@pytest.mark.parametrize("types", [None, {"s": pa.string()}], ids=["inferred", "given"])
@pytest.mark.parametrize("before", [0, 20])
def test_text_in_another_encoding_is_named_by_file_line_and_byte(tmp_path: Path, types: object, before: int) -> None:
    lines = [b'{"s":"a"}'] * before + ['{"s":"größe"}'.encode("latin-1")]
    path = write(tmp_path / "a.jsonl", *lines)
    said = rf"a\.jsonl:{before + 1}: .*byte 0xf6 at byte {before * 10 + 8} of the file is not utf-8.*iconv"
    with pytest.raises(SourceError, match=said):
        rows_of(read_json(path, schema=types, block_bytes=64))


def test_a_file_that_is_one_array_is_told_how_to_become_lines(tmp_path: Path) -> None:
    write(tmp_path / "a.json", b'[{"i":1},\n{"i":2}]\n')
    with pytest.raises(SourceError, match=r"write one object a line, such as with jq -c '\.\[\]'$"):
        read_json(tmp_path)
