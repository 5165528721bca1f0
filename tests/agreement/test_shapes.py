"""Pipelines of every shape give the same tables on threads, on seeded schedules and on Spark."""

from __future__ import annotations

from typing import Any

import pytest

import dataflow as flow
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.shapes.keyed import KEYED
from tests.agreement.shapes.rowwise import ROWWISE
from tests.agreement.shapes.scene import Scene, pictured
from tests.agreement.shapes.timed import TIMED

CATALOGUE = {"rowwise": ROWWISE, "keyed": KEYED, "timed": TIMED}


@pytest.fixture(scope="module", params=CATALOGUE)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return pictured(request.param, CATALOGUE[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def local(scene: Scene) -> flow.RunResult:
    """On one thread's tasks."""
    return scene.pipeline.run(parallelism=1, timeout="60s")


def test_two_tasks_give_what_one_gives(scene: Scene, local: flow.RunResult) -> None:
    agree(scene.pipeline.run(parallelism=2, timeout="60s"), local, scene)


@pytest.mark.parametrize("seed", range(2))
def test_a_seeded_schedule_gives_what_threads_give(seed: int, scene: Scene, local: flow.RunResult) -> None:
    agree_in_all(scene.pipeline.run(flow.SimulatedRunner(seed), parallelism=1), local, scene)


@pytest.mark.parametrize("seed", range(2))
def test_seeded_schedules_of_two_tasks_give_what_threads_give(seed: int, scene: Scene, local: flow.RunResult) -> None:
    runner = flow.SimulatedRunner(seed, Faults(skew=0.3))
    agree(scene.pipeline.run(runner, parallelism=2), local, scene)


def test_spark_with_one_lane_gives_the_same_rows_late_ones_and_counters_included(
    scene: Scene, local: flow.RunResult, spark: Any
) -> None:
    found = scene.pipeline.run(SparkRunner(spark, rows_per_trigger=3_000), parallelism=1, max_key_groups=3)
    agree_in_all(found, local, scene)


def test_spark_with_two_lanes_gives_the_same_tables(scene: Scene, local: flow.RunResult, spark: Any) -> None:
    found = scene.pipeline.run(SparkRunner(spark, rows_per_trigger=6_000), parallelism=2, max_key_groups=4)
    agree(found, local, scene)
