"""A batch on Spark gives what a batch on threads gives, cell by cell, for random pipelines.

Half of them read tables, in tasks, and half of them Parquet files, which Spark reads itself.

The long look, 240 recipes: ``pytest -m soak tests/agreement/test_batches_on_spark.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agreement.engines import agree_in_all
from tests.agreement.random_pipelines import Recipe
from tests.agreement.test_batches import check_rows_come_once
from tests.agreement.test_random_pipelines import ONCE, scene_of, several


def on_spark(spark: Any, chosen: list[Recipe], tasks: int, partitions: int, *, in_files: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = scene_of(chosen, Path(folder) if in_files else None)
        expected = scene.pipeline.run(execution="batch")
        found = scene.pipeline.run("spark", execution="batch", parallelism=tasks, max_key_groups=partitions)
    agree_in_all(found, expected, scene)
    check_rows_come_once(found, scene)


@pytest.mark.parametrize("in_files", [pytest.param(False, marks=pytest.mark.soak), True], ids=["tables", "files"])
@settings(max_examples=1, deadline=None, phases=ONCE, suppress_health_check=list(HealthCheck))
@given(chosen=several(6))
def test_a_batch_on_spark_gives_what_threads_give(spark: Any, in_files: bool, chosen: list[Recipe]) -> None:  # noqa: FBT001
    on_spark(spark, chosen, tasks=2, partitions=3, in_files=in_files)


@pytest.mark.soak
@settings(max_examples=16, deadline=None, phases=ONCE, suppress_health_check=list(HealthCheck))
@given(several(15), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_batches_on_spark_in_the_long_run(
    spark: Any,
    chosen: list[Recipe],
    tasks: int,
    partitions: int,
    in_files: bool,  # noqa: FBT001
) -> None:
    on_spark(spark, chosen, tasks, partitions, in_files=in_files)
