"""Sinks after keyed tasks write in every partition of Spark's; these may outnumber subtasks and key groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.protocol.events import Data
from dataflow.runners.spark.envelopes import UNROUTED, Content, Envelope
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.metrics import handles_of, read_report
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.routing import route_link
from dataflow.runners.spark.source_tasks import Assignment

BATCH = pa.record_batch({"x": [1, 2, 3]})


@pytest.mark.parametrize("partition", [0, 1, 250])
def test_a_partition_of_any_number_writes_the_rows_it_has(partition: int, tmp_path: Path) -> None:
    sink = op.write_parquet(tmp_path / "out")
    with flow.Pipeline() as p:
        p.source(op.from_arrow(BATCH), name="in").rebalance().sink(sink, name="out")
    assignment = Assignment(
        plan_for_spark(p.graph, parallelism=1, key_groups=2), JobDirectory(tmp_path / "job"), "run", 100
    )
    with sink.hold("run"):
        sink.begin()
        raw = [Envelope(UNROUTED, 0, 0, 0, Content({4: [Data(BATCH, 0)]}).encode())]
        (report,) = route_link(assignment, 0, raw, partition)
        sink.commit(1, handles_of([read_report(report.payload)])["out"])
    assert op.read_committed(tmp_path / "out").to_pylist() == BATCH.to_pylist()
