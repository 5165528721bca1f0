"""Two windows in a row that both wait out their lateness, against plain Python: each result once, and none is late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import CheckpointMismatch
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.seeds import seeds, some_by_default
from tests.simulation.jobs import simulate

SECOND = 1_000_000
DISORDER = 9
"""Seconds by which rows are out of order: all of them within the lateness, and many behind the end of their window."""
EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]


def clicks(rows: int = 240) -> pa.Table:
    draw = random.Random(3)
    seconds = [number // 2 - draw.randrange(DISORDER) - 20 for number in range(rows)]
    users = [f"u{draw.randrange(5)}" for _ in range(rows)]
    return pa.table({"user": users, "at": pa.array([s * 1_000 for s in seconds], pa.timestamp("ms"))})


def sessions(splits: int = 2, emit: str = "final") -> flow.Pipeline:
    """Clicks per user and 5 s, then how many of these windows had so many clicks, per 12 s."""
    with flow.Pipeline("sessions") as p:
        rows = p.source(op.from_arrow(clicks(), batch_rows=4, splits=splits), name="clicks").with_watermark("at")
        short = rows.key_by("user").window(op.tumbling("5s"), lateness=f"{DISORDER}s")
        first = short.agg(n=op.count(), emit=emit, name="short").as_rows()
        long = first.key_by("n").window(op.tumbling("12s"), lateness="2s")
        second = long.agg(users=op.count(), most=col("user").max(), emit="final", name="long")
        first.sink(op.collect(), name="firsts")
        second.sink(op.collect(), name="seconds")
    return p


def windows_of(table: pa.Table) -> tuple[list[Any], list[Any]]:
    """Return the expected results of both windows, computed row by row."""
    at = [ms // 1_000 for ms in table["at"].cast("int64").to_pylist()]
    firsts = Counter((user, s // 5 * 5) for user, s in zip(table["user"].to_pylist(), at, strict=True))
    seconds: dict[tuple[int, int], list[str]] = {}
    for (user, start), n in firsts.items():
        seconds.setdefault((n, (start + 4) // 12 * 12), []).append(user)
    return (
        sorted((user, start, n) for (user, start), n in firsts.items()),
        sorted((n, start, len(users), max(users)) for (n, start), users in seconds.items()),
    )


def found(result: flow.RunResult) -> tuple[list[Any], list[Any]]:
    def rows(name: str, *columns: str) -> list[Any]:
        table = result.table(name)
        starts = [start // 1_000 for start in table["window_start"].cast("int64").to_pylist()]
        key, *rest = (table[column].to_pylist() for column in columns)
        return sorted(zip(key, starts, *rest, strict=True))

    return rows("firsts", "user", "n"), rows("seconds", "n", "users", "most")


EXPECTED = windows_of(clicks())


def check(result: flow.RunResult) -> None:
    assert found(result) == EXPECTED
    assert {o.operator: o.late for o in result.operators if o.late} == {}


def test_on_threads_each_result_comes_once_and_none_is_late() -> None:
    check(sessions().run(parallelism=2, timeout="60s"))
    check(sessions(splits=1).run(parallelism=1, timeout="60s"))


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_with_updates_the_same_rows_come_more_than_once() -> None:
    """So the rows are such that it matters.

    An update of a short window can come after the long window that it belongs to is closed: ``emit="updates"`` passes
    the watermark on at once. Whether it does depends on how far one subtask runs ahead of the other.
    """
    updates = sessions(emit="updates").run(parallelism=2, timeout="60s")
    assert updates.table("firsts").num_rows > len(EXPECTED[0])


@pytest.mark.parametrize(("seed", "mode"), some_by_default([(1, "unaligned-persisted")], range(40), EXACT))
def test_crashes_change_nothing(seed: int, mode: str) -> None:
    check_seed(seed, mode, Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2))


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_nothing_is_late_in_any_schedule_of_mode_unaligned(seed: int) -> None:
    check_seed(seed, "unaligned", Faults(skew=0.2, stall=0.05, slices=0.2))


def check_seed(seed: int, mode: str, faults: Faults) -> None:
    runner = flow.SimulatedRunner(seed, faults, max_turns=100_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    check(runner.start(sessions(), parallelism=2, checkpoint=settings).wait())


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [1, 2])
def test_on_spark_each_result_comes_once_and_none_is_late(spark: Any, lanes: int) -> None:
    runner = SparkRunner(spark, rows_per_trigger=80 * lanes)
    check(sessions(splits=lanes).run(runner, parallelism=lanes, max_key_groups=2))


@pytest.mark.parametrize("emits", [("updates", "final"), ("final", "updates")], ids="{0[0]} to {0[1]}".format)
def test_windows_that_wait_are_not_restored_from_others(emits: Sequence[str]) -> None:
    """With another ``emit``, other results have been emitted, and another watermark was passed on."""
    store = flow.MemoryStore()
    simulate(sessions(emit=emits[0]), store, 1)
    with pytest.raises(CheckpointMismatch, match=r"operator 'short': emit was (updates, now final|final, now updates)"):
        simulate(sessions(emit=emits[1]), store, 1, restore="latest")
