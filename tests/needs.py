"""What some tests need and not every machine has."""

from __future__ import annotations

import os

import pytest

from dataflow.runners.spark.session import missing

__all__ = ["need_spark"]


def need_spark() -> None:
    """Skips where Spark cannot run, with what to install; on CI that fails."""
    problem = missing()
    if problem is not None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
