"""The comparison on Spark: engines agree on a job without state, and the figures have the promised shape.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jobs.bids import Bids
from benchmarks.spark import many_files
from benchmarks.spark.engines import JOBS, Order
from benchmarks.spark.kept_keys import measured
from benchmarks.spark.unit_costs import costs
from tests.documents import ROOT
from tests.needs import need_spark


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "benchmarks.spark", *arguments]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.soak
@pytest.mark.parametrize("job", ["S1", "J2"])
def test_engines_give_equal_answers_over_few_bids(job: str, spark: Any, tmp_path: Path) -> None:
    files = [str(file) for file in Bids.below(tmp_path, 2_000).segments()]
    answers = []
    for engine in ("ours", "native"):
        rows = JOBS[job][engine](spark, Order(job, files, 2_000, tmp_path / engine))()
        answers.append(sorted(rows.to_pylist(), key=str))
    assert answers[0] == answers[1]


@pytest.mark.soak
def test_one_round_over_few_bids_gives_figures_of_both_engines(tmp_path: Path) -> None:
    need_spark()
    few = ("--jobs=S1", "--engines=ours", "--rows=2000", "--rows-per-trigger=2000", "--pairs=1")
    done = command(*few, f"--folder={tmp_path}", f"--json={tmp_path}/found.json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [one["engine"] for one in found] == ["ours", "native"]
    assert min(one[name] for one in found for name in ("wall", "cpu", "rows", "peak", "checkpoint")) > 0
    assert "S1: rows per CPU-second, ours over Spark's own: " in done.stdout


def test_sums_beside_kept_keys_are_checked_and_measured(spark: Any, tmp_path: Path) -> None:
    found = measured(spark, kept=400, hot=100, micro_batches=2, folder=tmp_path)
    assert len(found.cpu) == 2
    assert min(*found.cpu, found.peak, found.stored) > 0


def test_windows_over_many_files_are_checked_and_measured(spark: Any, tmp_path: Path) -> None:
    found = many_files.measured(spark, 30, micro_batches=3, folder=tmp_path)
    assert found.files == 30
    assert found.start > 0
    assert len(found.cpu) >= 2


@pytest.mark.soak
def test_every_cost_is_measured(spark: Any, tmp_path: Path) -> None:
    found = costs(spark, tmp_path, scale=50)
    assert len(found) == 7
    assert found["a micro-batch"] > 0
    assert found["bytes stored of a key"] > 16


def test_an_unknown_job_is_refused_with_those_there_are() -> None:
    done = command("--jobs=J2,J9")
    assert done.returncode == 2
    assert "'J9' is none of J2, J3, S1, K1" in done.stderr


ALONE = """
import subprocess, sys
from benchmarks.spark.usage import Peak, cpu_seconds, watched
before, alone = cpu_seconds(), Peak()
alone.look()
busy = "import time; rows = bytearray(64 << 20)\\nwhile time.process_time() < 0.6: pass\\nprint(flush=True); input()"
with watched() as peak:
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    peak.look()
    child.communicate(b"\\n")
print(cpu_seconds() - before, peak.size - alone.size)
"""
"""In a process of its own: this one may have other children, which come and go."""


def test_children_count_with_their_time_and_memory() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, size = map(float, done.stdout.split())
    assert seconds >= 0.5
    assert size >= 32 << 20
