"""The directory of a job: what is missing or damaged there is named. No Spark is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, ConfigurationError
from dataflow.runners.spark.job_directory import Home
from dataflow.runtime.task.parts import TaskState

TASK = TaskState("in[0]", inlet={"splits": []})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A job of one lane, two micro-batches of which are done."""
    made = Home(tmp_path / "job")
    with made.hold("run"):
        made.begin({"pipeline": "p"}, [TASK])
    for round_ in (1, 2, 3):
        made.keep(TASK, round_)
    for log, entries in (("offsets", 3), ("commits", 2)):
        (tmp_path / "job" / "spark" / log).mkdir(parents=True)
        for number in range(entries):
            (tmp_path / "job" / "spark" / log / str(number)).touch()
    return made


def test_a_whole_directory_is_complete(home: Home) -> None:
    home.check_complete(["in[0]"])
    assert home.done == 2


@pytest.mark.parametrize(
    ("gone", "named"),
    [("tasks", "tasks/in.0./2"), ("spark/commits", "tasks/in|spark/commits"), ("spark/offsets", "spark/offsets")],
)
def test_a_part_that_was_deleted_is_named(home: Home, gone: str, named: str) -> None:
    shutil.rmtree(home.path / gone)
    home.forget(4)
    with pytest.raises(CheckpointDamaged, match=f"is not complete: .*{named}.*put back what was deleted, or begin"):
        home.check_complete(["in[0]"])


def test_a_job_does_not_begin_where_spark_kept_something_for_another(home: Home, tmp_path: Path) -> None:
    Home(tmp_path / "new").check_new()
    (home.path / "job.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"expected job.json beside .*job/spark, which is an older job's"):
        home.check_new()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 99])
def test_a_file_that_is_damaged_is_named(home: Home, content: bytes) -> None:
    (home.path / "tasks/in[0]/2").write_bytes(content)
    (home.path / "job.json").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=r"tasks/in\[0\]/2 is damaged: .*put a whole copy back"):
        home.task("in[0]", 2)
    with pytest.raises(CheckpointDamaged, match=r"job.json is damaged"):
        home.job()


def test_files_that_are_not_ours_are_left_alone_and_rests_of_attempts_are_not(home: Home) -> None:
    for name in ("tasks/.DS_Store", "tasks/in[0]/note", "tasks/in[0]/0815.settling"):
        (home.path / name).touch()
    home.forget(3)
    home.forget_beyond(2)
    assert sorted(file.name for file in (home.path / "tasks").glob("*/*")) == ["1", "2", "note"]


def test_a_job_of_more_bytes_than_the_limit_is_refused_before_spark_starts(home: Home) -> None:
    with flow.Pipeline("p") as p:
        p.source(op.generate({"x": op.sequence()}, rows=1)).sink(op.collect())
    size = home.restored_bytes
    assert size == sum((home.path / name).stat().st_size for name in ("job.json", "tasks/in[0]/2"))
    checkpoint = flow.Checkpointing(home.path, max_restore_bytes=size - 1)
    with pytest.raises(ConfigurationError, match=f"has at least {size} bytes, more than max_restore_bytes={size - 1}"):
        p.run(flow.SparkRunner(), checkpoint=checkpoint)
