"""SIGKILL of a job on Spark: what it leaves in the end is what an undisturbed local run does.

Killed are driver, JVM and workers together, the workers, or the driver alone, whose JVM the next life may still meet.
The long campaign, 20 kills with executors in processes of their own, and one that is lost while its job goes on::

    pytest tests/runners/spark/test_kills.py -m soak -s
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dataflow as flow
import operators as op
from dataflow.errors import DirectoryInUse
from dataflow.runners.spark.job_directory import JobDirectory
from tests.needs import need_spark
from tests.runners.spark.child import LANES, OUTPUTS, pipeline
from tests.runners.spark.engine import ROOT

LIMIT = 180
"""Seconds a life may take."""


class Life:
    """One process of the job, and all that it started."""

    def __init__(self, work: Path, master: str, script: str = "child.py", limit: int = LIMIT) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(Path(__file__).with_name(script)), str(work), master]
        self.log = work / "log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._limit = threading.Timer(limit, self.kill_tree)
        self._limit.start()

    def tree(self) -> list[int]:
        """The process ids of this life, older ones first, also of those whose parent is gone."""
        everyone = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in everyone if _session(pid) == self.process.pid]

    def kill_tree(self) -> None:
        for pid in self.tree():
            kill(pid)

    def kill_workers(self) -> bool:
        """SIGKILL the Python workers of Spark; False: there are none."""
        workers = [pid for pid in self.tree() if b"pyspark" in command_of(pid) and b"daemon" in command_of(pid)]
        for pid in workers:
            kill(pid)
        return bool(workers)

    def strike(self, kind: str) -> str:
        """SIGKILL what ``kind`` says; answers what it was, for there need not be workers yet."""
        if kind == "driver":
            kill(self.process.pid)
        elif kind != "workers" or not self.kill_workers():
            self.kill_tree()
            return "tree"
        return kind

    def executors(self) -> list[int]:
        """The JVMs that are executors."""
        return [pid for pid in self.tree() if b"CoarseGrainedExecutorBackend" in command_of(pid)]

    def wait(self) -> int:
        try:
            return self.process.wait()
        finally:
            self._limit.cancel()


def _session(pid: int) -> int:
    """The process that began the session of ``pid``; 0: it is gone, or only its parent has to take note of it."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state == "Z" else int(session)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def rounds(work: Path) -> Iterator[int]:
    """How many micro-batches have begun, again and again, while somebody looks."""
    pause = threading.Event()
    while True:
        offsets = work / "job" / "spark" / "offsets"
        yield max([int(f.name) for f in offsets.iterdir() if f.name.isdigit()], default=0) if offsets.is_dir() else 0
        pause.wait(0.02)


KINDS = ("tree", "driver", "workers")


class Strike(NamedTuple):
    """What was killed, in which micro-batch, and how many processes were still there when the next life began."""

    kind: str
    round: int
    left: int


def survive(work: Path, master: str, kills: int, seed: int, child: str = "child.py") -> list[Strike]:
    """Kill the job so often, each time a little further on, then let it come to its end; answers what was killed.

    All kinds take turns. Of a driver that is killed alone the rest is left to itself, and the next life begins at once.
    A stream whose workers are killed restarts by itself, and lives on until the next kill.
    """
    rng = random.Random(seed)
    work.mkdir()
    struck: list[Strike] = []
    lives: list[Life] = []
    aim = 0
    with ExitStack() as ends:
        while True:
            life, before = Life(work, master, child), len(struck)
            ends.callback(life.kill_tree)
            if lives and struck[-1].kind == "driver":
                struck[-1] = struck[-1]._replace(left=len(lives[-1].tree()))
            lives.append(life)
            while len(struck) < kills and life.process.poll() is None:
                aim += rng.randrange(2)
                found = 0
                for found in rounds(work):
                    if found > aim or life.process.poll() is not None:
                        break
                threading.Event().wait(rng.random() * 0.6)  # anywhere in a micro-batch
                if life.process.poll() is None:
                    kind = KINDS[(seed + len(struck)) % len(KINDS)]
                    struck.append(Strike(life.strike(kind), found, 0))
                    if struck[-1].kind != "workers":
                        break
                    aim = found
            if life.wait() == 0:
                return struck
            assert len(struck) > before, life.log.read_text()[-3_000:]
            if struck[-1].kind != "driver":
                life.kill_tree()


def rows(directory: Path) -> list[str]:
    return sorted(map(repr, op.read_committed(directory).to_pylist()))


