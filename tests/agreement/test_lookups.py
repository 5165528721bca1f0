"""Lookups on every engine, in every mode, through crashes: the rows of DuckDB; and tables that change in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, TableReloadedWarning
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.seeds import each_once_with_seeds

MODES = ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"]
RNG = np.random.default_rng(19)
LEFT = pa.table({"k": RNG.integers(0, 30, 2_000), "n": range(2_000)})
TABLE = pa.table({"k": [*range(20), 3, 3, None], "v": range(23), "s": [f"s{n % 5}" for n in range(23)]})


def pipeline(table: Any, **options: Any) -> flow.Pipeline:
    """The rows of a lookup, and a lookup of aggregates of them."""
    with flow.Pipeline("looked up") as p:
        left = p.source(op.from_arrow(LEFT, batch_rows=50, splits=3), name="left")
        looked = left.lookup(table, on="k", how="left", name="prices", **options).select("k", "n", "v", "s")
        looked.sink(op.collect(), name="rows")
        totals = looked.key_by("s").agg(n=op.count(), total=col("v").sum(), emit="final", name="totals")
        kinds = pa.table({"name": [f"s{n}" for n in range(4)], "kind": [1, 2, 1, 2]})
        totals.lookup(kinds, left_on="s", right_on="name", name="kinds").sink(op.collect(), name="totals of kinds")
    return p


def _sorted(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def in_duckdb(table: pa.Table) -> list[Any]:
    with duckdb.connect() as connection:
        connection.register("l", LEFT)
        connection.register("r", table)
        return _sorted(connection.sql("select l.k, n, v, s from l left join r on l.k = r.k").to_arrow_table())


def totals_in_duckdb(table: pa.Table) -> list[Any]:
    query = (
        "select s, count(*) n, sum(v)::bigint total, 1 + s[2]::int % 2 kind from l join r on l.k = r.k "
        "where s < 's4' group by s"
    )
    with duckdb.connect() as connection:
        connection.register("l", LEFT)
        connection.register("r", table)
        return _sorted(connection.sql(query).to_arrow_table())


@pytest.mark.parametrize(("seed", "mode", "parallelism"), each_once_with_seeds(40, MODES, [1, 2, 4]))
def test_rows_through_crashes_are_those_of_duckdb(seed: int, mode: str, parallelism: int) -> None:
    faults = Faults(crashes=2, skew=0.3, stall=0.01, slices=0.3)
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode, duplicates="rows")
    runner = flow.SimulatedRunner(seed=seed, faults=faults)
    job = pipeline(TABLE).start(runner, parallelism=parallelism, checkpoint=checkpoint)
    result: Any = job.wait()
    found, reported = _sorted(result.table("rows")), in_duckdb(TABLE)
    if mode != "unaligned":
        assert found == reported
        assert _sorted(result.table("totals of kinds")) == totals_in_duckdb(TABLE)
    assert set(found) == set(reported)
    assert any(attempt.restored is not None for attempt in job.attempts), "no attempt restored anything"


def test_threads_give_the_rows_of_duckdb() -> None:
    result = pipeline(TABLE).run(parallelism=2)
    assert _sorted(result.table("rows")) == in_duckdb(TABLE)
    assert _sorted(result.table("totals of kinds")) == totals_in_duckdb(TABLE)


def test_spark_gives_the_same_rows_and_refuses_a_changed_table(spark: Any, tmp_path: Path) -> None:
    table, runner = tmp_path / "table", SparkRunner(spark, rows_per_trigger=1_500)
    table.mkdir()
    pq.write_table(TABLE, table / "x.parquet")
    options: Any = {"parallelism": 1, "max_key_groups": 1, "checkpoint": flow.Checkpointing(tmp_path / "job")}
    result = pipeline(op.read_parquet(table)).run(runner, **options)
    assert _sorted(result.table("rows")) == in_duckdb(TABLE)
    assert _sorted(result.table("totals of kinds")) == totals_in_duckdb(TABLE)
    pq.write_table(TABLE.slice(1), table / "x.parquet")
    with pytest.raises(CheckpointMismatch, match=r"another lookup table:\n  operator 'prices'.*x\.parquet"):
        pipeline(op.read_parquet(table)).run(runner, **options)


# --- tables that change between two runs


def first_run(location: Path, table: pa.Table) -> None:
    """Run to the end, and leave the last checkpoint."""
    with pipeline(table).start(parallelism=2, checkpoint=flow.Checkpointing(location, every="1h")) as job:
        job.wait()


def test_a_changed_table_refuses_the_restore(tmp_path: Path) -> None:
    first_run(tmp_path, TABLE)
    changed = TABLE.set_column(1, "v", pa.array(range(1, 24)))
    message = r"operator 'prices': the table pyarrow\.Table has changed: column 'v' .*\n.*on_change=\"reload\""
    with pytest.raises(CheckpointMismatch, match=message):
        pipeline(changed).run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path))


def test_a_changed_table_is_reloaded_with_a_warning(tmp_path: Path) -> None:
    first_run(tmp_path, TABLE)
    again = pipeline(TABLE.slice(3), on_change="reload")
    with pytest.warns(TableReloadedWarning, match=r"operator 'prices'.*it had 23 rows, now 20"):
        again.run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path))


def test_a_table_whose_unused_columns_changed_is_restored(tmp_path: Path) -> None:
    first_run(tmp_path, TABLE.append_column("unused", pa.array(range(23))))
    again = TABLE.append_column("unused", pa.array(range(23, 0, -1)))
    assert pipeline(again).run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path)).restore_report is not None
