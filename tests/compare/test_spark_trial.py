"""A run on Spark: what its process leaves behind, and what is seen of it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow.compare.options import Scene
from dataflow.compare.spark_trial import SparkTrial
from dataflow.compare.subject import Subject
from dataflow.errors import PipelineFailed


def _trial(folder: Path, target: str = "nowhere:pipeline") -> SparkTrial:
    return SparkTrial(subject=Subject(target), folder=str(folder), parallelism=2, rows_per_trigger=10)


def test_what_its_process_raised_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="ConfigurationError: module 'nowhere' cannot be imported"):
        _trial(tmp_path).run("never")


def test_a_process_that_dies_without_a_word_has_left_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dying.py").write_text("import os; print('alas', flush=True); os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{tmp_path}")
    with pytest.raises(PipelineFailed, match="died with exit code 7; its output is in"):
        _trial(tmp_path, "dying:pipeline").run("never")
    assert (tmp_path / "process.log").read_text() == "alas\n"


@pytest.mark.parametrize(
    ("fast", "slow", "commits", "scene"),
    [
        ([0], [0], [], Scene()),
        ([0, 1], [0], [], Scene()),
        ([0, 1], [0, 1], [], Scene(0, 1)),
        ([0, 1], [0, 1], [0], Scene(1, 0)),
        ([0, 1, 2], [0, 1, 2], [0], Scene(1, 2)),
    ],
)
def test_a_micro_batch_is_in_progress_between_its_lanes_and_sparks_commit(
    fast: list[int], slow: list[int], commits: list[int], scene: Scene, tmp_path: Path
) -> None:
    trial = _trial(tmp_path)
    for folder, names in (("tasks/n[0]", fast), ("tasks/n[1]", slow), ("spark/commits", commits)):
        (trial.checkpoints / folder).mkdir(parents=True)
        for name in names:
            (trial.checkpoints / folder / str(name)).touch()
    assert trial.look() == scene


def test_nothing_is_in_progress_where_no_job_has_begun(tmp_path: Path) -> None:
    assert _trial(tmp_path).look() == Scene()
