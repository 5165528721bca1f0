"""JSON lines as a source: the same rows as others read, from every position, and lines that are wrong."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import pickle
import re
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
    with pytest.raises(SchemaMismatch, match=r"large_list<item: int64>.*read it as text"):
        read_json(write(tmp_path / "a.jsonl", {"m": [1]}), schema={"m": pa.large_list(pa.int64())})
    assert rows_of(read_json(tmp_path, schema={"m": "string"})) == [{"m": "[1]"}]


def test_fields_that_are_not_chosen_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1, "j": 2}, {"j": 3, "i": 2, "new": []})
    assert rows_of(read_json(path, columns=["i"])) == [{"i": 1}, {"i": 2}]
    with pytest.raises(UnknownColumn, match="did you mean 'i'"):
        read_json(path, columns=["ii"])


def test_types_are_inferred_from_the_lines_ahead_of_one_that_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"i": 1}, {"i": 2}, b"null", {"i": 4})
    assert rows_of(read_json(path, on_error="skip")) == [{"i": 1}, {"i": 2}, {"i": 4}]
    for policy in ("fail", "skip"):
        with pytest.raises(SourceError, match=r"first rows? can(not)? be parsed.*give schema="):
            read_json(write(tmp_path / "b.jsonl", b"null"), on_error=policy)


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


@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_bad_first_line_is_a_bad_line(tmp_path: Path, block_bytes: int) -> None:
    lines = [b'ot":1}', b"", b"[1]", b"\xff", {"a": 1}, b'{"a":', {"a": 2, "b": "x"}]
    path = write(tmp_path / "a.jsonl", *lines)
    with pytest.raises(SourceError, match=r"first row cannot be parsed.*correct .*a\.jsonl:1, .*on_error='skip'"):
        read_json(path)
    source = read_json(path, on_error="side", block_bytes=block_bytes, columns=["a"])
    assert rows_of(source) == [{"a": 1}, {"a": 2}]
    assert [row["where"] for row in rejected_of(source)] == [f"{path}:{line}" for line in (1, 3, 4, 6)]
    skipping = read_json(path, on_error="skip")
    assert rows_of(skipping) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    write(tmp_path / "0.jsonl", b"cut")  # before it, and with no other line
    assert rows_of(read_json(tmp_path, on_error="skip", columns=["a"])) == [{"a": 1}, {"a": 2}]


def test_advice_to_skip_lines_is_not_given_where_they_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"a":1,"a":2}', b"cut")
    with pytest.raises(
        SourceError, match=r"none of its first rows can be parsed .*; correct the file, or give schema=$"
    ):
        read_json(path, on_error="skip")


def test_a_line_of_too_many_levels_is_a_bad_line(tmp_path: Path) -> None:
    deep = b'{"a":' + b"[" * 600 + b"]" * 600 + b"}"
    path = write(tmp_path / "a.jsonl", deep, {"a": 1})
    with pytest.raises(SourceError, match="more than 100 levels of objects and arrays; schema= may read them as text"):
        read_json(path)
    assert rows_of(read_json(path, on_error="skip")) == [{"a": 1}]
    assert [row["a"] for row in rows_of(read_json(path, schema={"a": "string"}))] == [deep[5:-1].decode(), "1"]


MAPS = {
    "m": pa.map_(pa.string(), pa.int64()),
    "deep": pa.list_(pa.struct({"of": pa.map_(pa.string(), pa.map_(pa.string(), pa.timestamp("us", "UTC")))})),
    "ids": pa.map_(pa.int64(), pa.list_(pa.string())),
}


@pytest.mark.parametrize("block_bytes", SIZES)
def test_objects_with_keys_of_their_own_are_read_as_maps(tmp_path: Path, block_bytes: int) -> None:
    at, time = "2024-01-01T02:00:00+02:00", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    lines: list[object] = [
        {"m": {"a": 1, 'q"\\\n': None}, "deep": [{"of": {"x": {"y": at, "z": None}}}, None], "ids": {"7": ["s"]}},
        {"m": {}, "deep": [], "ids": None},
        b' { "m" : { "b" : 2 , "c" : 3 } , "deep" : [ { "of" : null } ] } ',
        {"m": [{"key": "k", "value": 4}], "ids": [{"key": "-8", "value": []}]},  # as write_json writes a map
    ]
    bad: list[object] = [
        {"m": {"a": "x"}},
        b'{"m": {"a": 1, "a": 2}}',
        {"m": 3},
        {"m": [{"value": 1}]},
        b'{"m": {"a": 1}',
    ]
    bad += [{"ids": {"x": []}}, b'{"m": {"a" 1}}', b'{"m": {a: 1}}', {"new": 1}]
    path = write(tmp_path / "a.jsonl", *lines, *bad)
    source = read_json(path, schema=MAPS, on_error="side", block_bytes=block_bytes)
    assert rows_of(source) == [
        {
            "m": [("a", 1), ('q"\\\n', None)],
            "deep": [{"of": [("x", [("y", time), ("z", None)])]}, None],
            "ids": [(7, ["s"])],
        },
        {"m": [], "deep": [], "ids": None},
        {"m": [("b", 2), ("c", 3)], "deep": [{"of": None}], "ids": None},
        {"m": [("k", 4)], "deep": None, "ids": [(-8, [])]},
    ]
    assert [row["where"] for row in rejected_of(source)] == [f"{path}:{n + 5}" for n in range(len(bad))]
    check_every_position(source, cuts=(1,))
    assert rows_of(read_json(path, schema=MAPS, on_error="skip", columns=["m"]))[2:] == [
        {"m": [("b", 2), ("c", 3)]}, {"m": [("k", 4)]}, {"m": None}, {"m": None}
    ]  # fmt: skip


@pytest.mark.parametrize("block_bytes", SIZES)
def test_values_are_read_as_the_text_they_have_if_the_schema_says_text(tmp_path: Path, block_bytes: int) -> None:
    texts = ['{"b": [1, {"c":  "\\u00e9}"}], "b": 2}', "[1, 2]", "18446744073709551616", "-0.10", "true", "NaN", "{}"]
    bad = [b'{"s": {"a" 1}}', b'{"s": [1}', b'{"s": nothing}', b'{"s": }', b'{"s": 01x}']
    path = write(tmp_path / "a.jsonl", *[f'{{"i": {n}, "s": {text} }}'.encode() for n, text in enumerate(texts)], *bad)
    types = {"s": pa.string(), "i": pa.int64()}
    source = read_json(path, schema=types, on_error="side", block_bytes=block_bytes)
    assert [row["s"] for row in rows_of(source)] == texts
    assert len(rejected_of(source)) == len(bad)
    path = write(tmp_path / "b.jsonl", {"s": None, "in": [{"t": {"a": 1}}, {"t": "x"}]}, {"s": 'a "quote"'}, {"s": {}})
    types = {"s": pa.dictionary(pa.int8(), pa.string()), "in": pa.list_(pa.struct({"t": pa.large_string()}))}
    expected = [(None, [{"t": '{"a": 1}'}, {"t": "x"}]), ('a "quote"', None), ("{}", None)]
    assert [(row["s"], row["in"]) for row in rows_of(read_json(path, schema=types))] == expected


def test_text_that_was_inferred_takes_no_other_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"s": "x"}, *[{"s": "y"}] * 50, {"s": {"a": 1}})
    assert rejected_of(read_json(path, on_error="side", block_bytes=100))[0]["where"] == f"{path}:52"


def test_the_advice_for_an_unexpected_field_works(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *[{"m": {"a": 1}}] * 20, {"m": {"b": 2}}, {"m": {"c": 3}})
    for schema in (None, {"m": pa.struct({"a": pa.int64()})}):
        with pytest.raises(
            SourceError, match=r"unexpected field 'm\.b': .*schema= adds it, or has 'm' as a map or as text"
        ):
            rows_of(read_json(path, schema=schema, block_bytes=30))
    for last, type_ in (([("c", 3)], MAPS["m"]), ('{"c": 3}', pa.string())):
        assert rows_of(read_json(path, schema={"m": type_}, block_bytes=30))[-1] == {"m": last}
    path = write(tmp_path / "b.jsonl", {"m": {"k": {"a": 1}}}, {"m": {"k": {"b": 1}}})
    nested = {"m": pa.map_(pa.string(), pa.struct({"a": pa.int64()}))}
    for columns in (None, ["m"]):
        with pytest.raises(SourceError, match=r"unexpected field 'm.*b'"):
            rows_of(read_json(path, schema=nested, columns=columns))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**37, 10**40, 10**90])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_the_advice_for_numbers_that_no_integer_type_holds_works(tmp_path: Path, name: str, number: int) -> None:
    read = read_json if name.endswith("jsonl") else op.read_csv
    path = tmp_path / name
    path.write_text(
        f"id,n\n{number},1\n1,2\n" if read is op.read_csv else f'{{"id":{number},"n":1}}\n{{"id":1,"n":2}}\n'
    )
    with pytest.raises(SourceError, match="name its type with schema=") as caught:
        read(path)
    types = re.findall(r"decimal128\(38, 0\)|string|float64$", str(caught.value).partition("such as ")[2])
    assert ("decimal128(38, 0)" in types) is (abs(number) < 10**38)
    values = [rows_of(read(path, schema={"id": type_, "n": "int64"}))[0]["id"] for type_ in types]
    assert values == [Decimal(number), str(number), float(number)][-len(types) :]
