"""Pipelines over files whose row groups are pruned, beside the same pipelines that read every row."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import Source
from dataflow.expressions import Expr, col
from dataflow.runners.faults import Faults
from tests.operators.sources.unpruned import Unpruned
from tests.seeds import each_once, in_soak, seeds, some_by_default

ROWS = 400
SECOND = datetime.timedelta(seconds=1)
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def file(folder: Path, seed: int) -> Path:
    """A file of ``ROWS`` rows, roughly in the order of time; ``x`` comes in runs, so many row groups lack a value."""
    draw = random.Random(seed)
    xs = [x for _ in range(ROWS) for x in [draw.randrange(10)] * draw.randrange(1, 30)][:ROWS]
    table = pa.table({
        "n": range(ROWS),
        "x": [None if draw.random() < 0.02 else x for x in xs],
        "k": [draw.choice("abc") for _ in range(ROWS)],
        "t": [START + (n - draw.randrange(40)) * SECOND for n in range(ROWS)],
        "unused": ["" for _ in range(ROWS)],
    })  # fmt: skip
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f"{seed}.parquet", row_group_size=draw.choice([3, 10, 25]))
    return folder


PREDICATES = [col("x") == 3, (col("x") >= 8) & (col("k") != "a"), (col("x") < 3) & (col("n") > 150), col("x") > 99]


def windows(source: Source, predicate: Expr, *, lateness: str = "0s") -> flow.Pipeline:
    with flow.Pipeline("pruned") as p:
        rows = p.source(source, name="in").filter(predicate, name="some").with_watermark("t", delay="5s", name="time")
        counted = rows.key_by("k").window(op.tumbling("10s"), lateness=lateness)
        counts = counted.agg(op.count().alias("rows"), col("n").sum().alias("n"), name="counts")
        counts.side("late").select("n").sink(op.collect(), name="late")
        counts.sink(op.collect(), name="out")
    return p


def outcome(result: flow.RunResult) -> dict[str, Any]:
    """What does not depend on which row groups are decoded."""
    tables = {name: sorted(map(str, table.to_pylist())) for name, table in result.tables.items()}
    return {**tables, "late rows": result.late, "in": result.rows_in, "out": result.rows_out}


@pytest.mark.parametrize(("predicate", "batch_rows"), each_once(PREDICATES, [40, None, 7, 1]))
@pytest.mark.parametrize("first", [0, *in_soak(2, 4, 6)])
def test_late_rows_windows_and_counts_are_the_same_on_threads(
    tmp_path: Path, predicate: Expr, batch_rows: int | None, first: int
) -> None:
    late = pruned = 0
    for seed in (first, first + 1):
        source = op.read_parquet(file(tmp_path / f"{seed}", seed), batch_rows=batch_rows)
        whole, part = windows(Unpruned(source), predicate).run(), windows(source, predicate).run()
        assert outcome(part) == outcome(whole)
        assert (whole.rows_pruned, part.rows_in) == ({"in": 0}, {"in": ROWS})
        shown = part.rows_pruned["in"]
        assert (f" ({shown:,} pruned)" in str(part)) == bool(shown)
        assert part.to_dict()["rows_pruned"] == {"in": shown}
        read = ROWS - part.rows_pruned["in"]
        assert (part.operator("in").rows_out, part.operator("some").rows_in) == (read, read)
        late, pruned = late + part.late, pruned + part.rows_pruned["in"]
    assert pruned
    assert late or batch_rows is None or predicate.equals(PREDICATES[-1])


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_late_rows_are_the_same_on_every_schedule(tmp_path: Path, seed: int) -> None:
    source, predicate = op.read_parquet(file(tmp_path / "in", 5), batch_rows=20), PREDICATES[1]
    expected = outcome(windows(Unpruned(source), predicate).run())
    assert expected["late rows"]
    result = windows(source, predicate).run(flow.SimulatedRunner(seed, Faults(slices=0.7, skew=0.5)))
    assert outcome(result) == expected
    assert 0 < result.rows_pruned["in"] < ROWS


@pytest.mark.parametrize("every", [3, *in_soak(1)])
def test_a_restore_with_another_filter_reads_exactly_the_rest(every: int, tmp_path: Path) -> None:
    source = op.read_parquet(file(tmp_path / "in", 1), batch_rows=30)
    store, cuts = flow.MemoryStore(), set[int]()

    def rows(predicate: Expr) -> flow.Pipeline:
        with flow.Pipeline("rows") as p:
            p.source(source, name="in").filter(predicate, name="some").sink(op.collect(), name="out")
        return p

    settings = flow.Checkpointing(store, every="1ms", keep=100)
    first = rows(PREDICATES[0]).run(flow.SimulatedRunner(2, Faults(slices=1.0)), checkpoint=settings)
    for record in first.checkpoints[::-every]:  # a restore deletes the newer ones
        for predicate in PREDICATES:
            again, whole = (
                rows(filter_).run(
                    flow.SimulatedRunner(3), checkpoint=flow.Checkpointing(store, keep=100), restore=record.checkpoint
                )
                for filter_ in (predicate, ~~predicate)  # no row group is pruned by what is negated
            )
            assert again.table("out").equals(whole.table("out"))
            assert again.rows_in == whole.rows_in
            cuts.add(again.rows_in["in"])
    assert len(cuts) > 3


def crashing(source: Source, predicate: Expr, seed: int, mode: str) -> dict[str, Any]:
    faults = Faults(crashes=2, slices=0.5, skew=0.3)
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode)
    p = windows(source, predicate, lateness="1000s")  # no row is late, whatever the order of rows from several splits
    result = p.run(flow.SimulatedRunner(seed, faults), parallelism=2, checkpoint=settings)
    last = {(row["k"], row["window_start"]): row for row in result.table("out").to_pylist()}
    return {"last": last, "late": result.table("late").num_rows}


@pytest.mark.parametrize(
    ("seed", "mode"), some_by_default([(0, "unaligned-persisted")], range(40), ["aligned", "unaligned-persisted"])
)
def test_crashes_and_restores_lose_and_repeat_nothing(tmp_path: Path, mode: str, seed: int) -> None:
    predicate = PREDICATES[(seed + (mode == "aligned") * 2) % len(PREDICATES)]
    file(tmp_path, 2 * seed)
    source = op.read_parquet(file(tmp_path, 2 * seed + 1), batch_rows=30)
    expected = crashing(Unpruned(source), predicate, seed, mode)
    assert crashing(source, predicate, seed, mode) == expected


def run_on_spark(spark: Any, source: Source, predicate: Expr) -> flow.RunResult:
    runner = flow.SparkRunner(spark, rows_per_trigger=100)
    return windows(source, predicate).run(runner, parallelism=1, max_key_groups=2)


@pytest.mark.soak
def test_spark_prunes_the_same_rows(spark: Any, tmp_path: Path) -> None:
    source, predicate = op.read_parquet(file(tmp_path / "in", 1), batch_rows=40), PREDICATES[1]
    local, result = windows(source, predicate).run(), run_on_spark(spark, source, predicate)
    assert outcome(result) == outcome(local)
    assert result.rows_pruned == local.rows_pruned != {"in": 0}
