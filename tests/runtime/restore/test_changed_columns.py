"""An aggregate is added to a job that writes files: the columns of its sinks change, and all are read together."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, PipelineChangedWarning, StoreError
from operators.sinks.changed_columns import ChangedColumns
from operators.sinks.files import FileSink

ROWS = pa.table({"k": [f"k{i % 3}" for i in range(240)], "x": range(240)})
MOST = col("x").max().alias("most")
pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.BarrierflowWarning")


def sinks(path: Path) -> dict[str, FileSink]:
    return {
        "parquet": op.write_parquet(path / "parquet"),
        "folders": op.write_parquet(path / "folders", partition_by="k"),
        "json": op.write_json(path / "json"),
        "csv": op.write_csv(path / "csv"),
        "ipc": op.write_ipc(path / "ipc"),
    }


def run(path: Path, aggregations: Any, to: Mapping[str, Any], parallelism: int = 2, **options: Any) -> flow.RunResult:
    with flow.Pipeline("changing") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=10), name="in")
        counts = rows.key_by("k").agg(*aggregations, emit="updates", name="counts")
        for name, sink in to.items():
            counts.sink(sink, name=name)
    settings = flow.Checkpointing(path / "ckpt", every="3ms", keep=90)
    return p.run(flow.SimulatedRunner(3), parallelism=parallelism, checkpoint=settings, **options)


def middle(result: flow.RunResult) -> int:
    return [record.checkpoint for record in result.checkpoints][len(result.checkpoints) // 2]


def rows_of(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in table.select(["k", "n", "most"]).to_pylist()), key=repr)


def test_files_with_the_columns_of_both_pipelines_are_read_together(tmp_path: Path) -> None:
    files = sinks(tmp_path)
    restored = middle(run(tmp_path, [op.count().alias("n")], {**files, "rows": op.collect()}))
    result = run(tmp_path, [MOST, op.count().alias("n")], {**files, "rows": op.collect()}, 3, restore=restored)
    report = result.restore_report
    assert report is not None
    changed = {f"{change.operator}.{change.piece}" for change in report.evolved}
    assert changed == {"counts.most", *[f"{name}.most" for name in (*files, "rows")]}
    (warning,) = [w for w in result.warnings if isinstance(w, PipelineChangedWarning)]
    assert str(warning).startswith(f"{len(changed)} times: ")
    expected = rows_of(result.table("rows"))
    nulls = result.table("rows")["most"].null_count
    assert 0 < nulls < len(expected)
    for name in files:
        committed = op.read_committed(tmp_path / name)
        assert committed.column_names == (["k", "most", "n"] if name != "folders" else committed.column_names)
        assert rows_of(committed) == expected, name
        (since, *ways) = result.read_hints[name]
        assert since == f"columns changed at checkpoint {restored + 1}"
        assert all(way in str(result) for way in ways)
        for way in ways:
            reader, _, code = way.partition(": ")
            table = eval(code, {"pl": pl, "glob": glob}).to_arrow() if reader == "polars" else _of_duckdb(code)
            assert rows_of(table) == expected, way
    third = run(tmp_path, [MOST], files, 2, restore=middle(result), allow_dropped=_dropped(files))
    assert third.restore_report is not None
    assert {change.what for change in third.restore_report.evolved if change.operator == "csv"} == {
        "column dropped; earlier rows keep it"
    }
    assert op.read_committed(tmp_path / "csv").column_names == ["k", "most", "n"]
    noted = ChangedColumns(tmp_path / "csv" / "_commits", sinks(tmp_path)["csv"]._files)
    assert [change.columns for change in noted.all()] == [("k", "most", "n"), ("k", "most")]
    run(tmp_path, [op.count().alias("n")], {**files, "rows": op.collect()}, restore=restored)
    assert op.read_committed(tmp_path / "json").column_names == ["k", "n"], "an older checkpoint, the older pipeline"
    assert not noted.all()


def _dropped(files: Mapping[str, Any]) -> list[str]:
    return ["counts.n", "rows", *[f"{name}.n" for name in files]]


def _of_duckdb(code: str) -> pa.Table:
    return pa.Table.from_batches(duckdb.sql(code).to_arrow_reader())


class Swallow(flow.Operator):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        """Do nothing."""


class Own(flow.Sink):
    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return Swallow(context)


def signed(path: Path, *, more: bool, **options: Any) -> flow.RunResult:
    aggregations = [op.count().alias("n"), *([MOST] if more else [])]
    with flow.Pipeline("changing") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=10), name="in")
        rows.key_by("k").agg(*aggregations, emit="changes", name="counts").sink(op.collect(net=True), name="net")
    settings = flow.Checkpointing(path / "ckpt", every="3ms", keep=90)
    return p.run(flow.SimulatedRunner(3), checkpoint=settings, **options)


def test_a_sink_that_cannot_take_other_columns_says_so_and_what_to_do(tmp_path: Path) -> None:
    refused: dict[str, Any] = {"csv": op.write_csv(tmp_path / "csv", header=False), "own": Own()}
    for name, sink in refused.items():
        ids = middle(run(tmp_path / name, [op.count().alias("n")], {name: sink}))
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != "FENCE"}
        with pytest.raises(CheckpointMismatch, match=r"without a header|takes rows of the same columns only"):
            run(tmp_path / name, [op.count().alias("n"), MOST], {name: sink}, restore=ids)
        assert {path for path in before if path.is_file()} <= {*tmp_path.rglob("*")}
    ids = middle(signed(tmp_path / "net", more=False))
    with pytest.raises(CheckpointMismatch, match=r"collect\(net=True\) adds up equal rows"):
        signed(tmp_path / "net", more=True, restore=ids)


def test_a_damaged_note_of_changed_columns_is_an_error_with_its_path(tmp_path: Path) -> None:
    sink = op.write_parquet(tmp_path)
    sink.begin()
    sink.change_columns(7, ["a"])
    sink.change_columns(7, ["b"])
    (tmp_path / "_commits" / "columns.json").write_text("{}")
    with pytest.raises(StoreError, match=r"columns\.json: expected changes of columns"):
        _ = sink.read_hint
