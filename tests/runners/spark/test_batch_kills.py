"""SIGKILL of a batch on Spark: in the end its output is that of an undisturbed local run.

Killed are driver, JVM and workers together, the driver alone, the workers, or an executor. The long look, 25 jobs::

    pytest -m soak tests/runners/spark/test_batch_kills.py
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.needs import need_spark
from tests.runners.spark.child import OUTPUTS
from tests.runners.spark.child_of_batches import pipeline
from tests.runners.spark.test_kills import Life, command_of, kill, rows
from tests.seeds import in_soak

KILLS = 2
CLUSTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_spark()
    directory = tmp_path_factory.mktemp("expected")
    pipeline(directory).run(execution="batch")
    return directory


def wait_for_session(life: Life, before: int) -> None:
    """Wait until the session of a life has started, after ``before`` lives in the same log."""
    while life.log.read_text().count("begins") <= before and life.process.poll() is None:
        threading.Event().wait(0.05)


def lose_executor(life: Life) -> None:
    executors = [pid for pid in life.tree() if b"CoarseGrainedExecutorBackend" in command_of(pid)]
    for pid in executors[:1]:
        kill(pid)


def survive(work: Path, master: str, kinds: list[str], draw: Random) -> list[str]:
    """Run the job until it ends; in each of the first lives something is killed. Return the kinds that hit a life."""
    work.mkdir()
    hit: list[str] = []
    with ExitStack() as ends:
        for number in range(len(kinds) + 3):
            life = Life(work, master, "child_of_batches.py")
            ends.callback(life.kill_tree)
            wait_for_session(life, number)
            if number < len(kinds):
                threading.Event().wait(draw.uniform(0, 5))
                if life.process.poll() is None:
                    hit.append(kinds[number])
                    lose_executor(life) if kinds[number] == "executor" else life.strike(kinds[number])
            if life.wait() == 0 and number >= len(kinds) - 1:
                return hit
            life.kill_tree()
    raise AssertionError(life.log.read_text()[-3_000:])


@pytest.mark.parametrize("seed", in_soak(*range(20)))
def test_a_batch_that_is_killed_gives_what_an_undisturbed_one_gives(seed: int, tmp_path: Path, expected: Path) -> None:
    draw, work = Random(seed), tmp_path / "work"
    kinds = [draw.choice(["tree", "driver", "workers"]) for _ in range(KILLS)]
    survive(work, draw.choice(["local[2]", "local[2,4]"]), kinds, draw)
    check(work, expected)


@pytest.mark.parametrize("seed", in_soak(*range(5)))
def test_an_executor_is_lost_while_the_batch_goes_on(seed: int, tmp_path: Path, expected: Path) -> None:
    work = tmp_path / "work"
    survive(work, CLUSTER, ["executor"], Random(seed))
    assert "done: " in (work / "log").read_text()
    check(work, expected)


def check(work: Path, expected: Path) -> None:
    for output in OUTPUTS:
        assert rows(work / output) == rows(expected / output), output
    assert list(work.rglob("*.staged")) == []
    (manifest,) = (work / "job").glob("*/manifest.json")
    assert manifest.exists()
