"""The Python of Spark's workers: no archive in front of what is installed, and nobody's choice overruled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow.runners.spark import session as interpreter
from dataflow.runners.spark.session import python_for_workers

CHOICE = "PYSPARK_PYTHON"


@pytest.fixture(autouse=True)
def _nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CHOICE, "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker imports, and with what."""
    import pyspark

    yield pa.record_batch({"python": [sys.executable], "pyspark": [pyspark.__file__]})


def test_workers_import_the_package_that_the_driver_does(spark: Any) -> None:
    import pyspark

    (row,) = spark.range(1).coalesce(1).mapInArrow(where, "python string, pyspark string").collect()
    assert os.path.realpath(row.python) == os.path.realpath(sys.executable)
    assert row.pyspark == pyspark.__file__


def test_only_the_archives_are_taken_off_the_path(tmp_path: Path) -> None:
    lib = tmp_path / "a place" / "python" / "lib"
    path = [f"{lib}/pyspark.zip", "/jars/spark-core.jar", f"{lib}/py4j-0.10.9.9-src.zip", str(tmp_path / "mine * of")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path)}
    script = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv[1], sep='|')"
    done = subprocess.run(
        [interpreter._SCRIPT, "-c", script, "an argument"],
        env=environment | {"BARRIERFLOW_WORKER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{sys.executable}|{path[1]}:{path[3]}|an argument\n"


def test_the_environment_is_as_it_was_when_the_session_has_been_started() -> None:
    before = dict(os.environ)
    with python_for_workers("local[2]"):
        assert dict(os.environ) != before
    assert dict(os.environ) == before


def test_the_environment_is_as_it_was_when_the_start_was_interrupted() -> None:
    before = dict(os.environ)
    with suppress(KeyboardInterrupt), python_for_workers("local[2]"):
        raise KeyboardInterrupt
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("master", "environment", "chosen"),
    [
        ("spark://host:7077", {}, sys.executable),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, sys.executable),
        ("local[2]", {CHOICE: "/usr/bin/python3"}, "/usr/bin/python3"),
    ],
    ids=["another machine", "another Spark", "a choice"],
)
def test_the_script_is_for_this_machine_our_own_spark_and_who_has_not_chosen(
    monkeypatch: pytest.MonkeyPatch, master: str, environment: dict[str, str], chosen: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with python_for_workers(master):
        assert os.environ[CHOICE] == chosen


def test_a_jvm_that_runs_already_keeps_its_environment(spark: Any) -> None:
    with python_for_workers("local[2]"):
        assert os.environ[CHOICE] == sys.executable


def test_a_jvm_that_spark_submit_started_keeps_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with python_for_workers("local[2]"):
        assert os.environ[CHOICE] == sys.executable


def test_a_first_session_on_this_machine_has_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_jvm_runs", lambda: False)
    with python_for_workers("local-cluster[2,1,1024]"):
        assert os.environ[CHOICE] == str(interpreter._SCRIPT)
        assert os.environ["BARRIERFLOW_WORKER_PYTHON"] == sys.executable
