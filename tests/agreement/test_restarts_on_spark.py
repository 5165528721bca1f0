"""Jobs on Spark with joins, ranks and process functions that fail in the middle and are run again: the local answers.

pytest tests/agreement/test_restarts_on_spark.py -m soak
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.process_functions import SEEN, SUMS, Rules, WithColumns, WithMap

US = pa.timestamp("us")
ROWS = 400
OUTPUTS = ("within", "windows", "unbounded", "nearest", "looked up", "unique", "first", "by key", "by column", "counts")


def table(draw: random.Random, start: int) -> pa.Table:
    times = [max(0, 3 * n + draw.randint(-15, 15)) for n in range(ROWS)]
    keys = [draw.choice([None, *range(9)]) for _ in range(ROWS)]
    columns = [pa.array(keys, pa.int64()), pa.array(times, US), pa.array(range(start, start + ROWS), pa.int64())]
    return pa.table(columns, ["k", "at", "x"])


class Fails:
    """Takes some batches, and then raises an error in the first life."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.taken = 0

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.taken += 1
        if self.taken == self.after:
            raise OSError("out of reach")


def pipeline(work: Path, seed: int, fails: Fails | None) -> flow.Pipeline:
    draw = random.Random(seed)
    tables = [table(draw, 0), table(draw, ROWS)]
    kinds = pa.table({"k": pa.array(range(9), pa.int64()), "kind": [f"kind {n % 3}" for n in range(9)]})
    rules = pa.table({"name": [draw.choice("abc") for _ in range(30)], "limit": range(30)})
    with flow.Pipeline("restarts") as p:
        rows, others = (
            p.source(op.from_arrow(each, batch_rows=20), name=name).with_watermark("at", delay="40us")
            for name, each in zip(("rows", "others"), tables, strict=True)
        )
        keyed = rows.key_by("k")
        broadcast = p.source(op.from_arrow(rules, batch_rows=2), name="rules")
        by_rules = keyed.process(Rules, schema=SEEN, sides={"counts": None}, broadcast=broadcast, name="by rules")
        results = {
            "within": rows.join(others, on="k", within=("-20us", "30us"), how="left", name="within"),
            "windows": rows.join(others, on="k", window=op.tumbling("50us"), how="full", name="windows"),
            "unbounded": rows.join(others, on="k", name="unbounded"),
            "nearest": rows.join_asof(others, by="k", name="nearest"),
            "looked up": rows.lookup(kinds, on="k", how="left", name="looked up"),
            "unique": rows.unique("x", name="unique"),
            "first": keyed.window(op.tumbling("100us")).top(2, by="x", name="first"),
            "by key": keyed.process(WithMap, schema=SUMS, name="by key"),
            "by column": keyed.process(WithColumns, schema=SUMS, name="by column"),
            "counts": by_rules.side("counts"),
        }
        for name, stream in results.items():
            stream.sink(op.write_parquet(work / name), name=f"{name} out")
        if fails is not None:
            rows.sink(op.upsert_batches(fails), name="fails")
    return p


def rows_of(work: Path, name: str) -> Counter[Any]:
    return Counter(map(repr, pq.read_table([str(path) for path in (work / name).glob("*.parquet")]).to_pylist()))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_that_failed_and_is_run_again_has_the_local_answers(spark: Any, tmp_path: Path, seed: int) -> None:
    runner = SparkRunner(spark, rows_per_trigger=100)
    options: dict[str, Any] = {"parallelism": 2, "max_key_groups": 2}
    work = tmp_path / "spark"
    checkpoint = flow.Checkpointing(work / "job")
    for after in (2, 5):
        with pytest.raises(OSError, match="out of reach"):
            pipeline(work, seed, Fails(after)).run(runner, checkpoint=checkpoint, **options)
    result = pipeline(work, seed, Fails(10**9)).run(runner, checkpoint=checkpoint, **options)
    assert result.checkpoints[0].checkpoint > 3, "it began anew"
    pipeline(tmp_path / "local", seed, None).run(parallelism=2)
    for name in OUTPUTS:
        assert rows_of(work, name) == rows_of(tmp_path / "local", name), name
