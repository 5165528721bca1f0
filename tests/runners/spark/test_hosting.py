"""A subtask as a Spark worker hosts it, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runners.spark.hosting import Hosted, Recorder
from tests.runners.spark.test_staging import stages


class Beating(flow.Operator):
    """Schedules a timer in each, for a time that is past."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.context = context
        self.rung = 0

    def open(self) -> None:
        self.context.schedule(0)

    def process(self, port: int, batch: Any, out: flow.Out) -> None:
        out.emit(batch)

    def timer(self, due: int, out: flow.Out) -> None:
        self.rung += 1
        assert self.rung < 100, "one call of ring() does not end"
        self.context.schedule(due)


class Once(Beating):
    def open(self) -> None:
        self.context.schedule(1)

    def timer(self, due: int, out: flow.Out) -> None:
        self.rung += 1


def test_a_timer_that_is_scheduled_in_a_timer_waits_for_the_next_micro_batch() -> None:
    p = flow.Pipeline()
    rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
    rows.key_by("x").apply(Beating, name="beating").apply(Once, name="once").sink(op.collect(), name="out")
    found = stages(p)
    (vertex,) = (vertex for vertex in found.plan.vertices.values() if "once" in [node.name for node in vertex.nodes])
    with Hosted(found, vertex, 0, None, "run", Recorder(found, 0, 1, dealt=False)) as hosted:
        assert hosted.ring() == ["beating", "once"]
        assert hosted.ring() == ["beating"]
