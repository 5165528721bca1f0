"""The command savepoint on a job in another process: stopped, drained, killed, slow, and asked by several at a time."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dataflow as flow
from operators.sinks.parquet import read_committed
from tests.commands import ROOT, barrierflow

pytestmark = pytest.mark.extended

MODULE = """
import os, time

import dataflow as flow
import operators as op


def endless():
    with flow.Pipeline("endless") as p:
        rows = p.source(op.generate({"n": op.sequence()}, rate="10000/s"), name="numbers")
        rows = rows.map_batches(told, name="told").rebalance()
        rows.sink(op.write_parquet("out", if_exists="append"), name="out")
    return p


def told(batch, heard=[]):
    if not heard:
        heard.append(True)
        print("running", flush=True)
    while os.path.exists("closed"):
        time.sleep(0.001)
    return batch
"""
DEEP = "/".join(["a deep directory"] * 12)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(MODULE)
    return tmp_path


@contextmanager
def running(work: Path, directory: str = "ckpt") -> Iterator[subprocess.Popen[str]]:
    """A job with checkpoints in ``directory``, once rows flow; it is killed at the end."""
    words = ["run", "jobs:endless", "--checkpoint", directory, "--every", "1h"]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dataflow", *words]
    with subprocess.Popen(command, cwd=work, env=environment, text=True, **streams) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "running\n":
                pytest.fail(process.communicate()[1])
            yield process
        finally:
            process.kill()


def savepoint(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return barrierflow("savepoint", *words, cwd=work, timeout=60)


def over(process: subprocess.Popen[str]) -> str:
    """Return the summary of a job that was stopped."""
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out


def test_a_running_job_takes_savepoints_until_one_stops_it(work: Path) -> None:
    with running(work, DEEP) as job:
        command = [sys.executable, "-m", "dataflow", "savepoint", DEEP, "in the background", "--json"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=work, env=environment, text=True, stdout=subprocess.PIPE) as other:
            first = savepoint(work, DEEP, "../one of two", "--json")
            found = [json.loads(text) for text in (first.stdout, other.communicate(timeout=60)[0])]
        assert [Path(taken["path"]) for taken in found] == [work.parent / "one of two", work / "in the background"]
        again = savepoint(work, DEEP, "in the background")
        assert again.returncode == 2
        assert again.stderr.startswith("error: ")
        stopped = savepoint(work, DEEP, str(work / "last"), "--stop")
        assert barrierflow("checkpoints", "rm", DEEP, "1", cwd=work).returncode in (0, 2), "the directory is unlocked"
        summary = over(job)
    assert stopped.stdout.startswith("savepoint "), stopped.stderr
    assert stopped.stdout.endswith("the job has stopped\n")
    assert "endless: stopped in" in summary
    savepoints = [flow.Checkpoint(path) for path in (*[taken["path"] for taken in found], work / "last")]
    assert {(one.kind, one.job_id, one.finished, str(one.status)) for one in savepoints} == {
        ("savepoint", found[0]["job"], False, "whole")
    }
    assert [one.id for one in savepoints[:2]] == [taken["checkpoint"] for taken in found]
    late = savepoint(work, DEEP, "late")
    assert (late.returncode, late.stdout) == (2, "")
    assert "no job runs in" in late.stderr
    rows = sorted(read_committed(work / "out")["n"].to_pylist())
    assert rows == list(range(len(rows)))


def test_a_job_that_is_drained_has_finished(work: Path) -> None:
    with running(work) as job:
        alone = savepoint(work, "ckpt", "sp", "--drain")
        assert (alone.returncode, "--drain needs --stop" in alone.stderr) == (2, True)
        drained = savepoint(work, "ckpt", "sp", "--stop", "--drain", "--json")
        over(job)
    assert json.loads(drained.stdout)["stopped"], drained.stderr
    assert flow.Checkpoint(work / "sp").finished


def test_a_slow_savepoint_is_given_up_after_its_timeout_and_not_by_ctrl_c(work: Path) -> None:
    with running(work) as job:
        (work / "closed").touch()
        late = savepoint(work, "ckpt", "late", "--timeout", "200ms")
        assert (late.returncode, "200.0 ms" in late.stderr) == (2, True), late.stderr
        held = savepoint(work, "ckpt", "held", "--stop", "--timeout", "200ms")
        assert (held.returncode, job.poll()) == (2, None)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "dataflow", "savepoint", "ckpt", "slow"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=work, env=environment, stderr=theirs) as asking:
            os.close(theirs)
            seen = b""
            while b"waiting for the savepoint" not in seen:
                seen += os.read(ours, 4096)
            asking.send_signal(signal.SIGINT)
            while b"manifest.json" not in seen:
                seen += os.read(ours, 4096)
            assert asking.wait(60) == 130
            os.close(ours)
        (work / "closed").unlink()
        last = savepoint(work, "ckpt", "last", "--stop")
        over(job)
    assert last.returncode == 0, last.stderr
    assert flow.Checkpoint(work / "slow").kind == "savepoint", "the job went on with it"
    assert not (work / "late" / "manifest.json").exists()
    assert not (work / "held" / "manifest.json").exists()


def test_a_job_that_was_killed_is_told_from_one_that_runs(work: Path) -> None:
    with running(work) as job:
        job.kill()
        job.wait(60)
    dead = savepoint(work, "ckpt", "sp")
    assert dead.returncode == 2
    assert f"process {job.pid}" in dead.stderr
    assert "has ended without unlocking it, as after SIGKILL; start the job again" in dead.stderr
    with running(work) as job:
        assert savepoint(work, "ckpt", "sp").returncode == 0
        assert savepoint(work, "ckpt", "end", "--stop").returncode == 0
        over(job)
