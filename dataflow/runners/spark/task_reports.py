"""Reports of subtasks on their way to the driver, and what becomes of them: the numbers of a ``RunResult``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dataflow.contracts.lateness import Lateness
from dataflow.contracts.row_errors import SAMPLES, RowError
from dataflow.planning.physical_plan import vertex_of
from dataflow.runners.run_result import OperatorMetrics
from dataflow.runners.spark.envelopes import REPORT, TO_DRIVER, Envelope
from dataflow.runners.spark.task_host import Report

__all__ = ["Counters", "handles_of", "read_report", "reported"]


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
