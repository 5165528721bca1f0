"""Jobs over a watched directory read each row once, through crashes and stops."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

import dataflow as flow
import operators as op
from dataflow.contracts.source import Source
from dataflow.runners.faults import Faults
from operators import read_csv, read_ipc, read_json, read_parquet, watch
from tests.operators.sources.until_quiet import UntilQuiet
from tests.operators.sources.watched import bring, first_names
from tests.operators.sources.watching import put
from tests.seeds import seeds


def write_csv(path: Path, table: pa.Table) -> None:
    path.write_text("x\n" + "".join(f"{x}\n" for x in table["x"].to_pylist()))


def write_json(path: Path, table: pa.Table) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_ipc(path: Path, table: pa.Table) -> None:
    with ipc.new_file(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=4)


def write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=4)


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize(
    ("write", "read"),
    [(write_csv, read_csv), (write_json, read_json), (write_ipc, read_ipc), (write_parquet, read_parquet)],
)
def test_each_row_of_each_format_comes_once_through_crashes(
    tmp_path: Path, write: Callable[[Path, pa.Table], None], read: Callable[..., Source], seed: int
) -> None:
    for index in range(5):
        write(tmp_path / f"{index}.data", pa.table({"x": range(10 * index, 10 * index + 10)}))
    source = watch(tmp_path, read, pattern="*.data", splits=2)
    with flow.Pipeline("watched") as p:
        p.source(UntilQuiet(source), name="rows").sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    result = p.run(crashing, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("out")["x"].to_pylist()) == list(range(50))


def test_a_running_job_reads_new_files_and_resumes_after_a_stop(tmp_path: Path) -> None:
    inbox, seen = tmp_path / "inbox", {1: threading.Event(), 2: threading.Event()}
    inbox.mkdir()

    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        for x in batch["x"].to_pylist():
            seen[x].set()
        return batch

    with flow.Pipeline("inbox") as p:
        source = watch(inbox, read_csv, schema={"x": pa.int64()}, every="5ms")
        p.source(source, name="files").map_batches(tell, name="tell").sink(op.collect(), name="out")
    checkpoints = flow.Checkpointing(tmp_path / "checkpoints", every="10ms")
    for x in (1, 2):
        with p.start(checkpoint=checkpoints, restore="auto") as job:
            put(inbox, f"{x}.csv", x, at=x)
            assert seen[x].wait(30)
            result = job.stop()
    assert result.table("out")["x"].to_pylist() == [1, 2]
    assert result.operator("files").rows_out == 1


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_files_of_any_age_that_come_at_any_moment_are_read_once_through_crashes(tmp_path: Path, seed: int) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for index in range(8):
        (tmp_path / f"{index}").mkdir()
        put(
            inbox if index < 2 else tmp_path / f"{index}",
            f"{index}.csv",
            *range(5 * index, 5 * index + 5),
            at=9 - index,
        )

    def bring_older(batch: pa.RecordBatch) -> pa.RecordBatch:
        bring(tmp_path / f"{batch['x'][0].as_py() // 3 % 6 + 2}", inbox)
        return batch

    with flow.Pipeline("watched") as p:
        files = p.source(first_names(inbox, 8), name="files").map_batches(bring_older, name="bring")
        files.sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=4))
    result = p.run(crashing, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("out")["x"].to_pylist()) == list(range(40))
