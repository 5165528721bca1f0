"""Metrics of a job: the reports of its tasks, summed up in the driver, and the times of its micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.planning.physical_plan import vertex_of
from dataflow.runners.micro_batches import MicroBatch, MicroBatches, StateUse
from dataflow.runners.spark.envelopes import REPORT, TO_DRIVER, Envelope
from dataflow.runners.spark.task_report import TaskReport

__all__ = [
    "Counters",
    "MicroBatchTimes",
    "handles_of",
    "merged_reports",
    "micro_batch",
    "read_report",
    "report_envelope",
]


def report_envelope(report: TaskReport, round_: int) -> Envelope:
    """Return a report as an envelope for the driver, which has each value under the name of its field."""
    return Envelope(TO_DRIVER, REPORT, 0, round_, msgspec.json.encode(report))


def merged_reports(reports: Iterable[TaskReport]) -> list[TaskReport]:
    """Return one report for each vertex, with the sums over its subtasks, as ``Counters`` adds them up."""
    by_vertex: dict[str, list[TaskReport]] = {}
    for report in reports:
        by_vertex.setdefault(vertex_of(report.task), []).append(report)
    return [own[0] if len(own) == 1 else _merged(own) for own in by_vertex.values()]


def _merged(reports: Sequence[TaskReport]) -> TaskReport:
    counters = Counters()
    for report in reports:
        counters.add(report)
    lags = [report.lag for report in reports if report.lag is not None]
    return TaskReport(
        reports[0].task,
        counters.all(),
        handles_of(reports),
        sum(report.busy for report in reports),
        [notice for report in reports for notice in report.notices],
        read=sum(report.read for report in reports),
        written=sum(report.written for report in reports),
        late=sum(report.late for report in reports),
        state=sum(report.state for report in reports),
        state_rows=sum(report.state_rows for report in reports),
        lag=max(lags, default=None),
        awaited=max([report.awaited for report in reports if report.awaited is not None], default=None),
        work=[work for report in reports for work in report.work],
    )


def read_report(payload: bytes) -> TaskReport:
    """Return the report that ``report_envelope`` encoded."""
    return msgspec.json.decode(payload, type=TaskReport)


def handles_of(reports: Iterable[TaskReport]) -> Mapping[str, list[Any]]:
    """Return the handles of the transactions that were staged, by sink."""
    by_sink: dict[str, list[Any]] = {}
    for report in reports:
        for sink, handles in report.handles.items():
            by_sink.setdefault(sink, []).extend(handles)
    return by_sink


@dataclass
class Counters:
    """The metrics of every operator, over all subtasks and micro-batches of this run."""

    _operators: dict[str, OperatorMetrics] = field(default_factory=dict)
    _busy: dict[str, int] = field(default_factory=dict)

    def add(self, report: TaskReport) -> None:
        """Add the report of a subtask in a micro-batch that is done."""
        vertex = vertex_of(report.task)
        self._busy[vertex] = self._busy.get(vertex, 0) + report.busy
        for metrics in report.operators:
            self._operators[metrics.operator] = self.of(metrics.operator) + metrics

    def busy(self, vertex: str) -> int:
        """Return the microseconds that all subtasks of a vertex were busy, operators included."""
        return self._busy.get(vertex, 0)

    def copy(self) -> Counters:
        """Return a copy to add to. Readers and the one thread that counts need no lock."""
        return Counters(dict(self._operators), dict(self._busy))

    def has(self, name: str) -> bool:
        """Return whether the rows of an operator were counted."""
        return name in self._operators

    def of(self, name: str) -> OperatorMetrics:
        """Return the metrics of one operator."""
        return self._operators.get(name, OperatorMetrics(name))

    def all(self) -> list[OperatorMetrics]:
        """Return the metrics of the operators that were counted."""
        return list(self._operators.values())


class MicroBatchTimes:
    """The times of micro-batches of ``query`` from number ``first`` on; ``query`` is set when it has started.

    They come from Spark's ``StreamingQueryProgress``. A listener would get them later, on a thread of its own. But
    Spark's query thread stores the progress of micro-batch n before n + 1 starts, and before the query ends. So no
    micro-batch is missed if they are collected when n + 1 is delivered and when the query is over, although Spark keeps
    only the last hundred.
    """

    def __init__(self, first: int) -> None:
        self.query: Any = None
        self._first = first
        self._batches: dict[int, MicroBatch] = {}

    def catch_up(self, before: int) -> None:
        """Collect all micro-batches below ``before``: one call to the JVM if only the last one is missing."""
        if self.query is None or not self._missing(before):
            return
        last = self.query.lastProgress
        alone = last is not None and last["batchId"] == before - 1 and _is_whole(last) and not self._missing(before - 1)
        for progress in [last] if alone else self.query.recentProgress:
            if _is_whole(progress):
                self._batches[progress["batchId"]] = micro_batch(progress)

    def _missing(self, before: int) -> bool:
        return before > self._first and before - 1 not in self._batches

    def collected(self, done: int) -> MicroBatches:
        """Return all micro-batches that could be collected, of the ``done`` ones of the job."""
        with suppress(Exception):  # the JVM may be gone; earlier micro-batches are returned
            self.catch_up(done)
        return MicroBatches([self._batches[number] for number in sorted(self._batches)])


def _is_whole(progress: Any) -> bool:
    """Return whether this is the progress of a micro-batch. Spark also reports waiting, under the next number."""
    return "addBatch" in progress["durationMs"]


def micro_batch(progress: Any) -> MicroBatch:
    """Return Spark's progress in our units. The rows that Spark counts are envelopes, so they are left out."""
    times = {name: int(time) * 1_000 for name, time in progress["durationMs"].items()}
    duration = times.pop("triggerExecution", sum(times.values()))
    states = [
        StateUse(
            pieces=state["numRowsTotal"],
            written=state["numRowsUpdated"],
            memory=state["memoryUsedBytes"],
            updating=state["allUpdatesTimeMs"] * 1_000,
            committing=state["commitTimeMs"] * 1_000,
        )
        for state in progress["stateOperators"]
    ]
    return MicroBatch(progress["batchId"], duration, times, states)
