"""A kind of operator from outside the library runs on Spark, whose workers import the module that defines it."""

from __future__ import annotations

from typing import Any

import dataflow as flow
from tests.planning.test_open_families import check, pipeline


def test_it_runs_on_spark(spark: Any) -> None:
    check(pipeline().run(flow.SparkRunner(spark, rows_per_trigger=200), parallelism=2, max_key_groups=2))
