"""A directory of output keeps its format: other sinks, restores and lists of commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointMismatch, DirectoryInUse, GraphError, OutputExists, StoreError
from operators.sinks.files import FileSink
from tests.operators.odd_tables import ODD
from tests.operators.sinks.test_parquet_sink import run


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


@pytest.mark.parametrize(
    "call", [lambda sink: sink.hold("run").__enter__(), lambda sink: sink.begin(), lambda sink: sink.recover(1, [])]
)
def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path, call: Callable[[FileSink], Any]) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    with pytest.raises(StoreError, match=rf"cannot make {path}: it is a file, expected a directory; move it, or"):
        call(op.write_parquet(path))
    assert path.read_text() == "mine"


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


def test_a_format_of_a_newer_version_is_named(tmp_path: Path) -> None:
    run(op.write_ipc(tmp_path), X.to_batches(), X.schema)
    listing = tmp_path / "_commits" / "1.json"
    listing.write_text(listing.read_text().replace('"ipc"', '"orc"'))
    with pytest.raises(StoreError, match=r"format 'orc' are unknown here \(known: parquet, csv, json, ipc\)"):
        op.read_committed(tmp_path)
