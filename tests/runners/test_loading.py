"""Kernels are loaded before the first row; checkpoints, progress and endings know of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.operator import Operator, Out
from dataflow.runtime.loading import Loading
from dataflow.runtime.progress import JobState

ROOT = Path(__file__).parents[2]


class Slow(Operator):
    """Needs a module whose import waits for the gate."""

    kernels = ("slow_kernels_of_a_test",)  # type: ignore[assignment]

    def __init__(self, context: flow.OperatorContext) -> None: ...

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        assert "slow_kernels_of_a_test" in sys.modules
        out.emit(batch)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Opens the import; it is opened at the end."""
    (tmp_path / "slow_kernels_of_a_test.py").write_text("import sys\nsys.gate_of_a_test.wait(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    gate = threading.Event()
    monkeypatch.setattr(sys, "gate_of_a_test", gate, raising=False)
    yield gate
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "dataflow-loading":
            thread.join(60)
    sys.modules.pop("slow_kernels_of_a_test", None)


def slow() -> flow.Pipeline:
    with flow.Pipeline("slow") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(100)})), name="rows")
        rows.apply(Slow, name="slow").sink(op.collect(), name="out")
    return p


def checkpoints() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1ms")


def test_no_kernel_is_loaded_in_a_step_or_by_a_checkpoint() -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", Path(__file__).with_name("loads_kernels.py")],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_until_kernels_are_loaded_no_row_is_read_and_no_checkpoint_begins(gate: threading.Event) -> None:
    with slow().start(checkpoint=checkpoints()) as job:
        asked = job._job.checkpoint()
        while str(job.progress()).startswith("0 rows"):  # the loading is about to begin
            pass
        now = job.progress()
        assert str(now).startswith("compiling: ")
        assert (now.rows_in, now.checkpoints, now.pending, asked.done()) == (0, 0, 0, False)
        gate.set()
        result = job.wait()
    assert asked.result(0) == 1
    assert result.table("out").num_rows == 100


def test_a_job_is_cancelled_while_kernels_are_loaded(gate: threading.Event) -> None:
    with slow().start(checkpoint=checkpoints()) as job:
        asked = job._job.checkpoint()
        job.cancel()
        assert job.state is JobState.CANCELLED
    assert isinstance(asked.exception(0), flow.errors.JobCancelled)


def test_a_job_is_stopped_while_kernels_are_loaded_and_goes_on_later(gate: threading.Event) -> None:
    store = checkpoints()
    with slow().start(checkpoint=store) as job:
        assert (job.stop().state, len(job.checkpoints)) == (JobState.STOPPED, 0)
    gate.set()
    assert slow().run(checkpoint=store).table("out").num_rows == 100


def test_in_a_simulation_kernels_are_loaded_while_its_clock_stands_still(gate: threading.Event) -> None:
    gate.set()
    fresh = slow().run("simulated", checkpoint=checkpoints())
    assert "slow_kernels_of_a_test" in sys.modules
    again = slow().run("simulated", checkpoint=checkpoints())
    assert (fresh.duration, fresh.to_dict()) == (again.duration, again.to_dict())


def test_a_module_that_cannot_be_imported_fails_the_step_that_needs_it_and_not_the_loading() -> None:
    loading = Loading(["no_such_module_of_a_test", "json"])
    loading.run()
    assert (loading.done, str(loading)) == (True, "")
