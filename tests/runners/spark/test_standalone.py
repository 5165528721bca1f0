"""Streams and batches on a standalone cluster with two workers: what they leave is what a local run does.

Some are killed on the way: the driver, driver and JVM, an executor. All of it is a campaign of some minutes::

    pytest tests/runners/spark/test_standalone.py -m soak
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import need_spark
from tests.runners.spark import child, child_of_batches
from tests.runners.spark.child import LANES, OUTPUTS
from tests.runners.spark.standalone import WORKERS, Cluster, standalone
from tests.runners.spark.test_kills import Life, kill, rounds, rows, survive, waited_for

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_spark()
    with standalone(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of local runs: of the stream, and below ``batch`` of the batch."""
    directory = tmp_path_factory.mktemp("expected")
    child.pipeline(directory).run(parallelism=LANES)
    child_of_batches.pipeline(directory / "batch").run(execution="batch")
    return directory


def check(work: Path, expected: Path) -> None:
    for output in OUTPUTS:
        assert rows(work / output) == rows(expected / output), output


def lose_executor(cluster: Cluster, life: Life) -> None:
    """Kill one of the two executors, as soon as both are there."""
    waited_for(life, lambda: len(cluster.executors()) == WORKERS)
    kill(cluster.executors()[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_whose_driver_is_killed_is_resumed(
    seed: int, cluster: Cluster, expected: Path, tmp_path: Path
) -> None:
    assert survive(tmp_path / "work", cluster.master, kills=2, seed=seed)
    check(tmp_path / "work", expected)


@pytest.mark.parametrize("micro_batch", range(3))
def test_a_stream_goes_on_without_an_executor_that_is_lost(
    micro_batch: int, cluster: Cluster, expected: Path, tmp_path: Path
) -> None:
    life = Life(tmp_path, cluster.master)
    for begun in rounds(tmp_path):
        assert life.process.poll() is None, life.log.read_text()[-3_000:]
        if begun >= micro_batch:
            break
    lose_executor(cluster, life)
    assert life.wait() == 0, life.log.read_text()[-3_000:]
    check(tmp_path, expected)


@pytest.mark.parametrize("seconds", [0, 1, 3])
def test_a_batch_goes_on_without_an_executor_that_is_lost(
    seconds: float, cluster: Cluster, expected: Path, tmp_path: Path
) -> None:
    life = Life(tmp_path, cluster.master, "child_of_batches.py")
    waited_for(life, lambda: "begins" in life.log.read_text())
    threading.Event().wait(seconds)
    lose_executor(cluster, life)
    assert life.wait() == 0, life.log.read_text()[-3_000:]
    assert "done: " in life.log.read_text()
    check(tmp_path, expected / "batch")
