"""A process that is stopped while another one takes its directories over, and wakes up late: it must spoil nothing.

The kernel keeps a lock as long as its process lives, also if that is stopped. So the test deletes the lock files, which
is what a network file system does that forgets a lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from operators.sinks.parquet import read_committed
from tests.reality.handed_over import ROWS
from tests.reality.harness import environment

CHILD = Path(__file__).with_name("handed_over.py")


@contextmanager
def start(work: Path, point: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block, whatever state it is in."""
    command = [sys.executable, "-W", "error", str(CHILD), str(work), point]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, env=environment(), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def reach(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n", process.communicate()[1]


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def content(work: Path) -> Mapping[str, bytes]:
    """Return every file but the lock files."""
    return {
        str(path.relative_to(work)): path.read_bytes()
        for path in sorted(work.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


@pytest.mark.parametrize(
    "point", ["commit", *(pytest.param(point, marks=pytest.mark.soak) for point in ("rows", "snapshot"))]
)
def test_a_process_that_wakes_up_late_stops_and_leaves_its_successors_files_alone(point: str, tmp_path: Path) -> None:
    with start(tmp_path, point) as first:
        reach(first)
        stop(first)
        for lock in tmp_path.rglob("LOCK"):
            lock.unlink()
        with start(tmp_path, "rows") as second:
            reach(second)  # it restored, committed a checkpoint of its own, and has rows in a staged file
            before = content(tmp_path)
            first.send_signal(signal.SIGCONT)
            _, errors = first.communicate("go on\n", timeout=60)
            assert first.returncode == 1
            assert f"was taken over by process {second.pid}" in errors
            left = content(tmp_path)
            assert {name: left.get(name) for name in before} == before
    with start(tmp_path, "none") as third:
        said, errors = third.communicate(timeout=60)
        assert (third.returncode, said) == (0, "done\n"), errors
    assert read_committed(tmp_path / "out")["n"].to_pylist() == list(range(ROWS))
