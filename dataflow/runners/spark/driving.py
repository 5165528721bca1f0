"""What the driver does with each micro-batch: rows of its own sinks, commits, counters.

The order is what makes the output exact. Spark counts a micro-batch as done only when this is through; one that is
repeated finds the sinks taken back to the one before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow.clock import Clock, SystemClock
from dataflow.events import BarrierKind, Data
from dataflow.operator import Collector, TwoPhaseSink
from dataflow.runners.spark.envelopes import REPORT, Content, Envelope, envelopes_of, together
from dataflow.runners.spark.hosting import Hosted, Recorder
from dataflow.runners.spark.lanes import Assignment
from dataflow.runners.spark.reports import Counters, handles_of, read_report
from dataflow.runners.spark.staging import Hosting
from dataflow.runtime.attempts import CheckpointRecord
from dataflow.runtime.report import RestoreReport
from dataflow.specs import Write

__all__ = ["Driver", "two_phase"]


@dataclass
class Driver:
    """The driver's part of a job: ``sinks`` with two phases, by name; ``restored``, what the job went back to."""

    assignment: Assignment
    sinks: Mapping[str, TwoPhaseSink]
    restored: RestoreReport | None = None
    counters: Counters = field(default_factory=Counters)
    records: list[CheckpointRecord] = field(default_factory=list)
    clock: Clock = field(default_factory=SystemClock)
    done: int = 0

    def __post_init__(self) -> None:
        stages = self.assignment.stages
        self._own: dict[str, Hosted] = {}
        for vertex in stages.plan.vertices.values():
            if stages.hosting[vertex.name] is Hosting.DRIVER:
                recorder = Recorder(stages, 0, 0, dealt=False)
                self._own[vertex.name] = Hosted(stages, vertex, 0, None, self.assignment.run_id, recorder)

    def open(self, done: int) -> None:
        """Go on behind ``done`` micro-batches."""
        self.done = done
        for hosted in self._own.values():
            hosted.__enter__()
        self._before = {
            name: self.assignment.home.collected(name, self._schema(name), done) for name in self._collecting()
        }

    def close(self) -> None:
        """Let go of the driver's own sinks."""
        for hosted in self._own.values():
            hosted.__exit__(None, None, None)

    def _collecting(self) -> list[str]:
        return [name for name, hosted in self._own.items() if isinstance(hosted.chain.head.operator, Collector)]

    def _schema(self, name: str) -> pa.Schema:
        head: Any = self._own[name].chain.head.operator
        return head.result().schema

    def tables(self) -> Mapping[str, pa.Table]:
        """What collecting sinks have."""
        found = {}
        for name in self._collecting():
            head: Any = self._own[name].chain.head.operator
            found[name] = pa.concat_tables([self._before[name], head.result()])
        return found

    def batch(self, frame: Any, number: int) -> None:
        """``foreachBatch``: what micro-batch ``number`` sent to the driver."""
        started = self.clock.now()
        rows: list[Envelope] = [e for batch in frame.toArrow().to_batches() for e in envelopes_of(batch)]
        reports = [read_report(e.payload) for e in rows if e.link == REPORT]
        self._deliver([e for e in rows if e.link != REPORT], number)
        for name, handles in handles_of(reports).items():
            self.sinks[name].commit(number + 1, handles)
        for report in reports:
            self.counters.add(report)
        self.done = number + 1
        size = sum(len(e.payload) for e in rows)
        self.records.append(CheckpointRecord(number + 1, BarrierKind.CHECKPOINT, self.clock.now() - started, size, {}))

    def _deliver(self, envelopes: list[Envelope], number: int) -> None:
        """Rows to the driver's own sinks, in the order of the steps."""
        contents: dict[str, list[Content]] = defaultdict(list)
        for e in envelopes:
            contents[self.assignment.stages.plan.links[e.link].target].append(Content.decode(e.payload))
        for name, found in contents.items():
            hosted = self._own[name]
            batches = [
                element.rows
                for elements in together(found).steps.values()
                for element in elements
                if isinstance(element, Data)
            ]
            for batch in batches:
                hosted.push(0, Data(batch))
            if name in self._collecting() and batches:
                rows: Any = batches
                self.assignment.home.collect(name, number, pa.Table.from_batches(rows))
            hosted.chain.snapshot(number + 1)  # at least once: what the sink holds back is out before Spark goes on

    def metrics(self) -> Counters:
        """The counters of every operator, those of the driver's own sinks included; to be asked for at the end."""
        for hosted in self._own.values():
            self.counters.add(hosted.report())
        return self.counters


def two_phase(assignment: Assignment) -> dict[str, TwoPhaseSink]:
    """The sinks that are committed in two phases, by name."""
    return {
        node.name: node.spec.sink
        for node in assignment.stages.plan.graph
        if isinstance(node.spec, Write) and isinstance(node.spec.sink, TwoPhaseSink)
    }
