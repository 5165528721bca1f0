"""Nexmark queries through crashes on seeded schedules: DuckDB's answers, or those with the reported duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import dataflow as flow
from benchmarks.nexmark.answers import answer
from benchmarks.nexmark.events import Events
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.testing import lineage
from tests.nexmark.duplicates import NOT_COMPARED, OPERATORS, with_duplicates, wrong_rows
from tests.nexmark.running import Files, differences, pipeline, written
from tests.seeds import in_soak

EVENTS = Events(200, rate=5, group=10, seed=2)
FAULTS = Faults(crashes=2, crash_after=(1, 2), skew=0.5)
EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]
GROUPS = [
    ("q0", "q5", "q11", "q15"),
    ("q3", "q8", "q13", "q20"),
    *in_soak(
        ("q4", "q23"), ("q6", "q9", "q19"), ("q7", "q12", "q16", "q17", "q18"), ("q1", "q2", "q10", "q14", "q21", "q22")
    ),
]
SEEDS = [1, *in_soak(0, *range(2, 40))]
"""With seed 1 the jobs crash, and in mode unaligned rows come again."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(EVENTS, tmp_path_factory.mktemp("nexmark") / "events")


def crashed(
    files: Files, folder: Path, mode: str, seed: int, queries: Sequence[str]
) -> tuple[Sequence[Attempt], flow.RunResult]:
    """Return the attempts of a simulated job that crashed up to twice, and its result."""
    patience = "200us" if mode == "aligned-timeout" else None
    settings = flow.Checkpointing(
        flow.MemoryStore(), every="200us", mode=mode, alignment_timeout=patience, duplicates="rows"
    )
    delay = "1min" if mode == "unaligned" else "4s"  # rows that come again may be late
    runner = flow.SimulatedRunner(seed, FAULTS, max_turns=400_000)
    job = runner.start(pipeline(files, folder, queries, delay=delay, batch_rows=5), parallelism=2, checkpoint=settings)
    result = job.wait()
    assert (result.late, result.partly_late) == (0, 0)
    assert len(job.attempts) > 1 or (seed, queries) != (1, GROUPS[0]), "the job did not crash"
    return job.attempts, result


@pytest.mark.parametrize("queries", GROUPS, ids=" ".join)
@pytest.mark.parametrize("mode", [EXACT[1], *in_soak(EXACT[0], *EXACT[2:])])
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_after_crashes_are_those_of_duckdb(
    files: Files, seed: int, mode: str, queries: Sequence[str], tmp_path: Path
) -> None:
    _, result = crashed(files, tmp_path, mode, seed, queries)
    assert differences(result, tmp_path, files, queries) == {}


@pytest.mark.parametrize("queries", GROUPS, ids=" ".join)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_mode_unaligned_the_reported_duplicates_are_part_of_the_answers(
    files: Files, seed: int, queries: Sequence[str], tmp_path: Path
) -> None:
    queries = [query for query in queries if query not in NOT_COMPARED]
    attempts, result = crashed(files, tmp_path, "unaligned", seed, queries)
    duplicates = 0
    for query in queries:
        reported = [r.duplicated(OPERATORS[query]) for r in lineage(attempts)]
        again = [table for r in lineage(attempts) if (table := r.rows(OPERATORS[query])) is not None]
        assert sum(table.num_rows for table in again) == sum(reported)
        duplicates += sum(reported)
        assert wrong_rows(query, answer(query, result, tmp_path), with_duplicates(query, files, again)) == {}
    assert duplicates > 0 or (seed, queries) != (1, GROUPS[0]), "no row came again"
