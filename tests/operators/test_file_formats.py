"""Common rules of all file sinks: types, nulls, options, names of files, and the rows that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Guarantee
from dataflow.errors import ConfigurationError, SchemaMismatch, StoreError
from tests.operators.kinds import KINDS, Kind
from tests.operators.odd_tables import NESTED, ODD, UNSPEAKABLE, WRITERS, columns, nested, written
from tests.operators.sinks.test_parquet_sink import run


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


@pytest.mark.parametrize(
    ("writer", "types"), [(op.write_csv, UNSPEAKABLE | NESTED), (op.write_json, UNSPEAKABLE)], ids=["csv", "json"]
)
def test_what_text_cannot_hold_is_refused_while_the_graph_is_built(writer: Any, types: dict[str, pa.DataType]) -> None:
    for name, type_ in types.items():
        with pytest.raises(SchemaMismatch, match=rf"cannot hold column '{name}' of type .*cast it"):
            writer("nowhere").check(pa.schema([("x", pa.int64()), (name, type_)]))


def test_a_pipeline_says_so_before_it_runs(tmp_path: Path) -> None:
    with flow.Pipeline("bytes") as p:
        rows = p.source(op.from_arrow(pa.table({"blob": [b"x"]})), name="in")
        with pytest.raises(SchemaMismatch, match=r"write_json\(.*cannot hold column 'blob' of type binary"):
            rows.sink(op.write_json(tmp_path))
        rows.sink(op.write_ipc(tmp_path))


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(("names", "said"), [([], "no columns"), (["a", "a"], r"\['a'\] appear more than once")])
def test_columns_must_be_there_and_differ(writer: Any, names: list[str], said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        writer("nowhere").check(pa.schema([(name, pa.int64()) for name in names]))


@pytest.mark.parametrize(
    ("writer", "wrong", "said"),
    [
        (op.write_csv, {"delimiter": "||"}, r"delimiter='\|\|'"),
        (op.write_csv, {"delimiter": '"'}, "does not take delimiter"),
        (op.write_csv, {"null_text": 'a"'}, "null_text="),
        (op.write_csv, {"null_text": "a,b"}, "null_text="),
        (op.write_csv, {"quoting": "some"}, "quoting= must be one of"),
        (op.write_csv, {"compression": "lz4"}, r"compression= must be one of \('none', 'gzip', 'zstd'\)"),
        (op.write_json, {"compression": "rar"}, "compression= must be one of"),
        (op.write_ipc, {"compression": "gzip"}, r"compression= must be one of \('lz4', 'zstd', 'none'\)"),
        (op.write_ipc, {"if_exists": "ignore"}, "if_exists= must be one of"),
        (op.write_ipc, {"batch_rows": 0}, "at least 1 row"),
    ],
)
def test_wrong_options_are_refused(writer: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        writer("nowhere", **wrong)


def test_a_row_wider_than_a_block_is_read_again(tmp_path: Path) -> None:
    table = pa.table({"x": ["a" * 3_000_000, "b", None]})
    for name, writer in WRITERS.items():
        written(writer(tmp_path / name), tmp_path / name, table)
        assert op.read_committed(tmp_path / name).equals(table), name


@pytest.mark.parametrize("writer", [op.write_csv, op.write_json])
@pytest.mark.parametrize("far", [pa.array([2**62], pa.timestamp("us", "UTC")), pa.array([-(2**31)], pa.date32())])
def test_a_year_that_no_text_holds_stops_the_job_and_names_the_column(tmp_path: Path, writer: Any, far: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'when' of type .* has .*, and text files hold the years 0001 to"):
        written(writer(tmp_path), tmp_path, pa.table({"when": far}))


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


def test_output_of_no_rows_says_so(tmp_path: Path) -> None:
    with flow.Pipeline("none") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").filter(col("x") > 1).sink(op.write_parquet(tmp_path))
    p.run()
    with pytest.raises(StoreError, match=r"no rows are committed there.*a sink writes no file for no rows"):
        op.read_committed(tmp_path)
