"""Files with old times that come before and after the last checkpoint of a process that is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import operators as op
from tests.operators.sources.watched import bring
from tests.reality import watcher
from tests.reality.harness import spawn


def put(folder: Path, first: int, last: int, at: int) -> None:
    """Files of three rows each, last modified at second ``at``."""
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        path = folder / f".{number}"
        path.write_text("x\n" + "".join(f"{3 * number + row}\n" for row in range(3)))
        os.utime(path, (at, at))
        path.rename(folder / f"{number}.csv")


@pytest.mark.soak  # test_watch_jobs has crashes on seeded schedules, and test_kills a killed process
def test_a_killed_process_reads_files_of_any_age_once(tmp_path: Path) -> None:
    put(tmp_path / "inbox", 0, 2, at=100)
    put(tmp_path / "old", 2, 4, at=9)
    put(tmp_path / "older", 4, 6, at=8)
    with spawn(tmp_path, 6, script=Path(watcher.__file__)) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == "running\n"
        bring(tmp_path / "old", tmp_path / "inbox")
        assert process.stdout.readline() == "running\n"
        process.kill()
    bring(tmp_path / "older", tmp_path / "inbox")
    with spawn(tmp_path, 6, script=Path(watcher.__file__)) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    rows = op.read_committed(tmp_path / "out")
    assert sorted(rows["x"].to_pylist()) == list(range(18))
