"""Random pipelines give the same tables on threads, on seeded schedules and on Spark.

On Spark several recipes are one pipeline. The long look, 120 recipes in some ten minutes with two cores:

    pytest -m soak tests/agreement/test_random_pipelines.py --hypothesis-show-statistics
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dataflow as flow
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.random_pipelines import Recipe, cooked, recipes
from tests.agreement.shapes.scene import Scene
from tests.seeds import part_of_the_examples

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")


def scene_of(chosen: Sequence[Recipe], files: Path | None = None) -> Scene:
    """All recipes in one pipeline; ``files``: a folder for its sources, if they are Parquet files."""
    with flow.Pipeline("random") as p, tempfile.TemporaryDirectory() as folder:
        scene = Scene(p, files or Path(folder), in_files=files is not None)
        for number, recipe in enumerate(chosen):
            scene.label = f"{number}"
            cooked(scene, recipe)
    return scene


@settings(part_of_the_examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recipes(), st.integers(0, 1_000))
def test_schedules_give_what_threads_give(recipe: Recipe, seed: int) -> None:
    scene = scene_of([recipe])
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    agree(scene.pipeline.run(parallelism=2, timeout="60s"), local, scene)
    agree_in_all(scene.pipeline.run(flow.SimulatedRunner(seed), parallelism=1), local, scene)
    agree(scene.pipeline.run(flow.SimulatedRunner(seed, Faults(skew=0.3)), parallelism=2), local, scene)


def several(count: int) -> st.SearchStrategy[list[Recipe]]:
    """So many recipes, some of them with rows: the first that hypothesis draws is the least there is."""
    drawn = st.lists(recipes(), min_size=count, max_size=count)
    return drawn.filter(lambda chosen: sum(recipe.rows > 9 for recipe in chosen) >= count // 3)


def on_spark(spark: Any, chosen: Sequence[Recipe], lanes: int, rows: int) -> None:
    scene = scene_of(chosen)
    local = scene.pipeline.run(parallelism=1, timeout="60s")
    runner = SparkRunner(spark, rows_per_trigger=rows * lanes * len(local.rows_in))
    found = scene.pipeline.run(runner, parallelism=lanes, max_key_groups=lanes + 1)
    (agree_in_all if lanes == 1 else agree)(found, local, scene)


ONCE = (Phase.explicit, Phase.reuse, Phase.generate)
"""Shrinking would take minutes; the recipes are printed."""


@pytest.mark.soak
@settings(max_examples=1, deadline=None, phases=ONCE, suppress_health_check=list(HealthCheck))
@given(several(6))
def test_spark_gives_what_threads_give(spark: Any, chosen: list[Recipe]) -> None:
    on_spark(spark, chosen, lanes=1, rows=60)


@pytest.mark.soak
@settings(max_examples=8, deadline=None, phases=ONCE, suppress_health_check=list(HealthCheck))
@given(several(15), st.sampled_from([1, 1, 2]), st.sampled_from([50, 100, 10_000]))
def test_spark_gives_what_threads_give_in_the_long_run(spark: Any, chosen: list[Recipe], lanes: int, rows: int) -> None:
    on_spark(spark, chosen, lanes, rows)
