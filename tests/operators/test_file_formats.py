"""What the file sinks write in each format: types, nulls, quotes, and what independent readers make of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.errors import (
    CheckpointMismatch,
    ConfigurationError,
    DirectoryInUse,
    GraphError,
    OutputExists,
    SchemaMismatch,
    SinkBroken,
    StoreError,
)
from dataflow.operator import Guarantee, OperatorContext
from operators.sinks.files import FileSink, committed_files
from operators.sinks.json_text import json_text
from tests.operators.kinds import KINDS, Kind
from tests.operators.test_parquet_sink import run

WRITERS = {"csv": op.write_csv, "json": op.write_json, "ipc": op.write_ipc}


def columns() -> dict[str, pa.Array]:
    """A column of each flat type: a value, a null, an extreme."""
    found: dict[str, pa.Array] = {}
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = pa.array([1, None, -(2 ** (bits - 1))], f"int{bits}")
        found[f"uint{bits}"] = pa.array([1, None, 2**bits - 1], f"uint{bits}")
    found |= {f"float{bits}": pa.array([1.5, None, -0.0], f"float{bits}") for bits in (16, 32, 64)}
    texts = (pa.string(), pa.large_string(), pa.string_view())
    found |= {str(type_): pa.array(['a,"b"\r\n\\ü\x01\t😀', None, ""], type_) for type_ in texts}
    for unit in ("s", "ms", "us", "ns"):
        found[f"timestamp {unit}"] = pa.array([1, None, -1], pa.timestamp(unit))
        found[f"zoned {unit}"] = pa.array([1, None, -1], pa.timestamp(unit, "Europe/Berlin"))
        found[f"duration {unit}"] = pa.array([1, None, -1], pa.duration(unit))
        found[f"time {unit}"] = pa.array([1, None, 3], (pa.time32 if unit in ("s", "ms") else pa.time64)(unit))
    decimals = [Decimal("1.50"), None, Decimal("-0.00000001")]
    return found | {
        "bool": pa.array([True, None, False]),
        "null": pa.nulls(3),
        "decimal128": pa.array(decimals, pa.decimal128(20, 8)),
        "decimal256": pa.array(decimals, pa.decimal256(50, 8)),
        "date32": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
        "date64": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date64()),
        "dictionary of text": pa.array(["b", None, ""]).dictionary_encode(),
        "dictionary of int": pa.array([7, None, 8]).dictionary_encode(),
        "dictionary of times": pa.array([1, None, 3], pa.timestamp("us", "Asia/Tokyo")).dictionary_encode(),
    }


def nested() -> dict[str, pa.Array]:
    """Columns with values inside values."""
    pairs = pa.map_(pa.decimal128(5, 2), pa.date32())
    deep = pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.time32("s"))))]))
    lists = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
    return {
        **{str(of(pa.int64())): pa.array([[1, None], None, []], of(pa.int64())) for of in lists},
        "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        "struct": pa.array([{"a": 1, 'b"': "x"}, None, {"a": None, 'b"': None}]),
        "empty struct": pa.array([{}, None, {}], pa.struct([])),
        "map": pa.array([[(Decimal("1.5"), date(2020, 1, 1))], None, []], pairs),
        "deep": pa.array([[{"m": [(1, [time(1)])]}], None, [None]], deep),
        "dictionaries": pa.array([["a"], None, ["b", None]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "runs": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8())),
    }


def in_batches(name: str, column: pa.Array) -> list[pa.RecordBatch]:
    """All rows, one row, no row, and the last two."""
    whole = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3])], [name, "n"])
    return [whole, whole.slice(1, 1), whole.slice(0, 0), whole.slice(1, 2)]


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("kind", ["csv", "json", "ipc", "csv.gz", "json.zst"])
def test_every_flat_type_comes_back_as_it_went_in(tmp_path: Path, kind: str, rows: int) -> None:
    for name, column in columns().items():
        batches = in_batches(name, column)
        run(KINDS[kind].sink(tmp_path / name, rows=rows), batches, batches[0].schema)
        assert op.read_committed(tmp_path / name).equals(pa.Table.from_batches(batches)), name


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("kind", ["json", "ipc"])
def test_every_nested_type_comes_back_as_it_went_in(tmp_path: Path, kind: str, rows: int) -> None:
    for name, column in nested().items():
        batches = in_batches(name, column)
        run(KINDS[kind].sink(tmp_path / name, rows=rows), batches, batches[0].schema)
        back = op.read_committed(tmp_path / name)
        assert back.schema == batches[0].schema, name
        assert back.to_pylist() == pa.Table.from_batches(batches).to_pylist(), name


BYTES = {"b": pa.binary(), "f": pa.binary(2), "v": pa.binary_view(), "uuid": pa.uuid()}
UNSPEAKABLE = BYTES | {"i": pa.month_day_nano_interval(), "u": pa.sparse_union([pa.field("x", pa.int64())])}
NESTED = {name: column.type for name, column in nested().items()}


@pytest.mark.parametrize(
    ("writer", "types"), [(op.write_csv, UNSPEAKABLE | NESTED), (op.write_json, UNSPEAKABLE)], ids=["csv", "json"]
)
def test_what_text_cannot_hold_is_refused_while_the_graph_is_built(writer: Any, types: dict[str, pa.DataType]) -> None:
    for name, type_ in types.items():
        with pytest.raises(SchemaMismatch, match=rf"no place for column '{name}' of type .*cast it"):
            writer("nowhere").check(pa.schema([("x", pa.int64()), (name, type_)]))


def test_a_pipeline_says_so_before_it_runs(tmp_path: Path) -> None:
    with flow.Pipeline("bytes") as p:
        rows = p.source(op.from_arrow(pa.table({"blob": [b"x"]})), name="in")
        with pytest.raises(SchemaMismatch, match=r"write_json\(.*no place for column 'blob' of type binary"):
            rows.sink(op.write_json(tmp_path))
        rows.sink(op.write_ipc(tmp_path))


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(("names", "said"), [([], "no columns"), (["a", "a"], r"\['a'\] appear more than once")])
def test_columns_must_be_there_and_differ(writer: Any, names: list[str], said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        writer("nowhere").check(pa.schema([(name, pa.int64()) for name in names]))


# CSV

ODD = pa.table(
    {
        "text": ["plain", 'a,"b"\nnext', "ü 😀", None, ""],
        "int": [1, None, -(2**63), 2**63 - 1, 0],
        "float": [1.5, None, float("nan"), float("-inf"), 1e300],
        "at": pa.array([1, None, -1, 0, 1577836800000001], pa.timestamp("us", "Asia/Tokyo")),
    }
)
AS_TEXT = [
    ("plain", "1", "1.5", "1970-01-01 00:00:00.000001Z"),
    ('a,"b"\nnext', None, None, None),
    ("ü 😀", str(-(2**63)), "nan", "1969-12-31 23:59:59.999999Z"),
    (None, str(2**63 - 1), "-inf", "1970-01-01 00:00:00.000000Z"),
    ("", "0", "1e+300", "2020-01-01 00:00:00.000001Z"),
]


def written(sink: FileSink, path: Path, table: pa.Table = ODD) -> Path:
    """The one file that ``sink``, which writes into ``path``, makes of ``table``."""
    run(sink, table.to_batches(), table.schema)
    (file,) = committed_files(path)
    return file


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


@pytest.mark.parametrize(
    ("writer", "wrong", "said"),
    [
        (op.write_csv, {"delimiter": "||"}, r"delimiter='\|\|'"),
        (op.write_csv, {"delimiter": '"'}, "does not take delimiter"),
        (op.write_csv, {"null_text": 'a"'}, "null_text="),
        (op.write_csv, {"null_text": "a,b"}, "null_text="),
        (op.write_csv, {"quoting": "some"}, "quoting= is one of"),
        (op.write_csv, {"compression": "lz4"}, r"compression= is one of \('none', 'gzip', 'zstd'\)"),
        (op.write_json, {"compression": "rar"}, "compression= is one of"),
        (op.write_ipc, {"compression": "gzip"}, r"compression= is one of \('lz4', 'zstd', 'none'\)"),
        (op.write_ipc, {"if_exists": "ignore"}, "if_exists= is one of"),
        (op.write_ipc, {"batch_rows": 0}, "a row at least"),
    ],
)
def test_wrong_options_are_refused(writer: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        writer("nowhere", **wrong)


# JSON lines


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


def test_a_row_wider_than_a_block_is_read_again(tmp_path: Path) -> None:
    table = pa.table({"x": ["a" * 3_000_000, "b", None]})
    for name, writer in WRITERS.items():
        written(writer(tmp_path / name), tmp_path / name, table)
        assert op.read_committed(tmp_path / name).equals(table), name


def test_nested_values_are_arrays_and_objects() -> None:
    texts = {name: json_text(column, name)[0].as_py() for name, column in nested().items()}
    assert texts["fixed"] == "[1,2]"
    assert texts["struct"] == '{"a":1,"b\\"":"x"}'
    assert texts["map"] == '[{"key":"1.50","value":"2020-01-01"}]'
    assert texts["deep"] == '[{"m":[{"key":1,"value":["01:00:00"]}]}]'


@pytest.mark.parametrize("writer", [op.write_csv, op.write_json])
@pytest.mark.parametrize("far", [pa.array([2**62], pa.timestamp("us", "UTC")), pa.array([-(2**31)], pa.date32())])
def test_a_year_that_no_text_holds_stops_the_job_and_names_the_column(tmp_path: Path, writer: Any, far: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'when' of type .* has .*, and text files hold the years 0001 to"):
        written(writer(tmp_path), tmp_path, pa.table({"when": far}))


# Arrow IPC


def test_pandas_and_polars_read_ipc_files_with_their_dictionaries(tmp_path: Path) -> None:
    table = pa.table({"word": pa.array(["a", None, "b"]).dictionary_encode(), "n": [1, 2, None]})
    file = written(op.write_ipc(tmp_path), tmp_path, table)
    assert feather.read_table(file).equals(table)
    assert pd.read_feather(file)["word"].tolist()[::2] == ["a", "b"]
    assert pl.read_ipc(file).rows() == [("a", 1), (None, 2), ("b", None)]


def test_a_dictionary_that_grows_begins_another_file_that_polars_can_read(tmp_path: Path) -> None:
    words = [["a", "b"], ["b", None], ["b", "c"], ["c"], ["a"]]
    batches = [pa.record_batch({"word": pa.array(w).dictionary_encode()}) for w in words]
    handles = run(KINDS["ipc"].sink(tmp_path), batches, batches[0].schema)
    rows = [row["word"] for file in committed_files(tmp_path) for row in pl.read_ipc(file).to_dicts()]
    assert [handle["rows"] for handle in handles] == [4, 4]
    assert rows == [word for batch in words for word in batch]


def test_values_that_never_repeat_are_not_carried_on_for_ever(tmp_path: Path) -> None:
    batches = [pa.record_batch({"id": pa.array(range(n, n + 1000)).dictionary_encode()}) for n in range(0, 5000, 1000)]
    run(KINDS["ipc"].sink(tmp_path, rows=1000), batches, batches[0].schema)
    files = committed_files(tmp_path)
    dictionaries = [pa.ipc.open_file(file).read_all()["id"].chunk(0).dictionary for file in files]
    assert max(map(len, dictionaries)) <= 2000
    assert op.read_committed(tmp_path)["id"].cast(pa.int64()).to_pylist() == list(range(5000))


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_ipc_files_are_compressed_as_asked(tmp_path: Path, compression: Any) -> None:
    table = pa.table({"x": [0] * 10_000})
    file = written(op.write_ipc(tmp_path, compression=compression), tmp_path, table)
    assert (file.stat().st_size > 80_000) == (compression == "none")
    assert pl.read_ipc(file)["x"].to_list() == [0] * 10_000


# All formats


@pytest.mark.parametrize(
    ("sink", "suffix"),
    [
        (op.write_csv, ".csv"),
        (lambda path: op.write_csv(path, compression="gzip"), ".csv.gz"),
        (lambda path: op.write_json(path, compression="zstd"), ".jsonl.zst"),
        (op.write_json, ".jsonl"),
        (op.write_ipc, ".arrow"),
    ],
)
def test_names_follow_from_checkpoint_subtask_and_format(tmp_path: Path, sink: Any, suffix: str) -> None:
    assert written(sink(tmp_path), tmp_path).name == f"part-00000001-00000-0000{suffix}"
    assert sink(tmp_path).guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_staged_ends_like_data(tmp_path: Path, kind: str) -> None:
    sink = KINDS[kind].sink(tmp_path)
    sink.begin()
    writer = sink.writer(
        OperatorContext("out", 0, 1, (ODD.schema,), ODD.schema, range(1), 1, None, ManualClock(), print)
    )
    writer.process(0, ODD.to_batches()[0], None)
    handles = writer.prepare(1)
    assert KINDS[kind].files(tmp_path) == []
    sink.commit(1, handles)
    writer.close()
    assert len(KINDS[kind].files(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["csv", "json", "ipc"])
def test_a_job_without_rows_leaves_no_file(tmp_path: Path, kind: str) -> None:
    assert run(KINDS[kind].sink(tmp_path), [ODD.to_batches()[0].slice(0, 0)], ODD.schema) == []
    assert KINDS[kind].files(tmp_path) == []


def test_two_sinks_of_different_formats_may_not_share_a_directory(tmp_path: Path) -> None:
    p = flow.Pipeline("two")
    rows = p.source(op.from_arrow(ODD), name="in")
    rows.sink(op.write_csv(tmp_path / "out"), name="a")
    rows.sink(op.write_json(tmp_path / "x" / ".." / "out"), name="b")
    with pytest.raises(GraphError, match="sinks 'a' and 'b' both write to"):
        p.graph.validate()


def test_two_jobs_of_different_formats_may_not_share_a_directory(tmp_path: Path) -> None:
    lock = op.write_json(tmp_path).hold("second")
    with op.write_csv(tmp_path).hold("first"), pytest.raises(DirectoryInUse, match="first"), lock:
        pass


X = pa.table({"x": [1, 2, 3]})


def test_a_directory_keeps_its_format(tmp_path: Path) -> None:
    handles = run(op.write_csv(tmp_path), X.to_batches(), X.schema)
    with pytest.raises(OutputExists, match=r"already holds 1 JSON files \(part-00000001-00000-0000\.csv"):
        op.write_json(tmp_path).begin()
    other = r"output in another format \(part-00000001-00000-0000\.csv\), and this sink writes JSON"
    with pytest.raises(OutputExists, match=other):
        op.write_json(tmp_path, if_exists="append").begin()
    with pytest.raises(OutputExists, match=other):
        op.write_json(tmp_path).recover(1, handles)
    with pytest.raises(OutputExists, match=other):
        op.write_json(tmp_path / "elsewhere").recover(1, handles)
    assert op.read_committed(tmp_path).equals(X)


def test_a_checkpoint_of_another_format_is_not_restored(tmp_path: Path) -> None:
    def pipeline(sink: FileSink) -> flow.Pipeline:
        with flow.Pipeline("x") as p:
            p.source(op.from_arrow(X), name="in").sink(sink, name="out")
        return p

    kept = flow.Checkpointing(tmp_path / "ckpt")
    pipeline(op.write_csv(tmp_path / "out")).run(checkpoint=kept)
    with pytest.raises(CheckpointMismatch, match=r"CsvSink.*JsonLinesSink"):
        pipeline(op.write_json(tmp_path / "out")).run(checkpoint=kept)
    assert op.read_committed(tmp_path / "out").equals(X)


def test_options_may_change_between_appends(tmp_path: Path) -> None:
    sinks: Sequence[dict[str, Any]] = [{}, {"delimiter": ";", "header": False}, {"compression": "gzip"}]
    for options in sinks:
        run(op.write_csv(tmp_path, if_exists="append", **options), X.to_batches(), X.schema)
    assert op.read_committed(tmp_path)["x"].to_pylist() == [1, 2, 3] * 3


def test_half_a_commit_in_the_same_format_but_another_compression_is_taken_back(tmp_path: Path) -> None:
    run(op.write_csv(tmp_path), X.to_batches(), X.schema, checkpoint=5)
    (tmp_path / "_commits" / "5.json").unlink()
    op.write_csv(tmp_path, compression="gzip").recover(4, [])
    assert list(tmp_path.glob("part-*")) == []


def test_overwriting_replaces_output_of_any_format(tmp_path: Path) -> None:
    run(op.write_csv(tmp_path), X.to_batches(), X.schema)
    run(op.write_json(tmp_path, if_exists="overwrite"), X.to_batches(), X.schema)
    assert [file.name for file in tmp_path.glob("part-*")] == ["part-00000001-00000-0000.jsonl"]


def test_the_commit_lists_of_parquet_are_as_they_were_before_there_were_formats(tmp_path: Path) -> None:
    handles = run(op.write_parquet(tmp_path), X.to_batches(), X.schema)
    (listed,) = json.loads((tmp_path / "_commits" / "1.json").read_text())["files"]
    assert list(listed) == ["file", "rows", "size", "xxh3", "run"]
    assert set(handles[0]) == {*listed, "staged"}


def test_a_format_of_a_newer_version_is_said(tmp_path: Path) -> None:
    run(op.write_ipc(tmp_path), X.to_batches(), X.schema)
    listing = tmp_path / "_commits" / "1.json"
    listing.write_text(listing.read_text().replace('"ipc"', '"orc"'))
    with pytest.raises(StoreError, match=r"format 'orc' are unknown here \(known: parquet, csv, json, ipc\)"):
        op.read_committed(tmp_path)


@pytest.mark.parametrize("writer", [*WRITERS.values(), op.write_parquet])
def test_a_url_is_refused(writer: Any) -> None:
    with pytest.raises(ConfigurationError, match="object stores and other URLs are not supported"):
        writer("s3://bucket/out")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_all_readers_see_the_rows_of_a_job_that_crashed_and_was_restored(tmp_path: Path, kind: Kind) -> None:
    with flow.Pipeline("rows") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(200)}), batch_rows=3, splits=2), name="in")
        rows.sink(kind.sink(tmp_path / "out"), name="out")
    runner = flow.SimulatedRunner(seed=5, faults=flow.runners.faults.Faults(crashes=3))
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms"))
    assert result.guarantee is Guarantee.EXACTLY_ONCE
    for reader in kind.readers:
        assert sorted(row["x"] for row in kind.read(reader, tmp_path / "out")) == list(range(200)), reader
    assert sorted(op.read_committed(tmp_path / "out")["x"].to_pylist()) == list(range(200))


def test_python_reads_the_csv_too(tmp_path: Path) -> None:
    text = written(op.write_csv(tmp_path), tmp_path).read_text(encoding="utf-8")
    assert list(csv.reader(io.StringIO(text)))[1:] == [[x or "" for x in row] for row in AS_TEXT]


def test_the_json_of_a_slice_is_a_slice_of_the_json() -> None:
    for name, column in (columns() | nested()).items():
        whole = json_text(column, name).to_pylist()
        for start in range(len(column) + 1):
            assert json_text(column[start:], name).to_pylist() == whole[start:], name
            assert json_text(column[:start], name).to_pylist() == whole[:start], name


def test_output_of_no_rows_says_so(tmp_path: Path) -> None:
    with flow.Pipeline("none") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").filter(col("x") > 1).sink(op.write_parquet(tmp_path))
    p.run()
    with pytest.raises(StoreError, match=r"no rows are committed there.*a sink writes no file for no rows"):
        op.read_committed(tmp_path)
