"""One Spark session for the whole run of tests: starting it costs more than all of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from dataflow.runners.spark.session import missing
from tests.runners.spark.engine import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Skips where Spark cannot run, with what to install; on CI that fails."""
    problem = missing()
    if problem is not None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print each expected error with its stack
    made = session(tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()
