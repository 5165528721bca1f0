"""A disk that is full while a job runs: the checkpoint fails, the job goes on, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointError
from dataflow.runners.run_result import RunResult
from operators.sinks.parquet import read_committed
from tests.reality.disks import FullDisk
from tests.reality.harness import spawn

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.BarrierflowWarning")

NUMBERS = pa.table({"n": range(2_000)})
LIMITED = Path(__file__).with_name("limited.py")


def run(work: Path, disk: FullDisk, *, rate: int = 20_000) -> RunResult:
    """2,000 numbers at ``rate`` a second, with a checkpoint every 8 ms, store and sink on ``disk``."""

    def armed(batch: pa.RecordBatch) -> pa.RecordBatch:
        disk.armed = True
        return batch

    with flow.Pipeline("numbers") as p:
        numbers = p.source(op.paced(op.from_arrow(NUMBERS), rate), name="numbers").map_batches(armed)
        numbers.sink(op.write_parquet(work / "out", files=disk), name="out")
    store = flow.DirectoryStore(work / "ckpt", files=disk)
    return p.run(checkpoint=flow.Checkpointing(store, every="8ms"))


def numbers(work: Path) -> list[int]:
    """The committed numbers, in order."""
    return sorted(read_committed(work / "out")["n"].to_pylist())


def once(at: int) -> Callable[[int, str], bool]:
    """Refuse the operation numbered ``at``."""
    return lambda number, name: number == at


@pytest.mark.parametrize("name", ["create", "write", "sync", "rename", "sync_directory"])
def test_one_refused_operation_of_any_kind_loses_nothing(tmp_path: Path, name: str) -> None:
    for nth in range(1, 60, 12):
        seen = iter(range(1, 100_000))
        disk = FullDisk(lambda number, found, seen=seen, nth=nth: found == name and next(seen) == nth)  # type: ignore[misc]
        work = tmp_path / str(nth)
        work.mkdir()
        run(work, disk)
        assert numbers(work) == NUMBERS["n"].to_pylist(), f"{name} number {nth} was refused: {disk.refused}"


@pytest.mark.soak
def test_any_one_refused_operation_loses_nothing(tmp_path: Path) -> None:
    refused = 0
    for at in range(1, 250):
        (work := tmp_path / str(at)).mkdir()
        disk = FullDisk(once(at))
        run(work, disk)
        refused += len(disk.refused)
        assert numbers(work) == NUMBERS["n"].to_pylist(), f"operation {at} was refused: {disk.refused}"
    assert refused > 100


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_no_row(tmp_path: Path) -> None:
    result = run(tmp_path, FullDisk(lambda number, name: 4 <= number < 8), rate=4_000)
    assert result.failures, "no checkpoint failed"
    assert "the disk is full: free some space" in result.failures[0]
    assert numbers(tmp_path) == NUMBERS["n"].to_pylist()


def test_a_disk_that_stays_full_fails_the_job_and_a_restart_completes_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the disk is full: free some space"):
        run(tmp_path, FullDisk(lambda number, name: number >= 20))
    run(tmp_path, FullDisk(lambda number, name: False))
    assert numbers(tmp_path) == NUMBERS["n"].to_pylist()


def test_a_process_at_its_file_size_limit_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    process = spawn(tmp_path, script=LIMITED)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    failed, rows = out.split()
    assert int(failed) > 0
    assert rows == "120000"
