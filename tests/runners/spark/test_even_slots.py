"""Keyed tasks are spread evenly over Spark's partitions, and a job keeps its numbers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, ManyPartitionsWarning
from dataflow.runners.spark.even_slots import even_slots, partition_of


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_the_hash_is_that_of_spark(spark: Any, partitions: int) -> None:
    numbers = [*range(500), 2**31 - 1, 2**20 + 3]
    frame = spark.createDataFrame([(number,) for number in numbers], "slot int")
    spread = frame.repartition(partitions, "slot").selectExpr("slot", "spark_partition_id() as partition").collect()
    assert {row.slot: row.partition for row in spread} == {n: partition_of(n, partitions) for n in numbers}


@pytest.mark.parametrize(("tasks", "partitions"), [(0, 3), (1, 3), (128, 64), (129, 7), (300, 200)])
def test_each_partition_gets_an_equal_share(tasks: int, partitions: int) -> None:
    slots = even_slots(tasks, partitions)
    assert len({*slots}) == tasks
    shares = Counter(partition_of(slot, partitions) for slot in slots)
    assert len(shares) == min(tasks, partitions)
    assert max(shares.values(), default=0) - min(shares.values(), default=0) <= 1


def counts(out: Path) -> flow.Pipeline:
    with flow.Pipeline("counts") as p:
        rows = p.source(op.from_arrow(pa.table({"k": list(range(40)) * 5}), batch_rows=20), name="rows")
        totals = rows.key_by("k").agg(n=op.count(), emit="final", name="totals")
        totals.key_by("n").agg(keys=op.count(), emit="final", name="again").sink(op.write_parquet(out), name="out")
    return p


@pytest.mark.soak
def test_a_job_keeps_the_numbers_that_it_was_started_with(spark: Any, tmp_path: Path) -> None:
    job, out = tmp_path / "job", tmp_path / "out"
    runner = flow.SparkRunner(spark, rows_per_trigger=40)
    counts(out).run(runner, parallelism=1, max_key_groups=4, checkpoint=flow.Checkpointing(job))
    stored = json.loads((job / "job.json").read_text())
    assert stored["slots"] == even_slots(8, int(spark.conf.get("spark.sql.shuffle.partitions")))
    assert op.read_committed(out).to_pylist() == [{"n": 5, "keys": 40}]
    again = counts(out).run(runner, parallelism=1, max_key_groups=4, checkpoint=flow.Checkpointing(job))
    assert again.rows_in == {"rows": 0}
    assert json.loads((job / "job.json").read_text())["job"] == stored["job"]
    for forged, what in (({"slots": "many"}, "the numbers of keyed tasks"), ({"job": "../" * 11}, "the id of the job")):
        (job / "job.json").write_text(json.dumps({**stored, **forged}))
        with pytest.raises(CheckpointDamaged, match=rf"job\.json is damaged: {what}"):
            counts(out).run(runner, parallelism=1, max_key_groups=4, checkpoint=flow.Checkpointing(job))


def test_many_partitions_for_few_cores_are_warned_of_while_they_can_be_changed(spark: Any, tmp_path: Path) -> None:
    before, checkpoint = spark.conf.get("spark.sql.shuffle.partitions"), flow.Checkpointing(tmp_path / "job")
    table = pa.table({"k": [1, 2]})
    with flow.Pipeline("many") as p:
        rows = p.source(op.from_arrow(table), name="rows")
        rows.key_by("k").agg(n=op.count(), emit="final").sink(op.collect(), name="out")
    spark.conf.set("spark.sql.shuffle.partitions", "32")
    try:
        with pytest.warns(ManyPartitionsWarning, match="partitions is 32 and the session has 2 cores"):
            p.run(flow.SparkRunner(spark), parallelism=1, max_key_groups=2, checkpoint=checkpoint)
        p.run(flow.SparkRunner(spark), parallelism=1, max_key_groups=2, checkpoint=checkpoint)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
