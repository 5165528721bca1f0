"""Real processes that run Nexmark queries, killed with SIGKILL and restarted until they finish: DuckDB's whole tables.

In mode ``unaligned`` they equal DuckDB's over the bids and those that the restores reported as delivered again. The
campaign of 180 kills runs in each mode fifteen jobs, with one, two and four tasks. It prints a table: where the
kills landed, what was in progress, what the restores put back::

    pytest tests/nexmark/test_kills.py -m soak -o faulthandler_timeout=0 -s

One mode alone: ``-k "[aligned-timeout]"``. Every kill counted is a SIGKILL that a living process died of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from benchmarks.nexmark.answers import written_answer
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import QUERIES
from tests.nexmark.child import SLOW
from tests.nexmark.duplicates import NOT_COMPARED, OPERATORS, with_duplicates, wrong_rows
from tests.nexmark.running import Files, written
from tests.reality.harness import Aim, Program, Story, survive
from tests.reality.tally import Tally, table

EVENTS = Events(12_000, rate=100, group=100, busy=3_000, silent=25)
"""Bids of three minutes, out of order by up to a second, with gaps."""
MODES = ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"]
GROUPS = [
    ("q0", "q5", "q10", "q11", "q15"),
    ("q1", "q7", "q12", "q16", "q22"),
    ("q2", "q14", "q17", "q18", "q21"),
    ("q3", "q4", "q8", "q13", "q19"),
    ("q6", "q9", "q20", "q23"),
]
TASKS = (1, 2, 4)
KILLS = 3
"""Kills of each job of the campaign: a job for each mode, each number of tasks and each group of queries."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(EVENTS, tmp_path_factory.mktemp("nexmark") / "events", files=4)


@pytest.fixture(scope="module")
def tallies() -> Iterator[dict[str, Tally]]:
    """A tally for each mode, printed at the end."""
    by_mode: dict[str, Tally] = {}
    yield by_mode
    print(f"\n\n{table(by_mode)}")


@pytest.mark.soak
def test_a_killed_job_has_the_answers_of_duckdb(files: Files, tmp_path: Path) -> None:
    aims = (Aim.MANIFEST,)
    story = killed(files, tmp_path, "unaligned-persisted", ("q0", "q10", "q11", "q15"), 2, seed=1, kills=1, aims=aims)
    assert len(story.kills) == 1


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_many_killed_jobs_have_the_answers_of_duckdb(
    mode: str, files: Files, tmp_path: Path, tallies: dict[str, Tally]
) -> None:
    assert sorted(query for group in GROUPS for query in group) == sorted(QUERIES)
    watched = [*SLOW.values(), *OPERATORS.values()]
    tally = tallies[mode] = Tally(heads=watched, reporting=watched)
    for seed, (tasks, queries) in enumerate(product(TASKS, GROUPS)):
        tally.add(killed(files, tmp_path / f"{seed}", mode, queries, tasks, seed=seed, kills=KILLS))
    assert len(tally.kills) == KILLS * len(TASKS) * len(GROUPS), "jobs ended before they were killed"
    assert (tally.restores_in_flight > 0) == (mode in ("unaligned-persisted", "aligned-timeout")), tally.in_flight
    assert (sum(tally.reported.values()) > 0) == (mode == "unaligned"), "no row came again"


def killed(
    files: Files,
    work: Path,
    mode: str,
    queries: Sequence[str],
    tasks: int,
    *,
    seed: int,
    kills: int,
    aims: tuple[Aim, ...] | None = None,
) -> Story:
    """Kill a job several times, and compare its files with DuckDB's answers, with the rows that it reported."""
    if mode == "unaligned":
        queries = [query for query in queries if query not in NOT_COMPARED]
    program = Program(
        Path(__file__).with_name("child.py"),
        sinks={query: query for query in queries},
        options=("--parallelism", tasks, "--queries", *queries),
        at_full_speed=("--cost", 0, "--rate", 1e9, "--batch", 65_536),
    )
    story = survive(files["bids"][0].parent, work, mode, seed=seed, kills=kills, aims=aims, program=program)
    for query in queries:
        reported = story.reported(OPERATORS[query])
        again = [reported] if reported.num_rows else []
        assert mode == "unaligned" or not again, query
        wrong = wrong_rows(query, written_answer(query, work), with_duplicates(query, files, again))
        assert wrong == {}, f"{query} in mode {mode} with {tasks} tasks, seed {seed}: {wrong}"
    return story
