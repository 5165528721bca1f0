"""Ctrl-C on a real process: once takes a last checkpoint, twice leaves at once."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from operators.sinks.parquet import read_committed
from tests.reality.harness import spawn
from tests.seeds import seeds

SCRIPT = Path(__file__).with_name("interrupted.py")


def start(work: Path, how: str) -> subprocess.Popen[str]:
    """The process, once its job runs."""
    process = spawn(work, how, script=SCRIPT)
    assert process.stdout is not None
    if process.stdout.readline() != "running\n":
        pytest.fail(process.communicate()[1])
    return process


def test_an_interrupt_takes_a_last_checkpoint_and_a_restart_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path, "checkpointed")
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT, errors
    assert "checkpoint 1 was taken; run again with restore='auto' to resume" in errors
    so_far = read_committed(tmp_path / "out")["n"].to_pylist()
    assert 0 < len(so_far) < 60_000
    again = start(tmp_path, "checkpointed")
    assert again.communicate(timeout=60)[0] == "done\n"
    assert sorted(read_committed(tmp_path / "out")["n"].to_pylist()) == list(range(60_000))


def test_an_interrupt_without_checkpoints_cancels_the_job(tmp_path: Path) -> None:
    process = start(tmp_path, "plain")
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT, errors
    assert "the job had no checkpoints: run it again from the beginning" in errors
    assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize("time", seeds(1, 3))
def test_two_interrupts_leave_at_once_though_a_function_does_not_return(tmp_path: Path, time: int) -> None:
    process = start(tmp_path, "stuck")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "taking a last checkpoint; interrupt again to leave at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT, f"time {time}: {errors}"
    assert "interrupted twice: left without a last checkpoint" in errors
