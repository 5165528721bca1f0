"""Input files made once a session."""

from __future__ import annotations

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
