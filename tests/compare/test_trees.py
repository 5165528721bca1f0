"""A process and what it starts are held and killed together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dataflow.compare.trees import ProcessTree

HOLDER = """
import fcntl, os, signal, sys
os.setpgid(0, 0)
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", file=file, flush=True)
signal.pause()
"""
STARTER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDER!r}, sys.argv[1]])"
TAKE = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"


def test_a_kill_reaches_a_child_in_a_process_group_of_its_own(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with ProcessTree([sys.executable, "-c", STARTER, str(lock)], tmp_path / "log") as tree:
        while not (lock.exists() and lock.read_text()):
            assert not tree.ended_within(0.01)
        assert tree.stop()
        tree.kill()
    subprocess.run([sys.executable, "-c", TAKE, str(lock)], timeout=30, check=True)


def test_one_that_is_over_cannot_be_stopped(tmp_path: Path) -> None:
    with ProcessTree([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log") as tree:
        assert tree.ended_within(30)
        assert (tree.stop(), tree.returncode) == (False, 3)
