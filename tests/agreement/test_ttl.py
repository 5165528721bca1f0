"""Keys that expire and come back, on threads and on Spark, against plain Python: every update is one of a life.

Rows are out of order by less than the delay of the watermark, so only row times decide which keys have expired.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.runner import SparkRunner

TTL, DISORDER, PAUSE = 8, 4, 15
"""Seconds: the time to live, the delay of the watermark, and how long a user is away, again and again."""
TTL_FROM = ("write", "access")
BATCH_ROWS, ROWS_PER_TRIGGER = 40, 120
Update = tuple[Any, ...]
"""The user, the number of the first row of its life, how many rows it has, their sum, and how many values differ."""


def clicks(rows: int = 480) -> list[tuple[str, int, int]]:
    """Return users, values and seconds in the order of the source; each user clicks for a while, and then does not."""
    draw = random.Random(11)
    found = []
    for number in range(rows):
        second = number // 4
        present = [user for user in range(9) if (second // PAUSE + user) % 3]
        found.append((f"u{draw.choice(present)}", draw.randrange(5), second - draw.randrange(DISORDER)))
    return found


CLICKS = clicks()


def running() -> flow.Pipeline:
    """Aggregate the clicks with a ttl from the last write, and again with one from the last access."""
    users, values, seconds = zip(*CLICKS, strict=True)
    at = pa.array([1_000 * second for second in seconds], pa.timestamp("ms"))
    table = pa.table({"user": users, "value": values, "row": range(len(users)), "at": at})
    with flow.Pipeline("lives") as p:
        rows = p.source(op.from_arrow(table, batch_rows=BATCH_ROWS), name="clicks").with_watermark("at", delay="4s")
        for ttl_from in TTL_FROM:
            lives = rows.key_by("user").agg(
                first=col("row").first("row"),
                n=op.count(),
                total=col("value").sum(),
                different=col("value").count_distinct(),
                emit="updates",
                ttl=f"{TTL}s",
                ttl_from=ttl_from,
                name=f"lives from {ttl_from}",
            )
            lives.as_rows().sink(op.collect(), name=ttl_from)
    return p


def expected() -> tuple[dict[str, Update], set[Update]]:
    """Return the last update of each user, and every update that there can be, one for each row."""
    lives: dict[str, tuple[int, list[int], int]] = {}
    last: dict[str, Update] = {}
    every: set[Update] = set()
    for row, (user, value, second) in enumerate(CLICKS):
        first, values, stamp = lives.get(user, (row, [], second))
        if second >= stamp + TTL:
            first, values = row, []
        lives[user] = first, [*values, value], max(stamp, second)
        values = lives[user][1]
        last[user] = user, first, len(values), sum(values), len(set(values))
        every.add(last[user])
    return last, every


def updates(result: flow.RunResult, ttl_from: str) -> list[Update]:
    return [tuple(row.values()) for row in result.table(ttl_from).to_pylist()]


def check(found: list[Update]) -> None:
    """Compare with plain Python, and make sure that every user expires and comes back."""
    last, every = expected()
    assert {update[0]: update for update in found} == last
    assert set(found) <= every, sorted(set(found) - every)
    lives = Counter(user for user, _ in {update[:2] for update in found})
    assert min(lives.values()) >= 2, lives


@pytest.mark.parametrize("parallelism", [1, 2])
def test_keys_that_come_back_begin_anew_on_threads(parallelism: int) -> None:
    result = running().run(parallelism=parallelism, timeout="60s")
    for ttl_from in TTL_FROM:
        check(updates(result, ttl_from))


@pytest.mark.soak
def test_spark_gives_the_same_updates_of_keys_that_come_back(spark: Any) -> None:
    local = running().run(parallelism=1, timeout="60s")
    runner = SparkRunner(spark, rows_per_trigger=ROWS_PER_TRIGGER)
    result = running().run(runner, parallelism=1, max_key_groups=2)
    for ttl_from in TTL_FROM:
        found = updates(result, ttl_from)
        check(found)
        assert sorted(found) == sorted(updates(local, ttl_from))
    assert result.micro_batches is not None
    assert len(result.micro_batches.batches) >= len(CLICKS) // ROWS_PER_TRIGGER, "state is kept between micro-batches"
