"""CSV files as a source: the same rows as others read, from every position, and rows that are wrong."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import os
import pickle
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import fs

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, InputChanged, SchemaMismatch, SourceError, UnknownColumn
from dataflow.runners.faults import Faults
from operators import read_csv
from tests.operators.reading import CONTEXT, check_every_position, ends_of_batches, rejected_of, rows_of, table_of
from tests.seeds import seeds

SIZES = [1, 7, 64, 1 << 20]
TYPES = pa.schema(
    {
        "i": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "m": pa.decimal128(12, 3),
    }
)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def all_types(path: Path, rows: int = 40) -> Path:
    lines = ["i,f,s,b,d,t,m"]
    for n in range(rows):
        text = ['"two\nlines, ""quoted"""', '""', "", "größer ☃", "x" * 300][n % 5]
        values = [str(n), f"{n / 8 - 2}", text, "true" if n % 2 else "false", f"19{60 + n}-02-28"]
        values += [f"{1960 + n}-01-31T23:59:59.{n:06}", f"{n}.125"]
        lines.append(",".join("" if n % 7 == 3 and at != 2 else value for at, value in enumerate(values)))
    return write(path, "\n".join(lines))


@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_file_of_all_types_is_what_duckdb_reads(tmp_path: Path, block_bytes: int) -> None:
    path = all_types(tmp_path / "a.csv")
    names = "i: 'BIGINT', f: 'DOUBLE', s: 'VARCHAR', b: 'BOOLEAN', d: 'DATE', t: 'TIMESTAMP', m: 'DECIMAL(12,3)'"
    query = f"select * from read_csv('{path}', header=true, columns={{{names}}}, allow_quoted_nulls=false)"
    expected = duckdb.sql(query).to_arrow_table().cast(TYPES)
    assert table_of(read_csv(path, schema=TYPES, block_bytes=block_bytes)).equals(expected)


def test_inferred_types_give_what_polars_reads(tmp_path: Path) -> None:
    path = all_types(tmp_path / "a.csv")
    columns = ["i", "f", "b", "d"]
    expected = pl.read_csv(path, columns=columns, try_parse_dates=True)
    assert pl.from_arrow(table_of(read_csv(path, columns=columns))).equals(expected)  # type: ignore[arg-type]
    assert read_csv(path).schema.field("t").type == pa.timestamp("ns")


@pytest.mark.parametrize("block_bytes", SIZES)
def test_a_reader_at_any_position_gives_exactly_the_rest(tmp_path: Path, block_bytes: int) -> None:
    check_every_position(read_csv(all_types(tmp_path / "a.csv", 15), schema=TYPES, block_bytes=block_bytes))


BAD = 'i,s\n1,"a\nb"\nx,c\n2\n\n3,d,e\n4,\xff\n5,f\n6,"open\n7,g'


@pytest.mark.parametrize("block_bytes", SIZES)
def test_rows_that_are_wrong_are_set_aside_with_place_text_and_reason(tmp_path: Path, block_bytes: int) -> None:
    path = write(tmp_path / "a.csv", BAD.encode("latin-1"))
    source = read_csv(path, schema={"i": pa.int64()}, on_error="side", block_bytes=block_bytes)
    assert [row["i"] for row in rows_of(source)] == [1, 5, 7]
    assert [(str(row["where"]).rpartition(":")[2], row["row"]) for row in rejected_of(source)] == [
        ("4", "x,c"),
        ("5", "2"),
        ("7", "3,d,e"),
        ("8", "4,\\xff"),
        ("10", '6,"open'),
    ]
    reasons = " | ".join(str(row["error"]) for row in rejected_of(source))
    for part in ("column 'i': invalid value 'x' for int64", "expected 2 fields, found 1", "UTF8", "quote left open"):
        assert part in reasons
    check_every_position(source)


