"""The benchmark of chosen rows runs each of its jobs."""

from __future__ import annotations

import pytest

from benchmarks.chosen_rows import JOBS, run


@pytest.mark.parametrize("job", JOBS)
def test_each_job_runs(job: str) -> None:
    result = run(job, 2_000)
    assert result.rows == 2_000
    assert result.cpu > 0
