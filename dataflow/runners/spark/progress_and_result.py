"""Progress of a job on Spark after the micro-batches that are done, and its result in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.errors import BarrierflowWarning
from dataflow.planning.specs import Read, Write
from dataflow.runners.job_progress import JobProgress, RowRate, taken_by_sinks
from dataflow.runners.run_result import RunResult, TaskMetrics, changes_of, outputs_of, together
from dataflow.runners.run_warnings import late_rows
from dataflow.runners.spark.driver_sinks import DriverSinks
from dataflow.runners.tuning import Tuning, source_choices
from dataflow.runtime.task.progress import JobState, TaskTimes
from dataflow.views.events import events_of

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.runners.spark.batch.driver import BatchQuery

__all__ = ["SparkMeter"]


class SparkMeter:
    """Measures the progress of a job, with rates since the last measurement; returns the result in the end."""

    def __init__(self, driver: DriverSinks, query: BatchQuery | None = None) -> None:
        self._driver = driver
        self._query = query  # of a batch
        self._started = driver.clock.now()
        self._rate = RowRate(self._started)
        self._last: JobProgress | None = None

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return JobState.RUNNING if self._last is None else self._last.state

    def end(self, state: JobState) -> None:
        """Store the last progress of a job that is over, because its directory may be deleted now."""
        self._last = replace(self.read(), state=state)

    def read(self) -> JobProgress:
        """Return the current progress. No rows are in transit between tasks when a micro-batch is done."""
        if self._last is not None:
            return self._last
        driver, now = self._driver, self._driver.clock.now()
        graph = driver.assignment.spark_plan.graph
        counters = driver.metrics()
        operators = {node.name: counters.of(node.name) for node in graph}
        rows_in = sum(operators[node.name].rows_in for node in graph if isinstance(node.spec, Read))
        if rows_in != self._rate.rows:  # else no micro-batch was done since
            self._rate.update(rows_in, now)
        written = taken_by_sinks(graph, {name: counts.rows_in for name, counts in operators.items()})
        read_input = driver.read_input()
        elapsed = now - self._started
        return JobProgress(
            state=self.state,
            elapsed=elapsed,
            rows_in=rows_in,
            rows_out=written["rows"],
            updates_out=written["updates"],
            changes_out=written["signed"],
            rows_per_second=self._rate.per_second,
            backlog=0,
            late=sum(o.late for o in operators.values()),
            skipped=sum(o.skipped for o in operators.values()),
            checkpoints=len(driver.records),
            failed=0,
            pending=0,
            done=self._share if read_input is None else read_input.share,
            left=None if read_input is None else read_input.time_left(rows_in, elapsed),
        )

    @property
    def _share(self) -> float | None:
        """The share of a batch that is done, by Spark's tasks: its splits are counted only at the end."""
        return None if self._query is None else self._query.share

    def result(self, pipeline: str, checkpoint: Checkpointing | None, tables: Mapping[str, pa.Table]) -> RunResult:
        """Return the result of a job that is over; ``tables`` are those of collecting sinks."""
        driver, metrics = self._driver, self._task_metrics()
        graph = driver.assignment.spark_plan.graph
        counters = driver.metrics()
        rows = {node.name: counters.of(node.name).rows_in for node in graph}
        return RunResult(
            pipeline=pipeline,
            state=self.state,
            mode=None if checkpoint is None else Mode.ALIGNED,
            guarantee=driver.assignment.spark_plan.guarantee(checkpoint),
            rows_in={node.name: rows[node.name] for node in graph if isinstance(node.spec, Read)},
            rows_out={node.name: rows[node.name] for node in graph if isinstance(node.spec, Write)},
            tables=tables,
            checkpoints=tuple(driver.records) if checkpoint is not None else (),
            failures=(),
            restore_report=driver.restore_report,
            metrics=metrics,
            duration=driver.clock.now() - self._started,
            micro_batches=driver.micro_batches(),
            warnings=tuple(self.warnings()),
            outputs=outputs_of(graph),
            changes=changes_of(graph),
            tuning=Tuning(source_choices(graph)),
            restarts=driver.restarts,
            notes=tuple(driver.notes()) if self.state is JobState.FINISHED else (),
            job_id=driver.events.job_id,
            events=events_of(driver.events.log),
        )

    def warnings(self) -> list[BarrierflowWarning]:
        """Return the warnings of the run so far."""
        graph = self._driver.assignment.spark_plan.plan.logical
        ended = self._driver.warnings() if self.state in (JobState.FINISHED, JobState.STOPPED) else []
        return [*self._driver.notices.warnings(), *ended, *late_rows(graph, together(self._task_metrics()))]

    def _task_metrics(self) -> list[TaskMetrics]:
        spark_plan, counters = self._driver.assignment.spark_plan, self._driver.metrics()
        vertices = spark_plan.plan.vertices
        metrics = [
            TaskMetrics(node.name, TaskTimes(), [counters.of(node.name)], ())
            for node in spark_plan.graph
            if node.name in spark_plan.native and node.name not in vertices and counters.has(node.name)
        ]
        shown: set[str] = set()
        handed = () if spark_plan.cut is None else tuple(spark_plan.cut.handed.values())
        for vertex in [vertex for vertex in vertices.values() if vertex.name not in handed]:
            own = dict.fromkeys([node.name for node in vertex.nodes if node.name not in shown])  # copies share counters
            shown.update(own)
            operators = [counters.of(name) for name in own]
            busy = max(counters.busy(vertex.name), sum(o.busy for o in operators))
            metrics.append(TaskMetrics(vertex.name, TaskTimes(busy=busy), operators, ()))
        return metrics
