"""Notes of what each worker runs: cleared when its work ends, by an error too, and kept when the process may die."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow.planning.physical_plan import Vertex
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.worker_notes import wait_until_idle, working_on


@pytest.mark.parametrize("error", [ValueError, GeneratorExit])
def test_a_worker_whose_work_failed_or_was_stopped_is_idle(error: type[BaseException], tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    with pytest.raises(error), working_on(directory, Vertex("counts", 2), 1):
        raise error
    assert wait_until_idle(directory, seconds=0)


def test_a_worker_at_work_or_about_to_exit_is_not_idle(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    with pytest.raises(SystemExit), working_on(directory, Vertex("counts", 2), 1):
        assert not wait_until_idle(directory, seconds=0)
        raise SystemExit
    assert not wait_until_idle(directory, seconds=0)
