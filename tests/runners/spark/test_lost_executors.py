"""An executor that is lost in each stage of a job on Spark: what the job leaves is what a local run does.

Executors are processes of their own, so this is a campaign of some minutes::

    pytest tests/runners/spark/test_lost_executors.py -m soak
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import need_spark
from tests.runners.spark.child import LANES, OUTPUTS
from tests.runners.spark.child_of_losses import STAGES, pipeline
from tests.runners.spark.test_kills import LIMIT, Life, rows

pytestmark = pytest.mark.soak

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of local runs: of the stream, and below ``batch`` of the batch."""
    need_spark()
    directory = tmp_path_factory.mktemp("expected")
    pipeline(directory).run(parallelism=LANES)
    pipeline(directory / "batch").run(execution="batch", parallelism=LANES)
    return directory


@pytest.mark.parametrize("execution", ["streaming", "batch"])
@pytest.mark.parametrize("stages", [*[[stage] for stage in STAGES], STAGES], ids=str)
def test_a_job_is_exact_although_executors_are_lost(
    stages: list[str], execution: str, expected: Path, tmp_path: Path
) -> None:
    if execution == "batch":
        (tmp_path / "batch").touch()
    for stage in stages:
        (tmp_path / f"lose-{stage}").touch()
    life = Life(tmp_path, MASTER, "child_of_losses.py", limit=3 * LIMIT)
    assert life.wait() == 0, life.log.read_text()[-3_000:]
    assert sorted(path.name for path in tmp_path.glob("lost-*")) == sorted(f"lost-{stage}" for stage in stages)
    for output in OUTPUTS:
        assert rows(tmp_path / output) == rows((expected / "batch" if execution == "batch" else expected) / output)
