"""Workers that run another Python, or lack the package: a clear error before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_spark

JOB = """
import os
from pyspark.sql import SparkSession
import pyarrow as pa, dataflow as flow, operators as op
from dataflow.errors import ConfigurationError
from dataflow.runners.spark.session import _OURS

builder = SparkSession.builder.master("local[1]")
for key, value in _OURS.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
p = flow.Pipeline()
rows = p.source(op.from_arrow(pa.table({"k": [1, 2]})), name="rows")
rows.map_batches(lambda batch: batch, schema=rows.schema, name="same").sink(op.collect(), name="out")
for execution in ("streaming", "batch"):
    try:
        checkpoint = flow.Checkpointing(f"job-{execution}")
        result = p.run(flow.SparkRunner(session), parallelism=1, execution=execution, checkpoint=checkpoint)
        print(result.rows_out)
    except ConfigurationError as error:
        print(error, os.listdir("."))
"""


def run(python: str, folder: Path) -> list[str]:
    need_spark()
    environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", JOB], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def program(folder: Path, content: str) -> str:
    path = folder / "python-of-workers"
    path.write_text(f"#!/bin/sh\n{content}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("exit 1", "no answer from"),
        pytest.param(f'unset PYTHONPATH; exec {sys.executable} -S "$@"', "no answer from", marks=pytest.mark.soak),
    ],
)
def test_workers_that_cannot_run_a_job_are_told_before_anything_starts(
    content: str, found: str, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    lines = run(program(tools, content), tmp_path)
    assert len(lines) == 2
    version = ".".join(map(str, sys.version_info[:2]))
    for line in lines:
        assert line.startswith(f"expected workers of Spark that run Python {version} with barrierflow ")
        assert f"found {found}" in line
        assert "set the environment variable PYSPARK_PYTHON" in line
        assert "job-" not in line  # nothing was made


@pytest.mark.soak
def test_workers_without_the_package_are_told(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    hidden = f"""exec {sys.executable} -c 'import sys, runpy
sys.modules["dataflow"] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$2" """
    lines = run(program(tools, hidden), tmp_path)
    assert len(lines) == 2
    for line in lines:
        assert "without barrierflow" in line


@pytest.mark.soak
def test_workers_of_this_python_by_another_name_run_the_job(tmp_path: Path) -> None:
    assert run(program(tmp_path, f'exec {sys.executable} "$@"'), tmp_path) == ["{'out': 2}"] * 2
