"""Kernels are loaded before the first row; checkpoints, progress and endings know of it."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Operator, Out
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.kernel_wait import wait_for_import
from dataflow.runtime.task.kernel_loading import KernelLoader
from dataflow.runtime.task.progress import JobState
from tests.runners import loads_kernels

ROOT = Path(__file__).parents[2]


class Slow(Operator):
    """Needs a module whose import waits for the gate."""

    kernels = ("slow_kernels_of_a_test",)  # type: ignore[assignment]

    def __init__(self, context: flow.OperatorContext) -> None:
        if context.restored:
            import_module("slow_kernels_of_a_test")

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        assert "slow_kernels_of_a_test" in sys.modules
        out.emit(batch)

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(values={"some": 1})


class Terminal(io.StringIO):
    """Calls ``then`` once, when it is told that something is compiling, and ``after`` when told of an interrupt."""

    def __init__(self, then: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._then, self._after, self._told = then, after, False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "slow: compiling: slow kernels of a test kernels" in text and not self._told:
            self._told = True
            self._then()
        if "interrupted: " in text:
            self._after()
        return super().write(text)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Opens the import; it is opened at the end."""
    # once the gate is open, the import takes a little longer, as a compiler does
    (tmp_path / "slow_kernels_of_a_test.py").write_text(
        "import sys, time\nsys.gate_of_a_test.wait(10)\ntime.sleep(sys.gate_of_a_test.seconds)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    gate = threading.Event()
    gate.seconds = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "gate_of_a_test", gate, raising=False)
    yield gate
    gate.set()
    for thread in importing():
        thread.join(60)
    sys.modules.pop("slow_kernels_of_a_test", None)


def importing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dataflow-loading"]


def slow() -> flow.Pipeline:
    with flow.Pipeline("slow") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(100)})), name="rows")
        rows.apply(Slow, name="slow").sink(op.collect(), name="out")
    return p


def checkpoints() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1ms")


@pytest.mark.parametrize("fresh", [pytest.param(True, marks=pytest.mark.soak), False])
def test_no_kernel_is_loaded_in_a_step_by_a_checkpoint_or_by_a_restore(*, fresh: bool, tmp_path: Path) -> None:
    """A process restores the checkpoint of another one; with ``fresh`` that one, too, begins without kernels."""
    if not fresh:
        loads_kernels.main(tmp_path)
    for _ in range(2 if fresh else 1):
        child = subprocess.run(
            [sys.executable, "-W", "error", loads_kernels.__file__, tmp_path],
            cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_sources_that_wrap_others_pass_their_kernels_on(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    read = op.read_csv(tmp_path / "a.csv")
    assert read.kernels == ("operators.kernels.csv_rows",)
    assert op.paced(read, 1).kernels == read.kernels
    assert op.watch(tmp_path, op.read_csv, pattern="*.json", schema={"n": "int64"}).kernels == read.kernels
    assert op.watch(tmp_path, op.read_json, pattern="*.json", schema={"n": "int64"}).kernels == ()


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


def stopped(gate: threading.Event) -> flow.Checkpointing:
    """The settings of a job that has a checkpoint, in a process that has not loaded the kernels."""
    settings = checkpoints()
    gate.set()
    slow().run(checkpoint=settings)
    del sys.modules["slow_kernels_of_a_test"]
    gate.clear()
    return settings


@pytest.fixture
def opening(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens the gate when the interrupted thread begins to wait for the import, and not before."""

    def wait(loading: KernelLoader, pressed: CtrlC) -> None:
        gate.set()
        wait_for_import(loading, pressed)

    monkeypatch.setattr("dataflow.runners.local_job.wait_for_import", wait)
    monkeypatch.setattr("dataflow.runners.kernel_wait.wait_for_import", wait)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_restore_says_what_is_compiling_before_it_calls_kernels(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stopped(gate)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal(gate.set))
    result = slow().run(checkpoint=settings, progress=True)
    assert result.restore_report is not None
    assert terminal.getvalue().count("compiling: ") == 1


@pytest.mark.usefixtures("opening")
def test_an_interrupt_while_a_restore_compiles_leaves_everything_as_it_was(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stopped(gate)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal(interrupt))
    with pytest.raises(KeyboardInterrupt) as raised:
        slow().run(checkpoint=settings, progress=True)
    assert raised.value.__notes__ == ["no row had been read; run again with restore='auto' to restore the checkpoint"]
    assert terminal.getvalue().endswith("\x1b[K\ninterrupted: kernels were being compiled, and nothing was restored\n")
    assert slow().run(checkpoint=settings).restore_report is not None


@pytest.mark.usefixtures("opening")
def test_an_interrupt_while_kernels_are_compiled_does_not_speak_of_a_last_checkpoint(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal(interrupt))
    with pytest.raises(KeyboardInterrupt) as raised:
        slow().run(checkpoint=checkpoints(), progress=True)
    assert "interrupted: stopping, because no row has been read yet; interrupt again" in terminal.getvalue()
    assert raised.value.__notes__[0].startswith("no row had been read, so no checkpoint was taken")


@pytest.mark.usefixtures("opening")
@pytest.mark.parametrize("restored", [False, True])
def test_an_interrupt_waits_for_the_kernels_at_hand_so_that_the_shell_learns_of_it(
    *, restored: bool, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stopped(gate) if restored else checkpoints()
    gate.seconds = 0.3  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", Terminal(interrupt))
    with pytest.raises(KeyboardInterrupt):
        slow().run(checkpoint=settings, progress=True)
    assert not importing()


@pytest.mark.parametrize("restored", [False, True])
def test_a_second_interrupt_does_not_wait_for_kernels(
    *, restored: bool, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stopped(gate) if restored else checkpoints()
    monkeypatch.setattr(sys, "stderr", Terminal(interrupt, interrupt))
    with pytest.raises(KeyboardInterrupt):
        slow().run(checkpoint=settings, progress=True)
    assert importing()


def test_in_a_simulation_kernels_are_loaded_while_its_clock_stands_still(gate: threading.Event) -> None:
    gate.set()
    fresh = slow().run("simulated", checkpoint=checkpoints())
    assert "slow_kernels_of_a_test" in sys.modules
    again = slow().run("simulated", checkpoint=checkpoints())
    assert (fresh.duration, fresh.to_dict()) == (again.duration, again.to_dict())


def test_a_module_that_cannot_be_imported_fails_the_step_that_needs_it_and_not_the_loading() -> None:
    loading = KernelLoader(["no_such_module_of_a_test", "json"])
    loading.run()
    assert (loading.done, str(loading)) == (True, "")
