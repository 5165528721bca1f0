"""The directory of a job on Spark that was killed, continued; see ``test_golden``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dataflow as flow
from dataflow.errors import RowsTakenBackWarning
from tests.golden.archives import SPARK, unpack
from tests.golden.job import Rows, outputs, pipeline


def test_a_kept_job_of_spark_continues_exactly_once(spark: Any, expected: dict[str, Rows], tmp_path: Path) -> None:
    work = unpack(SPARK, tmp_path)
    checkpoint = flow.Checkpointing(work / "ckpt")
    runner = flow.SparkRunner(spark, rows_per_trigger=100_000)
    with pytest.warns(RowsTakenBackWarning):
        report = pipeline(work).run(runner, parallelism=2, max_key_groups=4, checkpoint=checkpoint).restore_report
    assert report is not None
    assert outputs(work) == expected