def test_a_block_size_of_another_run_changes_neither_rows_nor_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i\n" + "".join("x\n" if n % 3 == 0 else f"{n}\n" for n in range(30)))
    before, after = (read_csv(path, schema={"i": pa.int64()}, on_error="side", block_bytes=size) for size in (64, 7))
    (split,) = before.splits()
    reader = before.reader(split, None, CONTEXT)
    reader.poll(2)
    rest = after.reader(split, reader.offset, CONTEXT)
    assert rest.poll(1)["i"].to_pylist() == [4]  # type: ignore[index,union-attr]
    assert rest.rejected() is None


def test_a_row_that_is_wrong_ends_the_job_and_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i\n1\n2\nthree\n")
    with pytest.raises(SourceError, match=r"a\.csv:4: column 'i': invalid value 'three' for int64") as caught:
        rows_of(read_csv(path, schema={"i": pa.int64()}))
    assert "on_error='skip'" in str(caught.value.__notes__)


def test_a_value_that_does_not_fit_the_inferred_type_says_how_to_give_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i\n" + "1\n" * 10 + "n/a\n")
    with pytest.raises(SourceError, match=r"a\.csv:12: .*inferred from the first rows; schema= gives another"):
        rows_of(read_csv(path, block_bytes=8))


def test_skipped_rows_are_counted_once_whatever_crashes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i\n" + "".join("x\n" if n % 5 == 4 else f"{n}\n" for n in range(100)))
    with flow.Pipeline("skipping") as p:
        source = read_csv(path, schema={"i": pa.int64()}, on_error="skip", batch_rows=3, block_bytes=40)
        p.source(source, name="numbers").sink(op.collect(), name="out")
    result = p.run()
    assert result.table("out").num_rows == 80
    assert result.operator("numbers").skipped == 20


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_side_output_errors_has_each_wrong_row_once_through_crashes(tmp_path: Path, seed: int) -> None:
    for name in "abc":
        lines = ["x" if n % 4 == 1 else str(n) for n in range(40)]
        write(tmp_path / f"{name}.csv", "i\n" + "\n".join(lines))
    with flow.Pipeline("aside") as p:
        source = read_csv(tmp_path, schema={"i": pa.int64()}, on_error="side", batch_rows=3, block_bytes=30)
        numbers = p.source(source, name="numbers")
        numbers.sink(op.collect(), name="good")
        numbers.side("errors").sink(op.collect(), name="bad")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    checkpoints = flow.Checkpointing(flow.MemoryStore(), every="1ms")
    result = p.run(crashing, parallelism=2, checkpoint=checkpoints)
    assert sorted(result.table("good")["i"].to_pylist()) == sorted([n for n in range(40) if n % 4 != 1] * 3)
    places = result.table("bad")["where"].to_pylist()
    expected = [f"{tmp_path / name}.csv:{n + 2}" for name in "abc" for n in range(40) if n % 4 == 1]
    assert sorted(places) == sorted(expected)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_packed_files_are_unpacked_and_read_on_from_any_position(tmp_path: Path, suffix: str) -> None:
    plain = all_types(tmp_path / "plain" / "a.csv", 20)
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    write(tmp_path / "packed" / f"a.csv.{suffix}", pack[suffix](plain.read_bytes()))
    source = read_csv(tmp_path / "packed", schema=TYPES, block_bytes=300)
    assert table_of(source).equals(table_of(read_csv(plain, schema=TYPES)))
    check_every_position(source, cuts=(4,))


def test_a_packed_file_in_several_members_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"i\n1\n") + gzip.compress(b"2\n"))
    assert rows_of(read_csv(path)) == [{"i": 1}, {"i": 2}]


