"""Watching a job on Spark: its counters after the micro-batches that are done."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dataflow.planning.physical_plan import task_id
from dataflow.planning.specs import Read
from dataflow.runners.job_progress import JobProgress, rows_of, taken_by_sinks
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.source_tasks import splits_of
from dataflow.runtime.task.progress import JobState
from dataflow.runtime.task.task_input import SplitState

__all__ = ["SparkMeter"]

_SECOND: Final = 1_000_000


class SparkMeter:
    """Takes snapshots of a job; rates are since the last one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._started = driver.clock.now()
        self._read_at, self._rows_in, self._rate = self._started, 0, 0.0
        self._last: JobProgress | None = None

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        return JobState.RUNNING if self._last is None else self._last.state

    def end(self, state: JobState) -> None:
        """The job is over, and so is its directory, perhaps; this is where it stood."""
        self._last = replace(self.read(), state=state)

    def read(self) -> JobProgress:
        """The job as it is now. Nothing is under way between tasks when a micro-batch is done."""
        if self._last is not None:
            return self._last
        driver, now = self._driver, self._driver.clock.now()
        graph = driver.assignment.stages.plan.graph
        counters = driver.metrics()
        operators = {node.name: counters.of(node.name) for node in graph}
        rows_in = sum(operators[node.name].rows_in for node in graph if isinstance(node.spec, Read))
        if now > self._read_at and rows_in != self._rows_in:
            self._rate = (rows_in - self._rows_in) * _SECOND / (now - self._read_at)
            self._read_at, self._rows_in = now, rows_in
        rows_out, updates_out = taken_by_sinks(graph, {name: counts.rows_in for name, counts in operators.items()})
        total, read = self._input()
        elapsed = now - self._started
        return JobProgress(
            state=self.state,
            elapsed=elapsed,
            rows_in=rows_in,
            rows_out=rows_out,
            updates_out=updates_out,
            rows_per_second=self._rate,
            backlog=0,
            late=sum(o.late for o in operators.values()),
            skipped=sum(o.skipped for o in operators.values()),
            checkpoints=len(driver.records),
            failed=0,
            pending=0,
            done=None if total is None else (read / total if total else 1.0),
            left=None if total is None or not rows_in else (total - read) * elapsed // rows_in,
        )

    def _input(self) -> tuple[int | None, int]:
        """The rows of all splits, and how many of them were read; None: nobody knows."""
        counts = [rows_of(split) for split in self._splits()]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts) or not counts:
            return None, 0
        return sum(total for total, _ in known), sum(read for _, read in known)

    def _splits(self) -> list[SplitState]:
        home, stages = self._driver.assignment.home, self._driver.assignment.stages
        lanes = [home.task(task_id(vertex.name, i), self._driver.done) for vertex, i in stages.lanes]
        return [split for lane in lanes if lane is not None for split in splits_of(lane)]
