"""Pipelines of every shape give the same tables on Spark as on threads.

The shapes of a kind run as one pipeline, because each query and each micro-batch has fixed costs. ``-m soak`` runs all
kinds with one lane, so that every figure is settled, with two and with three, in short and long micro-batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dataflow as flow
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.shapes.scene import pictured
from tests.agreement.shapes.timed import TIMED
from tests.agreement.test_shapes import KINDS

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")]


@pytest.mark.parametrize("kind", KINDS)
def test_spark_with_two_lanes_gives_the_same_tables(kind: str, spark: Any, tmp_path: Path) -> None:
    scene = pictured(kind, KINDS[kind], tmp_path)
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    agree(scene.pipeline.run(runner(spark, 10_000, local), parallelism=2, max_key_groups=3), local, scene)


def test_spark_with_one_lane_gives_the_same_late_rows_and_counters(spark: Any, tmp_path: Path) -> None:
    scene = pictured("timed", TIMED, tmp_path)
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    agree_in_all(scene.pipeline.run(runner(spark, 600, local), parallelism=1, max_key_groups=3), local, scene)


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
