"""One Spark session for all tests; each job on threads is checked for liveness; kernels are compiled before all tests.

Hypothesis: the quick profile has the same examples in each run. ``-m soak``, and ``HYPOTHESIS_PROFILE=thorough`` for a
long look, draw new ones, and print how to draw those that failed again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dataflow.contracts.folding import FoldAll
from dataflow.kernel_cache.file_names import package_modules
from dataflow.kernel_cache.two_processes import missing_loops
from dataflow.runners.drawn_policies import DrawnPolicies
from dataflow.runners.local import LocalRunner
from operators.aggregation.combine import CombineOperator
from tests.costs import Counters
from tests.drawing.browser import Browser
from tests.forcing import Force, forced
from tests.liveness import check_every_job
from tests.needs import need_spark
from tests.seeds import leave_out_other_tiers
from tests.tiers import Plugin, keep_files_in_memory

check_every_job()


settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("campaign", max_examples=25, deadline=None, print_blob=True)
settings.register_profile("thorough", max_examples=5_000, deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts jobs in the background so
        signal.signal(signal.SIGINT, signal.default_int_handler)
    counters = Counters()
    counters.install()
    config.pluginmanager.register(Plugin(config, counters), "tiers")
    keep_files_in_memory(config)
    leave_out_other_tiers(config)
    if not hasattr(config, "workerinput"):
        compile_kernels()
    usual = "campaign" if config.option.markexpr == "soak" else "quick"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def compile_kernels() -> None:
    """Fill the kernel cache, so that no process of a test says that it compiles."""
    if missing_loops(package_modules()).modules:
        subprocess.run([sys.executable, "-m", "dataflow", "warm"], cwd=Path(__file__).parents[1], check=True)


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, which measures pictures; it fails where Chromium or a font is not installed, with what to install."""
    with Browser() as process:
        yield process


@pytest.fixture
def force() -> Iterator[Force]:
    """Set constants until the test ends; see `forced`."""
    with ExitStack() as stack:
        yield lambda *constant, **path: stack.enter_context(forced(*constant, **path))


@pytest.fixture
def folded(force: Force) -> None:
    """Fold each batch before a shuffle, on threads and on simulated runners."""
    force(LocalRunner, "_folding", FoldAll, calls=CombineOperator._fold_into)
    force(DrawnPolicies, "folding", lambda policies: FoldAll(), calls=CombineOperator._fold_into)