def test_a_packed_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    packed = gzip.compress(b"i\n" + b"".join(b"%d\n" % (n * n) for n in range(5000)))
    path = write(tmp_path / "a.csv.gz", packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=r"a\.csv\.gz.*good copy"):
        rows_of(read_csv(path, schema={"i": pa.int64()}, block_bytes=100))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("i\n1\n2", [1, 2]),
        ("i\r\n1\r\n2\r\n", [1, 2]),
        ("i\r1\r2\r", [1, 2]),
        ("\ufeffi\n1\n", [1]),
        ('\ufeff"i"\n1\n', [1]),
        ("\n\ni\n\n1\n\n\n2\n\n", [1, 2]),
        ("i\n", []),
        ("i", []),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_line_ends_marks_and_empty_lines_do_not_matter(
    tmp_path: Path, text: str, values: list[int], block_bytes: int
) -> None:
    source = read_csv(write(tmp_path / "a.csv", text), schema={"i": pa.int64()}, block_bytes=block_bytes)
    assert [row["i"] for row in rows_of(source)] == values


def test_an_empty_file_has_no_split_and_no_say(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "")
    with pytest.raises(SourceError, match="nothing to infer columns from; give schema="):
        read_csv(tmp_path)
    assert read_csv(tmp_path, schema={"i": pa.int64()}).splits() == ()
    write(tmp_path / "b.csv", "i\n")
    write(tmp_path / "c.csv", "i\n3\n")
    source = read_csv(tmp_path)
    assert (source.schema, rows_of(source)) == (pa.schema({"i": pa.int64()}), [{"i": 3}])


def test_a_column_without_values_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i,e\n1,\n")
    assert read_csv(path).schema.field("e").type == pa.string()


def test_an_empty_field_is_null_and_an_empty_quoted_one_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'i,s\n,\n1,""\nNA,NA\n')
    source = read_csv(path, null_values=["", "NA"])
    assert rows_of(source) == [{"i": None, "s": None}, {"i": 1, "s": ""}, {"i": None, "s": None}]


def test_files_may_order_their_columns_differently(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "i,s\n1,a\n")
    write(tmp_path / "b.csv", "s,i\nb,2\n")
    assert rows_of(read_csv(tmp_path)) == [{"i": 1, "s": "a"}, {"i": 2, "s": "b"}]


def test_files_with_other_columns_are_refused_unless_they_share_those_chosen(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "i,s\n1,a\n")
    write(tmp_path / "b.csv", "i,z\n2,b\n")
    with pytest.raises(SchemaMismatch, match=r"b\.csv'.*a\.csv'.*missing \['s'\], additional \['z'\]"):
        read_csv(tmp_path)
    assert rows_of(read_csv(tmp_path, columns=["i"])) == [{"i": 1}, {"i": 2}]


def test_columns_that_are_not_read_are_not_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i,s\nx,a\n")
    assert rows_of(read_csv(path, schema={"i": pa.int64()}).select(["s"])) == [{"s": "a"}]


def test_given_types_come_first_and_the_others_are_inferred(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "i,m,at\n1,1.50,2024-01-01T00:00:00Z\n")
    source = read_csv(path, schema={"m": pa.decimal128(5, 2)})
    assert source.schema.names == ["m", "i", "at"]
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert rows_of(source) == [{"m": Decimal("1.50"), "i": 1, "at": at}]
    with pytest.raises(UnknownColumn, match="did you mean 'm'"):
        read_csv(path, schema={"mm": pa.int64()})


def test_names_may_be_given_and_lines_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'a "comment\n1;x\n2;y\n')
    source = read_csv(path, column_names=["i", "s"], skip_rows=1, delimiter=";")
    assert rows_of(source) == [{"i": 1, "s": "x"}, {"i": 2, "s": "y"}]
    wrong = read_csv(path, schema={"i": pa.int64()}, column_names=["i", "s"], delimiter=";", on_error="side")
    assert rejected_of(wrong)[0]["where"] == f"{path}:1"


def test_times_may_have_a_format_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "t\n31.12.2023 10:00\n2024-01-01 11:00:00\n")
    source = read_csv(path, schema={"t": pa.timestamp("us")}, timestamp_parsers=["%d.%m.%Y %H:%M"])
    assert [row["t"] for row in rows_of(source)] == [dt.datetime(2023, 12, 31, 10), dt.datetime(2024, 1, 1, 11)]


