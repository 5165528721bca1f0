"""One Spark session for the whole run of tests: starting it costs more than all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import need_spark
from tests.runners.spark.engine import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Skips where Spark cannot run, with what to install; on CI that fails."""
    need_spark()
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print each expected error with its stack
    made = session(tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()
