"""Batches in a session of Spark Connect give what local ones give; streams are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_spark
from tests.runners.spark import child_of_batches
from tests.runners.spark.child import OUTPUTS
from tests.runners.spark.engine import ROOT
from tests.runners.spark.test_kills import rows


@pytest.mark.soak
def test_batches_run_in_a_session_of_spark_connect_and_streams_are_refused(tmp_path: Path) -> None:
    need_spark()
    work, local = tmp_path / "work", tmp_path / "local"
    work.mkdir()
    script = str(Path(child_of_batches.__file__).with_name("child_of_connect.py"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, str(work)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = child_of_batches.pipeline(local).run(execution="batch")
    for output in OUTPUTS:
        assert rows(work / output) == rows(local / output), output
    assert sum(found["rows"].values()) == sum(expected.rows_out.values())
    assert found["given"] == [100, 100]
    assert found["frame"] == [{"out": 50}, [[50, 0]]]
    assert found["dataframe"] == len(rows(local / "wide"))
    assert found["stream"][0] == "ConfigurationError"
    assert "of Spark Connect: the sinks and commits of a stream need a driver in this process" in found["stream"][1]
    assert "does not deliver all counts" in found["metrics"][1]
    assert found["user"][0] == "KeyError"
    assert "in operator 'failing' of rows[0], in a batch of 1 rows" in found["user"][2:]
    assert found["cancelled"][0] == "JobCancelled"
    assert "found one that was stopped" in found["stopped"][1]
