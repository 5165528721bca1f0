"""Real processes that run process functions, killed with SIGKILL and restarted until they finish: DuckDB's windows.

In mode ``unaligned`` the windows equal DuckDB's over the orders and those that the restores reported as delivered
again. The campaign has 72 kills::

    pytest tests/agreement/test_process_kills.py -m soak -o faulthandler_timeout=0 -s
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.agreement.process_child import LENGTH, RULES
from tests.reality.conftest import write_orders
from tests.reality.harness import Program, Story, survive
from tests.reality.tally import Tally, table

MODES = ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"]
SEEDS, KILLS = 2, 3
REPORTING = ("by key", "by column")
SQL = f"""
select key, make_timestamp((id // {LENGTH} + 1) * {LENGTH}) as end, count(*) as n, sum(amount)::bigint as total
from (select key, id, amount from read union all select key, id, amount from again) group by all
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("orders"), files=2, groups=4, rows=2_500)


@pytest.fixture(scope="module")
def tallies() -> Iterator[dict[str, Tally]]:
    """A tally for each mode, printed at the end."""
    by_mode: dict[str, Tally] = {}
    yield by_mode
    print(f"\n\n{table(by_mode)}")


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_killed_functions_compute_the_windows_of_duckdb(
    mode: str, files: Path, tmp_path: Path, tallies: dict[str, Tally]
) -> None:
    tally = tallies[mode] = Tally(heads=("slow orders", *REPORTING), reporting=REPORTING)
    for tasks, seed in product((1, 2, 4), range(SEEDS)):
        program = Program(
            Path(__file__).with_name("process_child.py"),
            sinks={"sums by key": "by-key", "sums by column": "by-column", "seen": "seen"},
            options=("--parallelism", tasks),
            at_full_speed=("--cost", 0, "--rate", 1e9, "--rules", 1e9, "--batch", 65_536),
        )
        story = survive(files, tmp_path / f"{tasks}-{seed}", mode, seed=10 * tasks + seed, kills=KILLS, program=program)
        tally.add(story)
        check(story, files, mode, tasks)
    assert len(tally.kills) == KILLS * SEEDS * 3, "jobs ended before they were killed"
    assert (tally.restores_in_flight > 0) == (mode in ("unaligned-persisted", "aligned-timeout")), tally.in_flight
    assert (sum(tally.reported.values()) > 0) == (mode == "unaligned"), "no row came again"


def check(story: Story, files: Path, mode: str, tasks: int) -> None:
    """The windows, the orders of each key, and the copies of the rules are those of an undisturbed run."""
    for operator, folder in (("by key", "by-key"), ("by column", "by-column")):
        again = story.reported(operator)
        assert mode == "unaligned" or not again.num_rows
        expected = by_duckdb(files, again)
        found = pq.read_table(story.work / folder)
        exact = mode != "unaligned"
        assert Counter(windows(found)) == Counter(windows(expected)) or not exact, f"{operator}, {tasks} tasks"
        assert summed(found) == summed(expected), f"{operator}, {tasks} tasks"
        counted: Counter[int] = Counter()
        for key, n in zip(found["key"].to_pylist(), found["so_far"].to_pylist(), strict=True):
            counted[key] = max(counted[key], n)
        orders: Counter[int] = Counter()
        for key, _, n, _ in windows(expected):
            orders[key] += n
        assert counted == orders, f"{operator}, {tasks} tasks"
    if mode != "unaligned":
        seen = pq.read_table(story.work / "seen")
        copies = Counter(zip(seen["n"].to_pylist(), seen["limits"].to_pylist(), strict=True))
        assert sorted(n for n, _ in copies) == list(range(1, RULES + 1)), "one rule was seen twice, or not at all"
        assert set(copies.values()) == {tasks}, "the copies of the shared mapping are not equal"


def windows(rows: pa.Table) -> list[tuple[int, object, int, int]]:
    return list(zip(*(rows[name].to_pylist() for name in ("key", "end", "n", "total")), strict=True))


def summed(rows: pa.Table) -> dict[tuple[int, object], tuple[int, int]]:
    """Count and sum of each window, over all rows that it has."""
    sums: dict[tuple[int, object], tuple[int, int]] = {}
    for key, end, n, total in windows(rows):
        before = sums.get((key, end), (0, 0))
        sums[key, end] = (before[0] + n, before[1] + total)
    return sums


def by_duckdb(files: Path, again: pa.Table) -> pa.Table:
    """Return the windows of the orders, with those that came again."""
    with duckdb.connect() as connection:
        connection.execute(f"create view read as from '{files}/*.parquet'")
        if "id" in again.column_names:  # else only rules came again, or nothing
            connection.register("repeated", again)
            connection.execute("create view again as from repeated where id is not null")
        else:
            connection.execute("create view again as from read limit 0")
        return connection.sql(SQL).to_arrow_table()
