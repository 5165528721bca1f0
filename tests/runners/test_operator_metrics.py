"""Every metric of an operator reaches the result, in memory and over the path through Spark, by its rule."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.lateness import Lateness
from dataflow.contracts.operator_metrics import RULES, OperatorMetrics, RowError
from dataflow.runners.spark.metrics import Counters, merged_reports, read_report, report_envelope
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.task_report import TaskReport
from tests.runners.spark.test_placement import spark_plan

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

ROWS = pa.table({"x": range(4)})


def of_type(type_: str, number: int) -> Any:
    """Return a value of the type of a metric, another one for each number."""
    values: dict[str, Any] = {
        "str": "counting",
        "int": 1_000 + number,
        "Lateness": Lateness(number + 3, {number: 3, 9: 2}, 7 + number),
        "tuple[RowError, ...]": tuple(RowError(f"{number}", f"{place}", "error") for place in range(2)),
    }
    return values[type_]


def distinct(first: int = 0) -> OperatorMetrics:
    """Return metrics with another value in each field."""
    metrics = enumerate(fields(OperatorMetrics), first)
    return OperatorMetrics(**{metric.name: of_type(str(metric.type), number) for number, metric in metrics})


class Counting(flow.Operator):
    """Counts a distinct number of everything in each subtask, when its input has ended."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.context = context

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)

    def finish(self, out: flow.Out) -> None:
        values = distinct(100 * self.context.subtask)
        for metric in fields(values):
            setattr(self.context.tally, metric.name, getattr(values, metric.name))


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("counts") as p:
        counting = p.source(op.from_arrow(ROWS), name="rows").key_by("x").apply(Counting, name="counting")
        counting.sink(op.collect(), name="out")
    return p


def expected() -> OperatorMetrics:
    """Return the sum over two subtasks, by the rules of the fields."""
    return distinct() + distinct(100)


def test_numbers_are_summed_histograms_merged_and_the_first_five_samples_kept() -> None:
    errors = [RowError("f", f"{number}", "error") for number in range(9)]
    one = OperatorMetrics("f", 1, 2, late=3, busy=4, samples=tuple(errors[:3]), lateness=Lateness(5, {1: 2, 7: 1}, 8))
    other = OperatorMetrics("f", 10, 20, late=30, busy=40, samples=tuple(errors[3:]), lateness=Lateness(6, {7: 3}, 7))
    assert one + other == OperatorMetrics(
        "f", 11, 22, late=33, busy=44, samples=tuple(errors[:5]), lateness=Lateness(11, {1: 2, 7: 4}, 8)
    )


def test_each_metric_of_a_local_run_is_the_sum_over_the_subtasks() -> None:
    result = pipeline().run("simulated", parallelism=2)
    assert result.operator("counting") == expected()
    assert [task.operators[0] for task in result.metrics if "counting" in task.task] == [distinct(), distinct(100)]


def test_each_metric_is_in_the_summaries_under_its_name() -> None:
    result = pipeline().run("simulated", parallelism=2)
    (found,) = [o for o in json.loads(result.to_json())["operators"] if o["operator"] == "counting"]
    assert found == json.loads(json.dumps(expected().to_json()))
    for name, rule in [(name, rule) for name, rule in RULES.items() if rule.line]:
        value = getattr(expected(), name)
        assert f"  {rule.line}: {value:,} {rule.unit} ({value:,} at 'counting')" in str(result).splitlines()
        assert result.to_dict()[name] == value


def test_each_metric_of_a_spark_worker_reaches_the_driver_by_name() -> None:
    plan = spark_plan(pipeline())
    (vertex,) = [vertex for vertex in plan.plan.vertices.values() if vertex.name == "counting"]
    reports = []
    for subtask in range(2):
        recorder = OutputRecorder(plan, subtask, 1, distributed=False)
        with TaskHost(plan, vertex, subtask, None, "run", recorder, clock=MicroBatchClock(0)) as host:
            host.finish()
            (node,) = [node for node in host.chain.nodes if node.name == "counting"]
            node.tally.busy = distinct(100 * subtask).busy  # the real one differs in each run
            reports.append(host.report())
    payloads = [report_envelope(report, 1).payload for report in reports]
    operators = json.loads(payloads[0])["operators"]
    assert list(operators[0]) == list(RULES)
    counters = Counters()
    for report in merged_reports(read_report(payload) for payload in payloads):
        counters.add(read_report(report_envelope(report, 1).payload))
    assert counters.of("counting") == expected()


def test_counters_are_added_up_over_micro_batches_and_keep_earlier_copies() -> None:
    counters = Counters()
    counters.add(TaskReport("counting[0]", [distinct()]))
    before = counters.copy()
    counters.add(TaskReport("counting[0]", [distinct(100)]))
    assert (before.of("counting"), counters.of("counting")) == (distinct(), expected())


def test_a_sum_shares_nothing_that_changes_with_its_parts() -> None:
    left = distinct()
    total = left + OperatorMetrics()
    total.lateness.add([5])
    assert (left, total == left) == (distinct(), False)
