"""The README's first pipeline over a larger CSV file: killed with SIGKILL, started again, held against two readers."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc_csv
import pytest

from tests.agreement.data import rows_of
from tests.reality.harness import Aim, spawn, wait_for
from tests.reality.remains import manifests

CHILD = Path(__file__).with_name("per_minute.py")
ROWS, KILLS = 150_000, 3
PACED, AT_ONCE = 20_000, 10**9
"""Rows a second: in a life that is killed (so slow that it cannot end before), and in the last one."""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders of three shops from before 1970 on, ten a second, out of order by up to 5 s."""
    draw = np.random.default_rng(4)
    times = np.arange(-ROWS // 2, ROWS // 2) * 100_000 - draw.integers(0, 5_000_000, ROWS)
    columns = {
        "time": pa.array(times, pa.timestamp("us")),
        "shop": pa.array(draw.choice(["north", "south", "east"], ROWS)),
        "price": pa.array(draw.integers(0, 50, ROWS)),
    }
    path = tmp_path_factory.mktemp("orders") / "orders.csv"
    pc_csv.write_csv(pa.table(columns), path)
    return path


def live(orders: Path, work: Path, rate: int, dice: random.Random | None = None) -> int:
    """One life: killed at a moment drawn from ``dice`` after a new checkpoint, or to its end. Answers the exit code."""
    with spawn(orders, work, rate, script=CHILD) as process:
        if dice is not None:
            wait_for(Aim.MANIFEST, process, work, dice)
            process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode


def per_minute(work: Path) -> pd.DataFrame:
    return pd.read_parquet(work / "per-minute")


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1])
def test_the_first_pipeline_killed_three_times_counts_every_order_once(orders: Path, tmp_path: Path, seed: int) -> None:
    dice, restored_from = random.Random(seed), set()
    for _ in range(KILLS):
        assert live(orders, tmp_path, PACED, dice) == -signal.SIGKILL
        restored_from.add(list(manifests(tmp_path))[-1].checkpoint)
        if list((tmp_path / "per-minute").glob("*.parquet")):
            assert not per_minute(tmp_path).duplicated(["shop", "window_start"]).any()
    assert len(restored_from) == KILLS, restored_from
    assert live(orders, tmp_path, AT_ONCE) == 0
    found = pa.Table.from_pandas(per_minute(tmp_path))
    assert rows_of(found.drop_columns(["window_end"])) == rows_of(by_duckdb(orders)) == rows_of(by_pandas(orders))


def by_duckdb(orders: Path) -> pa.Table:
    return duckdb.sql(
        f"select shop, date_trunc('minute', time) as window_start, count(*) as orders, sum(price)::bigint as paid "
        f"from read_csv('{orders}') where price > 0 group by all"
    ).to_arrow_table()


def by_pandas(orders: Path) -> pa.Table:
    rows = pd.read_csv(orders, parse_dates=["time"]).query("price > 0")
    groups = rows.assign(window_start=rows.time.dt.floor("min")).groupby(["shop", "window_start"]).price
    return pa.Table.from_pandas(groups.agg(orders="count", paid="sum").reset_index())