def test_text_in_another_encoding_is_decoded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "größe,s\n1,é\n2,ü\n".encode("cp1252"))
    source = read_csv(path, encoding="cp1252", block_bytes=1)
    assert rows_of(source) == [{"größe": 1, "s": "é"}, {"größe": 2, "s": "ü"}]
    check_every_position(source)


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoding": "utf-16"},
        {"encoding": "klingon"},
        {"delimiter": ";;"},
        {"quote": ""},
        {"skip_rows": -1},
        {"batch_rows": 0},
        {"block_bytes": 0},
        {"on_error": "ignore"},
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        read_csv(write(tmp_path / "a.csv", "i\n1\n"), **wrong)  # type: ignore[arg-type]


def test_a_type_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="list<item: int64>"):
        read_csv(write(tmp_path / "a.csv", "x\n1\n"), schema={"x": pa.list_(pa.int64())})


def test_columns_of_one_name_are_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match=r"a\.csv.*\['x'\] occur more than once"):
        read_csv(write(tmp_path / "a.csv", "x,y,x\n1,2,3\n"))


def test_dictionaries_have_wide_indices(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "s\na\nb\na\n")
    source = read_csv(path, schema={"s": pa.dictionary(pa.int8(), pa.string())}, block_bytes=1)
    assert source.schema.field("s").type == pa.dictionary(pa.int32(), pa.string())
    assert [row["s"] for row in rows_of(source)] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text("i\n1\n2\n3\n"), "bytes"),
        (lambda path: path.write_text("i\n1\n3\n"), "content had hash"),
        (lambda path: path.unlink(), "cannot be read any more"),
    ],
)
def test_a_changed_file_is_found_by_check_and_by_a_reader(tmp_path: Path, change: object, message: str) -> None:
    path = write(tmp_path / "a.csv", "i\n1\n2\n")
    source = read_csv(path)
    (split,) = source.splits()
    change(path)  # type: ignore[operator]
    os.utime(path, (1, 1)) if path.exists() else None
    for use in (lambda: source.check(split), lambda: source.reader(split, None, CONTEXT)):
        with pytest.raises(InputChanged, match=message):
            use()


def test_a_source_pickles(tmp_path: Path) -> None:
    source = read_csv(all_types(tmp_path / "a.csv"), on_error="side").select(["i", "t"])
    assert rows_of(pickle.loads(pickle.dumps(source))) == rows_of(source)


def test_files_of_a_filesystem_are_read(tmp_path: Path) -> None:
    store = fs._MockFileSystem()
    for name, packed in (("a.csv", None), ("b.csv.gz", "gzip")):
        with store.open_output_stream(name, compression=packed) as out:
            out.write(b"i\n1\n2\n")
    source = read_csv("*.csv*", filesystem=store, block_bytes=1)
    assert rows_of(source) == [{"i": 1}, {"i": 2}] * 2
    check_every_position(source)


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_batches_end_where_they_do_however_they_are_cut(tmp_path: Path, cut: int) -> None:
    source = read_csv(write(tmp_path / "a.csv", "i\n" + "1\n" * 20), batch_rows=4, block_bytes=20)
    assert ends_of_batches(source, cut) == [4, 8, 10, 14, 18, 20]


@pytest.mark.parametrize(("text", "line", "byte"), [("größe,n\n1,2\n", 1, 2), ("s,n\na,1\ngröße,1\n", 3, 10)])
def test_text_in_another_encoding_is_named_by_file_line_and_byte(
    tmp_path: Path, text: str, line: int, byte: int
) -> None:
    path = write(tmp_path / "a.csv", text.encode("latin-1"))
    said = rf"a\.csv:{line}: .*byte 0xf6 at byte {byte} of the file is not utf-8.*encoding=, such as 'latin-1'"
    with pytest.raises(SourceError, match=said):
        rows_of(read_csv(path))
    assert "größe" in str(rows_of(read_csv(path, encoding="latin-1", block_bytes=8)))
    check_every_position(read_csv(path, encoding="latin-1", schema={"n": pa.int64()}, block_bytes=8))
