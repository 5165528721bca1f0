"""The Arrow IPC sink: dictionaries, compression, and what independent readers make of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest

import operators as op
from operators.sinks.files import committed_files
from tests.operators.kinds import KINDS
from tests.operators.odd_tables import written
from tests.operators.sinks.test_parquet_sink import run


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
