"""The directory of a job: what is missing or damaged there is named, and what workers read. No Spark is needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, ConfigurationError
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.source_tasks import Assignment, data_source_class
from dataflow.runtime.task.parts import TaskState

TASK = TaskState("in[0]", inlet={"splits": []})


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    """A job with one source task, two micro-batches of which are done."""
    made = JobDirectory(tmp_path / "job")
    with made.lock("run"):
        made.create({"pipeline": "p"}, [TASK])
    for round_ in (1, 2, 3):
        made.write_task(TASK, round_)
    for log, entries in (("offsets", 3), ("commits", 2)):
        (tmp_path / "job" / "spark" / log).mkdir(parents=True)
        for number in range(entries):
            (tmp_path / "job" / "spark" / log / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}\n-\n17')
            (tmp_path / "job" / "spark" / log / f".{number}.crc").touch()
    (tmp_path / "job" / "spark" / "metadata").write_text('{"id":"1379b711"}')
    return made


def test_a_whole_directory_is_complete(directory: JobDirectory) -> None:
    directory.check_complete(["in[0]"])
    assert directory.done == 2


@pytest.mark.parametrize(
    ("gone", "named"),
    [("tasks", "tasks/in.0./2"), ("spark/commits", "tasks/in|spark/commits"), ("spark/offsets", "spark/offsets")],
)
def test_a_part_that_was_deleted_is_named(directory: JobDirectory, gone: str, named: str) -> None:
    shutil.rmtree(directory.path / gone)
    directory.drop_before(4)
    with pytest.raises(CheckpointDamaged, match=f"is not complete: .*{named}.*restore what was deleted, or start"):
        directory.check_complete(["in[0]"])


def test_a_repeated_micro_batch_has_the_time_of_its_first_attempt(directory: JobDirectory) -> None:
    assert directory.newest_time == 0
    for round_, time in enumerate([50, 60, 70, 80]):
        directory.write_time(round_, time)
    directory.drop_after(2)  # micro-batch 2 is repeated
    for round_, time in ((2, 99), (3, 100)):
        directory.write_time(round_, time)
    assert ([directory.time(round_) for round_ in range(4)], directory.newest_time) == ([50, 60, 70, 100], 100)
    directory.drop_before(4)
    with pytest.raises(CheckpointDamaged, match="times/1 is missing"):
        directory.time(1)


def test_a_job_does_not_begin_where_spark_kept_something_for_another(directory: JobDirectory, tmp_path: Path) -> None:
    JobDirectory(tmp_path / "new").check_new()
    (directory.path / "job.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"expected job.json beside .*job/spark, which is an older job's"):
        directory.check_new()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 99])
def test_a_file_that_is_damaged_is_named(directory: JobDirectory, content: bytes) -> None:
    (directory.path / "tasks/in[0]/2").write_bytes(content)
    (directory.path / "job.json").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=r"tasks/in\[0\]/2 is damaged: .*restore an intact copy"):
        directory.read_task("in[0]", 2)
    with pytest.raises(CheckpointDamaged, match=r"job.json is damaged"):
        directory.read_job()


def test_files_that_are_not_ours_are_left_alone_and_rests_of_attempts_are_not(directory: JobDirectory) -> None:
    for name in ("tasks/.DS_Store", "tasks/in[0]/note", "tasks/in[0]/0815.settling"):
        (directory.path / name).touch()
    directory.drop_before(3)
    directory.drop_after(2)
    assert sorted(file.name for file in (directory.path / "tasks").glob("*/*")) == ["1", "2", "listed", "note"]


def test_a_job_of_more_bytes_than_the_limit_is_refused_before_spark_starts(directory: JobDirectory) -> None:
    with flow.Pipeline("p") as p:
        p.source(op.generate({"x": op.sequence()}, rows=1)).sink(op.collect())
    size = directory.restored_bytes
    assert size == sum((directory.path / name).stat().st_size for name in ("job.json", "tasks/in[0]/2"))
    checkpoint = flow.Checkpointing(directory.path, max_restore_bytes=size - 1)
    with pytest.raises(ConfigurationError, match=f"has at least {size} bytes, more than max_restore_bytes={size - 1}"):
        p.run(flow.SparkRunner(), checkpoint=checkpoint)


def test_the_clocks_of_tasks_come_from_one_file_if_the_start_was_asked_for(directory: JobDirectory) -> None:
    for state in (TaskState("a[0]", inlet={"clocks": {"w": [5, 2]}}), TaskState("a[1]", ended=True)):
        directory.write_task(state, 9)
    expected = {"a[0]": {"w": [5, 2]}, "a[1]": None}
    assert directory.clocks(["a[0]", "a[1]"], 9) == expected
    assert not list(directory.path.glob("clocks/*"))
    assert directory.begin(["a[0]", "a[1]"], 9)
    for task in ("a[0]", "a[1]"):
        (directory.path / "tasks" / task / "9").unlink()
    assert directory.clocks(["a[0]", "a[1]"], 9) == expected
    directory.drop_after(8)
    assert directory.clocks(["a[0]", "a[1]"], 9) == {}
    directory.write_task(TaskState("a[1]", ended=True), 3)
    assert not directory.begin(["a[1]"], 3)
    assert not list(directory.path.glob("clocks/*"))


def test_what_workers_need_is_there_once_and_checked_when_it_is_read(directory: JobDirectory) -> None:
    older, digest = directory.write_for_workers(b"older"), directory.write_for_workers(b"plan")
    assert directory.read_for_workers(digest) == b"plan"
    assert [file.name for file in (directory.path / "workers").iterdir()] == [digest]
    with pytest.raises(CheckpointDamaged, match=f"{older} is missing: does this worker see the directory of the job"):
        directory.read_for_workers(older)
    (directory.path / "workers" / digest).write_bytes(b"plot")
    with pytest.raises(CheckpointDamaged, match=f"{digest} is damaged: its content has another SHA-256"):
        directory.read_for_workers(digest)


@pytest.mark.parametrize("rows", [1, 100_000])
def test_spark_is_given_a_class_of_the_same_size_whatever_the_sources_hold(tmp_path: Path, rows: int) -> None:
    with flow.Pipeline("copy") as p:
        table = pa.table({"x": np.random.default_rng(1).random(rows)})
        p.source(op.from_arrow(table), name="in").sink(op.collect(), name="out")
    plan = plan_for_spark(p.graph, parallelism=2, key_groups=2)
    assignment = Assignment(plan.for_workers(with_sources=True), JobDirectory(tmp_path / "job"), "run", 1_000)
    assert len(cloudpickle.dumps(data_source_class(assignment, "source"))) < 10_000


@pytest.mark.parametrize("file", ["metadata", "offsets/1", "offsets/2", "commits/0", "commits/1"])
@pytest.mark.parametrize("content", ['{"id":"13', 'v1\n{"nextBatch', "v1\n", "", "v1\n7", 'v1\n{}\n{"logOff'])
def test_a_file_of_sparks_log_that_is_damaged_is_named(directory: JobDirectory, file: str, content: str) -> None:
    (directory.path / "spark" / file).write_text(content)
    with pytest.raises(CheckpointDamaged, match=f"spark/{file} is damaged: .*; restore an intact copy, or start over"):
        directory.check_complete(["in[0]"])


def test_the_newest_file_of_sparks_log_is_missed_if_its_checksum_is_there(directory: JobDirectory) -> None:
    (directory.path / "spark" / "offsets" / "2").unlink()
    with pytest.raises(CheckpointDamaged, match=r"is not complete: .*spark/offsets/2 is missing or older"):
        directory.check_complete(["in[0]"])
    (directory.path / "spark" / "offsets" / ".2.crc").unlink()  # Spark deletes both, or has written none
    directory.check_complete(["in[0]"])


@pytest.mark.parametrize("job", [{}, {"job": 7}, {"job": "0" * 31}, {"job": "0" * 32 + "\n"}, {"job": "../" * 11}])
def test_a_job_without_an_id_is_damage(job: dict[str, Any], tmp_path: Path) -> None:
    JobDirectory(tmp_path).create({"job": "0" * 32}, [])
    JobDirectory(tmp_path).check_job_id()
    (tmp_path / "job.json").write_text(json.dumps(job))
    with pytest.raises(CheckpointDamaged, match=r"job\.json is damaged: the id of the job"):
        JobDirectory(tmp_path).check_job_id()
