"""Flights and generated bids on all engines: the same tables, the same late rows, the same counts of them.

Windows and batches lie across micro-batches, however long these are.
"""

from __future__ import annotations

from typing import Any

import pytest

import dataflow as flow
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.shapes.real import REAL
from tests.agreement.shapes.scene import Scene, pictured

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return pictured("flights and bids", REAL, tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def local(scene: Scene) -> flow.RunResult:
    result = scene.pipeline.run(parallelism=1, timeout="60s")
    counts = {name: result.operator(name).late for name in ("quarters", "auctions", "lenient")}
    assert min(counts.values()) > 0, f"nothing is tried where nothing is late: {counts}"
    return result


@pytest.mark.soak
def test_a_seeded_schedule_gives_the_same_late_rows(scene: Scene, local: flow.RunResult) -> None:
    agree_in_all(scene.pipeline.run(flow.SimulatedRunner(seed=4), parallelism=1), local, scene)


@pytest.mark.soak
def test_tasks_that_meet_in_any_order_give_the_same_tables(scene: Scene, local: flow.RunResult) -> None:
    agree(scene.pipeline.run(parallelism=2, timeout="60s"), local, scene)
    agree(scene.pipeline.run(flow.SimulatedRunner(5, Faults(skew=0.3)), parallelism=2), local, scene)


@pytest.mark.soak
def test_spark_gives_the_same_late_rows(scene: Scene, local: flow.RunResult, spark: Any) -> None:
    found = scene.pipeline.run(SparkRunner(spark, rows_per_trigger=5_000), parallelism=1, max_key_groups=3)
    agree_in_all(found, local, scene)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [900, 3_333, 1_000_000])
def test_spark_gives_the_same_late_rows_however_long_a_micro_batch_is(
    scene: Scene, local: flow.RunResult, spark: Any, rows: int
) -> None:
    agree_in_all(scene.pipeline.run(SparkRunner(spark, rows_per_trigger=rows), parallelism=1), local, scene)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [2_000, 1_000_000])
def test_spark_with_two_lanes_gives_the_same_tables(scene: Scene, local: flow.RunResult, spark: Any, rows: int) -> None:
    agree(scene.pipeline.run(SparkRunner(spark, rows_per_trigger=rows), parallelism=2), local, scene)
