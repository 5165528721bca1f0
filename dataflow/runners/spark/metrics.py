"""Reports of subtasks on their way to the driver, and what becomes of them: the numbers of a ``RunResult``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dataflow.contracts.lateness import Lateness
from dataflow.contracts.row_errors import SAMPLES, RowError
from dataflow.planning.physical_plan import vertex_of
from dataflow.runners.micro_batches import MicroBatch, MicroBatches, StateUse
from dataflow.runners.run_result import OperatorMetrics
from dataflow.runners.spark.envelopes import REPORT, TO_DRIVER, Envelope
from dataflow.runners.spark.task_host import Report

__all__ = ["Counters", "Timing", "handles_of", "micro_batch", "read_report", "reported"]


def reported(report: Report, round_: int) -> Envelope:
    """A report as an envelope for the driver."""
    return Envelope(TO_DRIVER, REPORT, 0, round_, msgspec.json.encode(report))


def read_report(payload: bytes) -> Report:
    """The inverse of ``reported``."""
    return msgspec.json.decode(payload, type=Report)


def handles_of(reports: Iterable[Report]) -> Mapping[str, list[Any]]:
    """The transactions that were staged, by sink."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        for sink, handles in report.handles.items():
            found.setdefault(sink, []).extend(handles)
    return found


@dataclass
class Counters:
    """The counters of every operator, over all subtasks and micro-batches of this run."""

    _rows: dict[str, list[int]] = field(default_factory=dict)
    _samples: dict[str, list[RowError]] = field(default_factory=dict)
    _busy: dict[str, int] = field(default_factory=dict)
    _lateness: dict[str, Lateness] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Count what a subtask did in a micro-batch that is done."""
        vertex = vertex_of(report.task)
        self._busy[vertex] = self._busy.get(vertex, 0) + report.busy
        for name, *counts, lateness, samples in report.operators:
            before = self._lateness.get(name, Lateness())
            self._lateness[name] = Lateness.together([before, Lateness.unpacked(lateness)])
            self._rows[name] = [a + b for a, b in zip(self._rows.get(name, [0] * 5), counts, strict=True)]
            kept = self._samples.get(name, [])
            self._samples[name] = [*kept, *(RowError(*sample) for sample in samples[: SAMPLES - len(kept)])]

    def busy(self, vertex: str) -> int:
        """Microseconds of all subtasks of a vertex, those of its operators among them."""
        return self._busy.get(vertex, 0)

    def copy(self) -> Counters:
        """These counters, to add to. Readers and the one thread that counts need no lock."""
        return Counters(dict(self._rows), dict(self._samples), dict(self._busy), dict(self._lateness))

    def of(self, name: str) -> OperatorMetrics:
        """One operator."""
        rows_in, rows_out, late, skipped, busy = self._rows.get(name, [0] * 5)
        samples: Any = tuple(self._samples.get(name, ()))
        lateness = self._lateness.get(name, Lateness())
        return OperatorMetrics(name, rows_in, rows_out, late, skipped, busy, samples, lateness)


# TIMES
"""The times of micro-batches, taken from Spark's ``StreamingQueryProgress``.

A listener would hear of them some time later, on a thread of its own. But the thread of the query notes down how
micro-batch n went before it begins n + 1, and before it ends. So whoever looks when n + 1 is delivered, and when the
query is over, misses none, although Spark keeps no more than the last hundred.
"""


class Timing:
    """Collects the micro-batches of ``query``, which is set when it has started, from number ``first`` on."""

    def __init__(self, first: int) -> None:
        self.query: Any = None
        self._first = first
        self._found: dict[int, MicroBatch] = {}

    def catch_up(self, before: int) -> None:
        """Take all micro-batches below ``before``. One call to the JVM, where the one before was taken in its turn."""
        if self.query is None or not self._missing(before):
            return
        last = self.query.lastProgress
        alone = last is not None and last["batchId"] == before - 1 and _is_whole(last) and not self._missing(before - 1)
        for progress in [last] if alone else self.query.recentProgress:
            if _is_whole(progress):
                self._found[progress["batchId"]] = micro_batch(progress)

    def _missing(self, before: int) -> bool:
        return before > self._first and before - 1 not in self._found

    def taken(self, done: int) -> MicroBatches:
        """All that are known; ``done`` are those in the life of the job, of which the last are looked for now."""
        with suppress(Exception):  # the JVM may be gone; what is known is told
            self.catch_up(done)
        return MicroBatches([self._found[number] for number in sorted(self._found)])


def _is_whole(progress: Any) -> bool:
    """Whether it tells of a micro-batch. Spark also reports that it waits, under the number of the next one."""
    return "addBatch" in progress["durationMs"]


def micro_batch(progress: Any) -> MicroBatch:
    """A report of Spark's in our units. The rows it counts are envelopes, and so are left out."""
    times = {name: int(time) * 1_000 for name, time in progress["durationMs"].items()}
    duration = times.pop("triggerExecution", sum(times.values()))
    states = [
        StateUse(
            slots=state["numRowsTotal"],
            updated=state["numRowsUpdated"],
            memory=state["memoryUsedBytes"],
            updating=state["allUpdatesTimeMs"] * 1_000,
            committing=state["commitTimeMs"] * 1_000,
        )
        for state in progress["stateOperators"]
    ]
    return MicroBatch(progress["batchId"], duration, times, states)
