"""Real processes, killed with SIGKILL and restarted until they finish: what they leave is what it should be.

The long campaign: 1,000 kills, 250 in each mode. Two terminals may run half of it each; each ends with a table of its
modes: where the kills landed, what was in progress, what the restores put back::

    pytest tests/reality/test_kills.py -m soak -o faulthandler_timeout=0 -s -k "unaligned"
    pytest tests/reality/test_kills.py -m soak -o faulthandler_timeout=0 -s -k "not unaligned"

One mode alone: ``-k "[aligned-timeout]"``. Every kill counted is a SIGKILL that a living process died of.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import operators as op
from tests.reality.child import ROWS, TOTALS, pipeline
from tests.reality.harness import Aim, Story, last_per_key, read_with_each, row_multiset, survive
from tests.reality.remains import Landing
from tests.reality.tally import Tally, table
from tests.seeds import in_soak

MODES = ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"]
KILLS = 250
"""In each mode of the long campaign."""
LIVES = 10
"""Kills a job has to survive in it; one that comes to its end before has fewer."""
LEAST_IN_FLIGHT = {"unaligned-persisted": 0.3, "aligned-timeout": 0.1}
"""The share of restores that must put rows back in flight."""


@pytest.fixture(scope="session")
def undisturbed(orders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that nobody kills."""
    work = tmp_path_factory.mktemp("undisturbed")
    pipeline(op.read_parquet(orders), work).run(parallelism=2)
    return work


@pytest.fixture(scope="module")
def tallies() -> Iterator[dict[str, Tally]]:
    """A tally for each mode, printed at the end."""
    found: dict[str, Tally] = {}
    yield found
    print(f"\n\n{table(found)}")


@pytest.mark.parametrize("mode", ["aligned-timeout", *in_soak("aligned", "unaligned", "unaligned-persisted")])
def test_a_killed_job_leaves_what_an_undisturbed_one_does(
    mode: str, orders: Path, undisturbed: Path, tmp_path: Path, tallies: dict[str, Tally]
) -> None:
    tally = tallies[mode] = Tally()
    story = survive(orders, tmp_path / "work", mode, seed=11, kills=2, aims=(Aim.PARTS, Aim.MANIFEST))
    tally.add(story)
    check(story, orders, undisturbed, mode)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_hundreds_of_kills_lose_and_repeat_no_row(
    mode: str, orders: Path, undisturbed: Path, tmp_path: Path, tallies: dict[str, Tally]
) -> None:
    tally = tallies[mode] = Tally()
    seed = 0
    while (missing := KILLS - len(tally.kills)) > 0:
        story = survive(orders, tmp_path / f"work-{seed}", mode, seed=seed, kills=min(LIVES, missing))
        tally.add(story)
        check(story, orders, undisturbed, mode)
        seed += 1
    assert all(tally.landings[landing] for landing in Landing if landing is not Landing.AFTER_END), tally.landings
    check_in_flight(tally, mode)


def check_in_flight(tally: Tally, mode: str) -> None:
    """Modes with channel state put rows back in flight, in a share of the restores; the other modes never do."""
    if mode in LEAST_IN_FLIGHT:
        assert tally.restores_in_flight >= LEAST_IN_FLIGHT[mode] * len(tally.in_flight), tally.in_flight
    else:
        assert tally.restores_in_flight == 0, tally.in_flight


def check(story: Story, orders: Path, undisturbed: Path, mode: str) -> None:
    """The output equals the undisturbed one; unaligned: that of a run over its input plus the reported rows."""
    if mode != "unaligned":
        assert not story.reported(ROWS).num_rows
        assert not story.reported(TOTALS).num_rows
        assert last_per_key(pq.read_table(undisturbed / "totals")) == _totals(orders, {})
    rows = row_multiset(pq.read_table(undisturbed / "rows")) + _pairs(story.reported(ROWS), "id", "amount")
    totals = _totals(orders, story.reported(TOTALS).to_pydict())
    for reader, found in read_with_each(story.work / "rows"):
        assert row_multiset(found) == sorted(rows), reader
    for reader, found in read_with_each(story.work / "totals"):
        assert last_per_key(found) == totals, reader


def _totals(orders: Path, reported: dict[str, list[int]]) -> dict[int, tuple[int, int]]:
    twice = pa.table({name: pa.array(reported.get(name, []), pa.int64()) for name in ("key", "amount")})  # noqa: F841
    found = duckdb.execute(
        "select key, count(*), sum(amount)::bigint from "
        f"(select key, amount from '{orders}/*.parquet' where amount > 0 union all from twice) group by key"
    )
    return {key: (n, total) for key, n, total in found.fetchall()}


def _pairs(table: pa.Table, *names: str) -> list[tuple[int, ...]]:
    columns = table.to_pydict()
    return list(zip(*(columns.get(name, []) for name in names), strict=True))
