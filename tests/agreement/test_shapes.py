"""Pipelines of every shape give the same tables on threads, on seeded schedules and on Spark.

Threads and schedules run the shapes kind by kind: what chooses among few tasks chooses sooner one that has work.
On Spark all shapes run as one pipeline, for its fixed costs are those of a query and of a micro-batch. ``-m soak`` runs
them kind by kind, with one lane, so that everything is settled, and with three, in short and long micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import dataflow as flow
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.shapes.keyed import KEYED
from tests.agreement.shapes.rowwise import ROWWISE
from tests.agreement.shapes.scene import Scene, Shape, pictured
from tests.agreement.shapes.timed import TIMED

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

KINDS: Mapping[str, Sequence[Shape]] = {"rowwise": ROWWISE, "keyed": KEYED, "timed": TIMED}
EVERYTHING = [shape for shapes in KINDS.values() for shape in shapes]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return pictured("everything", EVERYTHING, tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def local(scene: Scene) -> flow.RunResult:
    return scene.pipeline.run(parallelism=1, timeout="60s")


@pytest.fixture(scope="module", params=KINDS)
def some(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The shapes of one kind."""
    return pictured(request.param, KINDS[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def threads(some: Scene) -> flow.RunResult:
    """What they give on threads, one a task."""
    return some.pipeline.run(parallelism=1, timeout="60s")


def test_two_tasks_give_what_one_gives(some: Scene, threads: flow.RunResult) -> None:
    agree(some.pipeline.run(parallelism=2, timeout="60s"), threads, some)


def test_a_seeded_schedule_gives_what_threads_give(some: Scene, threads: flow.RunResult) -> None:
    agree_in_all(some.pipeline.run(flow.SimulatedRunner(seed=1), parallelism=1), threads, some)


@pytest.mark.parametrize(
    ("some", "seed"),
    [*((kind, 1) for kind in KINDS), pytest.param("timed", 2, marks=pytest.mark.soak)],
    indirect=["some"],
)
def test_a_seeded_schedule_of_two_tasks_gives_what_threads_give(
    some: Scene, threads: flow.RunResult, seed: int
) -> None:
    agree(some.pipeline.run(flow.SimulatedRunner(seed, Faults(skew=0.3)), parallelism=2), threads, some)


def test_spark_with_two_lanes_gives_the_same_tables(scene: Scene, local: flow.RunResult, spark: Any) -> None:
    agree(scene.pipeline.run(runner(spark, 4_000, local), parallelism=2, max_key_groups=3), local, scene)


def test_spark_with_one_lane_gives_the_same_late_rows_and_counters(spark: Any, tmp_path: Path) -> None:
    scene = pictured("timed", TIMED, tmp_path)
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    agree_in_all(scene.pipeline.run(runner(spark, 600, local), parallelism=1, max_key_groups=3), local, scene)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [60, 10_000], ids="{}-rows-a-source".format)
@pytest.mark.parametrize("kind", KINDS)
def test_spark_agrees_kind_by_kind(kind: str, rows: int, spark: Any, tmp_path: Path) -> None:
    scene = pictured(kind, KINDS[kind], tmp_path)
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    agree_in_all(scene.pipeline.run(runner(spark, rows, local), parallelism=1, max_key_groups=5), local, scene)
    agree(scene.pipeline.run(runner(spark, rows, local), parallelism=3, max_key_groups=7), local, scene)


def runner(spark: Any, rows: int, local: flow.RunResult) -> SparkRunner:
    """Micro-batches of about so many ``rows`` of every source."""
    return SparkRunner(spark, rows_per_trigger=rows * len(local.rows_in))
