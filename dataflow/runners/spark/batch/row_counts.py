"""The rows of operators that Spark computes itself: of files by their footers, of others by observation.

Spark counts the rows of an operator only if it is told to before the plan is made, which costs some time and keeps
filters where they are. So without ``metrics="full"`` only sources are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.contracts.source import ParquetFiles
from dataflow.events.plan_shape import task_id
from dataflow.planning.graph import Node
from dataflow.planning.specs import Read, Write
from dataflow.runners.spark.frame_sinks import counted_rows
from dataflow.runners.spark.metrics import Counters
from dataflow.runners.spark.placement import SparkPlan
from dataflow.runners.spark.session import functions, pyspark
from dataflow.runners.spark.task_report import TaskReport

__all__ = ["RowCounts"]

_PATIENCE: Final = 5.0
"""Seconds to wait for a count, which Spark delivers on another thread after the job."""


class RowCounts:
    """Counts the rows of a batch's operators that no task counts. ``full``: also those of operators without files."""

    def __init__(self, spark_plan: SparkPlan, *, full: bool) -> None:
        self._spark_plan = spark_plan
        self._full = full
        self._observations: dict[str, Any] = {}
        self._frames: dict[str, Any] = {}

    def observed(self, node: Node, frame: Any) -> Any:
        """Return the DataFrame of an operator, with its rows counted when it is computed, if they are to be."""
        if isinstance(node.spec, Write) or not (self._full or node.name in self._spark_plan.given):
            return frame  # a sink counts its rows itself
        f, observation = functions(), pyspark("pyspark.sql").Observation()
        self._observations[node.name] = observation  # the last attempt counts
        self._frames[node.name] = frame
        return frame.observe(observation, f.count(f.lit(1)).alias("rows"))

    def corrected(self, report: TaskReport) -> TaskReport:
        """Return the report of a task without the rows that it took in place of an operator of Spark's, as its input.

        They are the output of the operator.
        """
        cut = self._spark_plan.cut
        head, *others = report.operators  # a task has at least one operator
        plan, name = self._spark_plan, head.operator
        if cut is None or name not in cut.native or name not in plan.plan.vertices or name in plan.native_sources:
            return report
        return replace(report, operators=[replace(head, rows_in=0), *others])  # observed, if asked for

    def notes(self) -> list[str]:
        """Return what the user should know of the counts."""
        cut = self._spark_plan.cut
        own = [] if cut is None else [node for node in cut.whole if node.name in cut.native]
        if self._full or all(isinstance(node.spec, Read | Write) for node in own):
            return []
        return [
            "rows between operators that Spark computes itself are not counted, so some counts are 0; "
            'SparkRunner(metrics="full") counts all'
        ]

    def reports(self, counters: Counters) -> Iterator[TaskReport]:
        """Yield what is to be added to the counters of the tasks."""
        cut = self._spark_plan.cut
        rows: dict[str, int] = {}
        for node in cut.whole if cut is not None else ():
            if cut is None or node.name not in cut.native or isinstance(node.spec, Write):
                continue
            counted_by_task = node.name in self._spark_plan.plan.vertices
            if isinstance(node.spec, Read) and node.name not in self._spark_plan.given:
                files = node.spec.source.parquet_files()
                assert isinstance(files, ParquetFiles), f"{node.name} is read by Spark"
                rows[node.name] = files.rows
                if not counted_by_task:
                    yield TaskReport(task_id(node.name, 0), [OperatorMetrics(node.name, files.rows, files.rows)])
            elif node.name in self._observations:
                frame = self._frames[node.name]
                counted = counted_rows(self._observations[node.name], frame, _PATIENCE)  # None: as on Spark Connect
                rows[node.name] = int(frame.count()) if counted is None else counted
                before = [cut.whole.nodes[edge.source].name for edge in node.inputs]
                rows_in = sum(rows[name] if name in rows else counters.of(name).rows_out for name in before)
                rows_in = rows[node.name] if isinstance(node.spec, Read) else rows_in
                rows_out = 0 if counted_by_task else rows[node.name]
                yield TaskReport(task_id(node.name, 0), [OperatorMetrics(node.name, rows_in, rows_out)])