def check(work: Path, expected: Path) -> None:
    for output in OUTPUTS:
        assert rows(work / output) == rows(expected / output), output


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a local run without kills; no row is late, so the order of source tasks does not matter."""
    need_spark()
    directory = tmp_path_factory.mktemp("expected")
    result = pipeline(directory).run(parallelism=LANES)
    assert result.late == 0
    return directory


@pytest.mark.soak
def test_a_job_that_is_killed_leaves_what_an_undisturbed_one_does(expected: Path, tmp_path: Path) -> None:
    struck = survive(tmp_path / "work", "local[2]", kills=1, seed=5)
    assert struck
    check(tmp_path / "work", expected)


def test_a_job_is_refused_a_directory_that_another_process_holds(spark: Any, tmp_path: Path) -> None:
    job = tmp_path / "job"
    with JobDirectory(job).lock("first"):
        before = (job / "FENCE").read_text()
        with pytest.raises(DirectoryInUse, match=rf"job is in use by process {os.getpid()} on .* wait for that job"):
            pipeline(tmp_path).run(flow.SparkRunner(spark), checkpoint=flow.Checkpointing(job))
        assert (job / "FENCE").read_text() == before


@pytest.mark.soak  # tests/golden continues the directory of a job on Spark that was killed
def test_of_two_jobs_in_a_directory_one_runs_until_it_is_killed(spark: Any, expected: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    options: dict[str, Any] = {"parallelism": LANES, "max_key_groups": 4, "checkpoint": flow.Checkpointing(job)}
    runner = flow.SparkRunner(spark, rows_per_trigger=20_000)
    life = Life(tmp_path, "local[2]")
    waited_for(life, lambda: (job / "spark" / "offsets" / "0").exists())
    before = (job / "FENCE").read_text()
    with pytest.raises(DirectoryInUse, match=rf"job is in use by process {life.process.pid} on .* wait for that job"):
        pipeline(tmp_path).run(runner, **options)
    assert (job / "FENCE").read_text() == before
    life.kill_tree()
    assert life.wait() == -signal.SIGKILL
    pipeline(tmp_path).run(runner, **options)
    check(tmp_path, expected)


def put(work: Path, name: str, rows: range) -> None:
    """A file for the directory that is watched."""
    whole = work / "in" / f"{name}.tmp"
    whole.write_text("x\n" + "".join(f"{x}\n" for x in rows))
    whole.rename(whole.with_suffix(".csv"))


def waited_for(life: Life, found: Callable[[], bool]) -> None:
    while not found():
        assert life.process.poll() is None, life.log.read_text()[-3_000:]
        threading.Event().wait(0.02)


@pytest.mark.soak
def test_a_source_task_whose_executor_is_lost_is_read_again_as_it_was(tmp_path: Path) -> None:
    need_spark()
    (tmp_path / "in").mkdir()
    for n in range(12):
        put(tmp_path, f"a{n}", range(10 * n, 10 * n + 10))
    life = Life(tmp_path, "local-cluster[2,1,1024]", "watching.py", limit=2 * LIMIT)
    waited_for(life, lambda: any(tmp_path.glob("executor-*")))
    for n in range(12, 24):  # more than there was when the source tasks were first read
        put(tmp_path, f"b{n}", range(10 * n, 10 * n + 10))
    waiting = {int(path.name.partition("-")[2]) for path in tmp_path.glob("executor-*")}
    executors = life.executors()
    assert len(executors) == 2
    kill(min(executors, key=lambda pid: pid in waiting))  # the one that does not wait, if there is such a one
    (tmp_path / "go").touch()
    waited_for(life, lambda: any(tmp_path.glob("out/_commits/*.json")) and len(rows(tmp_path / "out")) >= 240)
    (tmp_path / "stop").touch()
    assert life.wait() == 0, life.log.read_text()[-3_000:]
    assert op.read_committed(tmp_path / "out")["x"].sort().to_pylist() == list(range(240))
    read = (tmp_path / "read").read_text().split()
    assert len(read) > len(set(read)), "no source task was read again"


@pytest.mark.soak
def test_twenty_kills_lose_and_repeat_no_row(expected: Path, tmp_path: Path) -> None:
    struck: list[Strike] = []
    seed = 0
    while len(struck) < 20:
        work = tmp_path / f"work-{seed}"
        master = "local-cluster[2,1,1024]" if seed % 2 else "local[2]"
        found = survive(work, master, kills=4, seed=seed)
        check(work, expected)
        print(f"\n{master}: {found}")
        struck += found
        seed += 1
    assert {strike.kind for strike in struck} == set(KINDS)
