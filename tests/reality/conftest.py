"""Input files made once a session, and a look at what a test leaves behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def write_orders(directory: Path, *, files: int, groups: int, rows: int) -> Path:
    """Files of ``groups`` row groups of ``rows`` rows: id, key (skewed), amount (a fifth of them not above zero)."""
    dice = np.random.default_rng(7)
    directory.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        n = groups * rows
        table = pa.table(
            {
                "id": np.arange(file * n, (file + 1) * n),
                "key": (dice.random(n) ** 3 * 500).astype(np.int64),
                "amount": dice.integers(-25, 100, n),
            }
        )
        pq.write_table(table, directory / f"orders-{file}.parquet", row_group_size=rows)
    return directory


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240,000 rows in two files of four row groups."""
    return write_orders(tmp_path_factory.mktemp("orders"), files=2, groups=4, rows=30_000)


@pytest.fixture
def few_orders(tmp_path: Path) -> Path:
    """8,000 rows in two files of four row groups, which the test may damage."""
    return write_orders(tmp_path / "orders", files=2, groups=4, rows=1_000)


def engine_threads() -> list[str]:
    """The threads of jobs in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dataflow-")]


def open_files() -> list[str]:
    """What this process has open, but for what pyarrow's and Python's own machinery holds."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
            found.append(target)
    return sorted(found)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    before = open_files()
    yield
    assert engine_threads() == []
    assert [name for name in open_files() if name not in before] == []
