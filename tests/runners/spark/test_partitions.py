"""What leaves a partition of Spark's: staged files, rows for the next keyed tasks, and the number that ends it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.events import Data, Element, Watermark
from dataflow.runners.spark import routing
from dataflow.runners.spark.envelopes import CLOSING, UNROUTED, Content, Envelope, by_channel
from dataflow.runners.spark.even_slots import even_slots, partition_of
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.keyed_tasks import KeyedPartition
from dataflow.runners.spark.metrics import handles_of, read_report
from dataflow.runners.spark.placement import SparkPlan, plan_for_spark
from dataflow.runners.spark.routing import PartitionOutput
from dataflow.runners.spark.source_tasks import Assignment
from tests.forcing import Force

BATCH = pa.record_batch({"x": [1, 2, 3]})


@pytest.mark.parametrize("partition", [0, 1, 250])
def test_a_partition_of_any_number_writes_the_rows_it_has(partition: int, tmp_path: Path) -> None:
    sink = op.write_parquet(tmp_path / "out")
    with flow.Pipeline() as p:
        p.source(op.from_arrow(BATCH), name="in").rebalance().sink(sink, name="out")
    assignment = Assignment(
        plan_for_spark(p.graph, parallelism=1, key_groups=2), JobDirectory(tmp_path / "job"), "run", 100
    )
    assignment.directory.write_time(0, 0)
    with sink.hold("run"):
        sink.begin()
        raw = [Envelope(UNROUTED, 0, 0, 0, Content({4: [Data(BATCH, 0)]}).encode())]
        (report,) = assignment.output(0).all_of(raw, partition)
        sink.commit(1, handles_of([read_report(report.payload)])["out"])
    assert op.read_committed(tmp_path / "out").to_pylist() == BATCH.to_pylist()


def two_levels(tmp_path: Path) -> Assignment:
    with flow.Pipeline() as p:
        counts = p.source(op.from_arrow(BATCH), name="in").key_by("x").agg(n=op.count(), emit="changes", name="one")
        counts.key_by("n").agg(m=op.count(), emit="changes", name="two").sink(op.collect(net=True), name="out")
    plan = plan_for_spark(p.graph, parallelism=1, key_groups=5)
    numbered = plan.numbered(even_slots(len(plan.keyed_tasks), 3), 3)
    return Assignment(numbered, JobDirectory(tmp_path / "job"), "run", 100)


def counted(first: int, *, watermark: int | None = None) -> Content:
    """What a keyed task of the first level emits: two steps of rows, and the time after them."""
    schema = pa.schema({"x": pa.int64(), "n": pa.int64(), "_sign": pa.int8()})
    steps: dict[int, list[Element]] = {}
    for step in (0, 1):
        numbers = range(first + 10 * step, first + 10 * step + 4)
        rows = pa.record_batch([list(numbers), [n % 3 for n in numbers], [1] * 4], schema=schema)
        steps[step] = [Data(rows, 0)]
    if watermark is not None:
        steps[1].append(Watermark(watermark))
    return Content(steps)


def contents_of(envelopes: list[Envelope]) -> dict[tuple[int, int], tuple[list[int], list[Element]]]:
    """By keyed task and source: the rows in any order, and the other elements."""
    found = {}
    for task in {e.task for e in envelopes if e.link >= 0}:
        for (_, source), content in by_channel([e for e in envelopes if e.task == task]).items():
            elements = [element for step in content.steps.values() for element in step]
            rows = sorted(x for data in content.rows() for x in data.rows.column("x").to_pylist())
            found[task, source] = rows, [element for element in elements if not isinstance(element, Data)]
    return found


def test_rows_that_are_many_leave_before_the_end_and_time_leaves_once(tmp_path: Path, force: Force) -> None:
    assignment = two_levels(tmp_path)
    (link,) = [n for n, link in enumerate(assignment.spark_plan.plan.links) if link.target == "two"]
    sent = [[Envelope(UNROUTED, link, source, 3, counted(100 * source, watermark=7).encode())] for source in range(4)]
    whole = assignment.output(1)
    assert [e for envelopes in sent for e in whole.take(envelopes)] == []
    at_end = list(whole.end(0))
    assert whole.is_empty
    force(routing, "MESSAGE", 1, calls=PartitionOutput._route, times=1 + len(sent))
    pieces = assignment.output(1)
    before = [e for envelopes in sent for e in pieces.take(envelopes)]
    after = list(pieces.end(0))
    assert [e.link for e in after] == [CLOSING] * len(after)
    assert contents_of(before) == contents_of(at_end)
    assert any(Watermark(7) in elements for _, elements in contents_of(at_end).values())
    for envelopes in (at_end, [*before, *after]):
        reached = {partition_of(e.task, 3) for e in envelopes if e.link >= 0}
        closing = [e for e in envelopes if e.link == CLOSING]
        assert {e.source for e in closing} == reached
        assert [partition_of(e.task, 3) for e in closing] == [e.source for e in closing]
        assert min(e.task for e in closing) > max(assignment.spark_plan.slots)
        assert {e.round for e in closing} == {3}


def test_rows_that_only_pass_a_partition_get_its_end_again(tmp_path: Path) -> None:
    assignment = two_levels(tmp_path)
    task = assignment.spark_plan.keyed_task_number("two", 4)
    output = assignment.output(1)
    passing = Envelope(task, 1, 0, 6, b"")
    assert list(output.take([passing])) == [passing]
    assert list(output.end(2)) == [assignment.spark_plan.closing_envelope(partition_of(task, 3), 6)]


def test_a_partition_whose_last_call_was_not_the_last_fails(tmp_path: Path) -> None:
    assignment = two_levels(tmp_path)
    plan: SparkPlan = assignment.spark_plan
    packed = cloudpickle.dumps((assignment, 2, frozenset([plan.keyed_task_number("two", 0)])))
    partition = KeyedPartition(packed)
    unrouted = Envelope(UNROUTED, 1, 0, 6, counted(0).encode())
    number = plan.keyed_task_number("one", 3)
    assert list(partition._output.take([unrouted])) == []
    with pytest.raises(RuntimeError, match=r"has spark\.sql\.shuffle\.partitions changed"):
        partition.check_closed()
    assert plan.partition_of(number) == partition_of(number, 3)


def test_the_partitions_are_those_of_the_first_micro_batch(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    assert directory.partitions is None
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"7"}}\n{"round":1}')
    assert directory.partitions == 7
    (offsets / "1").write_text("v1\n{}\n-")
    with pytest.raises(CheckpointDamaged, match=r"offsets/1 is damaged: expected the setting"):
        print(directory.partitions)
