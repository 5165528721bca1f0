"""One Spark session for all tests; each job on threads is checked for liveness.

Hypothesis: ``HYPOTHESIS_PROFILE=thorough`` for a long look, else the quick one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.liveness import check_every_job
from tests.needs import need_spark
from tests.tiers import Plugin, keep_files_in_memory

check_every_job()


settings.register_profile("inner loop", max_examples=20, deadline=None)
settings.register_profile("quick", max_examples=100, deadline=None)
settings.register_profile("thorough", max_examples=5_000, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config), "tiers")
    keep_files_in_memory(config)
    usual = "inner loop" if config.option.markexpr == "quick" else "quick"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Starting it costs more than most tests. Skips where Spark cannot run, with what to install; on CI that fails."""
    need_spark()
    from tests.runners.spark.engine import session

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print each expected error with its stack
    made = session(tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()
