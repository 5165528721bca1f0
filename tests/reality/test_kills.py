"""Real processes, killed with SIGKILL and restarted until they finish: what they leave is what it should be.

The long campaign, 200 kills, 100 in each mode (about six minutes)::

    pytest tests/reality/test_kills.py -m soak -s
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import operators as op
from tests.reality.child import ROWS, TOTALS, pipeline
from tests.reality.harness import Landing, Story, last_per_key, read_with_each, row_multiset, survive

MODES = ["aligned", "unaligned"]


@pytest.fixture(scope="session")
def undisturbed(orders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that nobody kills."""
    work = tmp_path_factory.mktemp("undisturbed")
    pipeline(op.read_parquet(orders), work).run(parallelism=2)
    return work


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_job_leaves_what_an_undisturbed_one_does(
    mode: str, orders: Path, undisturbed: Path, tmp_path: Path
) -> None:
    story = survive(orders, tmp_path / "work", mode, seed=11, kills=4)
    check(story, orders, undisturbed, mode)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_a_hundred_kills_lose_and_repeat_no_row(
    mode: str, orders: Path, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landings: Counter[Landing] = Counter()
    reported = 0
    for seed in range(20):
        story = survive(orders, tmp_path / f"work-{seed}", mode, seed=seed, kills=5)
        check(story, orders, undisturbed, mode)
        landings += story.landings
        reported += len(story.reported(ROWS).get("id", ()))
    with capsys.disabled():
        print(f"\n{mode}: {landings.total()} kills, {reported} rows reported at the row-wise sink")
        for landing in Landing:
            print(f"  {landing.value}: {landings[landing]}")
    assert landings.total() == 100
    assert all(landings[landing] for landing in Landing if landing is not Landing.AFTER_END), landings


def check(story: Story, orders: Path, undisturbed: Path, mode: str) -> None:
    """The output equals the undisturbed one; unaligned: that of a run over its input plus the reported rows."""
    if mode == "aligned":
        assert not story.reported(ROWS)
        assert not story.reported(TOTALS)
    rows = row_multiset(pq.read_table(undisturbed / "rows")) + _pairs(story.reported(ROWS), "id", "amount")
    totals = _totals(orders, story.reported(TOTALS))
    for reader, found in read_with_each(story.work / "rows"):
        assert row_multiset(found) == sorted(rows), reader
    for reader, found in read_with_each(story.work / "totals"):
        assert last_per_key(found) == totals, reader
    if mode == "aligned":
        assert last_per_key(pq.read_table(undisturbed / "totals")) == totals


def _totals(orders: Path, reported: dict[str, list[int]]) -> dict[int, tuple[int, int]]:
    twice = pa.table({name: pa.array(reported.get(name, []), pa.int64()) for name in ("key", "amount")})  # noqa: F841
    found = duckdb.execute(
        "select key, count(*), sum(amount)::bigint from "
        f"(select key, amount from '{orders}/*.parquet' where amount > 0 union all from twice) group by key"
    )
    return {key: (n, total) for key, n, total in found.fetchall()}


def _pairs(columns: dict[str, list[int]], *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(columns.get(name, []) for name in names), strict=True))
