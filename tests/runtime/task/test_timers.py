"""Timers that are always due, because steps take longer than they are apart, keep nothing else waiting."""

from __future__ import annotations

from typing import Any

import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, Out
from dataflow.protocol.events import Barrier, Data, EndOfInput
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.messages import Acknowledged, Ended
from tests.runtime.task.test_task import Bench, Recorder, batch


class Beating(Recorder):
    """Asks for the next timer in each one, for now."""

    def open(self) -> None:
        self._bench.node.schedule(0)

    def process(self, port: int, batch: Any, out: Out) -> None:
        out.emit(batch)

    def timer(self, due: int, out: Out) -> None:
        self._bench.node.schedule(due)
        out.emit(batch(0))


class Silent(Operator):
    """Takes rows and gives none."""

    def process(self, port: int, batch: Any, out: Out) -> None:
        pass


def beating() -> Bench:
    """A task whose timer is always due, and each of whose timers emits a row."""
    bench = Bench(credit=1_000)
    bench.node.operator = Beating(bench)
    return bench


def test_a_row_is_taken_between_two_timers() -> None:
    bench = beating().put(0, Data(batch(1)), Data(batch(2)))
    assert [line for line in bench.run(8) if line.startswith("y")][:5] == ["y:0", "y:1", "y:0", "y:2", "y:0"]


def test_a_barrier_is_taken_between_two_timers() -> None:
    bench = beating().put(0, Barrier(1)).put(1, Barrier(1))
    bench.run(8)
    assert [answer.checkpoint for answer in bench.reported(Acknowledged)] == [1]


def test_the_end_of_input_comes_between_two_timers() -> None:
    bench = beating().put(0, EndOfInput()).put(1, EndOfInput())
    bench.run(12)
    assert bench.reported(Ended)


def test_a_timer_that_is_always_due_does_not_keep_timers_of_other_operators_waiting() -> None:
    clock = ManualClock()
    always, once = ChainNode("always", None, clock), ChainNode("once", "always", clock)
    always.operator = once.operator = Silent()
    always.timers, once.timers = [50], [20]
    chain = Chain([always, once])
    assert chain.first_due(19) is None
    assert chain.first_due(60) is once


@pytest.mark.parametrize("passing", [0, 1])
def test_an_operator_that_schedules_the_past_in_each_timer_does_not_keep_others_waiting(passing: int) -> None:
    clock = ManualClock(60)
    always, late, later = (ChainNode(name, None, clock) for name in ("always", "late", "later"))
    always.operator = late.operator = later.operator = Silent()
    chain = Chain([always, late, later])
    always.timers, late.timers, later.timers = [5], [20], [60]
    rang = []
    for _ in range(6):
        node = chain.first_due(clock.now())
        assert node is not None
        rang.append(node.name)
        chain.ring(node)
        always.timers = [5]
        clock.advance(passing)
    assert rang[:4] == ["always", "late", "later", "always"]


def test_timers_need_no_rows_to_be_rung() -> None:
    assert len([line for line in beating().run(8) if line == "y:0"]) == 8
