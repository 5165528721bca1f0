"""The calls ``held`` and ``ended`` of an operator: when they come, and what they change downstream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, Out
from dataflow.errors import ContractViolation
from dataflow.protocol.events import Data, EndOfInput, Idle, PortEnded, Watermark
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.chain import Chain, ChainNode, Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.input_gate import InputGate, RoundRobin
from dataflow.runtime.task.outputs import ForwardOutput
from dataflow.runtime.task.parts import TaskState
from tests.runtime.task.test_input_gate import aligner
from tests.runtime.task.test_task import Bench, batch


class Logged(Operator):
    """Logs its calls; emits two batches in ``advance`` and in ``ended``; holds the watermarks in ``holds`` instead."""

    def __init__(self, **holds: object) -> None:
        self.log: list[str] = []
        self.holds = {int(watermark[1:]): value for watermark, value in holds.items()}

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self.log.append(f"rows {port}")

    def advance(self, watermark: int, out: Out) -> Iterator[None]:
        self.log.append(f"W{watermark}" if watermark < MAX_WATERMARK else "last")
        return self._two(out)

    def held(self, watermark: int) -> int:
        self.log.append(f"held {watermark}")
        return self.holds.get(watermark, watermark)  # type: ignore[return-value]

    def ended(self, port: int, out: Out) -> Iterator[None]:
        self.log.append(f"ended {port}")
        return self._two(out)

    def finish(self, out: Out) -> None:
        self.log.append("finish")

    def _two(self, out: Out) -> Iterator[None]:
        for number in (1, 2):
            self.log.append("emit")
            out.emit(batch(number))
            yield


class Line:
    """A chain of one operator before a channel; ``passed`` is its restored state."""

    def __init__(self, operator: Operator, passed: int | None = None) -> None:
        self.node = ChainNode("op", None, ManualClock())
        self.node.operator = operator
        self.node.restore_time(passed)
        self.out = Channel(99, "out")
        self.node.outputs = {None: [ForwardOutput([self.out])]}
        self.chain = Chain([self.node])

    def passes(self, *elements: Flow) -> list[int | str]:
        """The watermarks and idleness that leave."""
        for element in elements:
            self.chain.push(0, element)
            while self.chain.advance():
                pass
            self.node.validate()
        left = [self.out.take() for _ in range(len(self.out))]
        return [e.time if isinstance(e, Watermark) else "idle" for e in left if isinstance(e, Watermark | Idle)]


def test_an_operator_is_asked_what_it_holds_after_the_last_batch_of_advance() -> None:
    operator = Logged()
    assert Line(operator).passes(Watermark(5)) == [5]
    assert operator.log == ["W5", "emit", "emit", "held 5"]


def test_a_held_watermark_that_is_not_higher_is_not_passed_on() -> None:
    assert Line(Logged(w5=3, w7=2, w8=3, w9=4)).passes(*map(Watermark, (5, 7, 8, 9))) == [3, 4]


def test_a_held_watermark_is_repeated_after_idleness_which_it_ends() -> None:
    assert Line(Logged(w5=3, w7=2, w9=3)).passes(Watermark(5), Idle(), Watermark(7), Watermark(9)) == [3, "idle", 3]


def test_an_operator_is_not_given_a_watermark_again_that_is_repeated_after_idleness() -> None:
    operator = Logged()
    assert Line(operator).passes(Watermark(5), Idle(), Watermark(5)) == [5, "idle", 5]
    assert operator.log.count("W5") == 1


def test_a_restored_operator_passes_on_nothing_lower_and_nothing_twice() -> None:
    before = Line(Logged(w5=3))
    before.passes(Watermark(5))
    state = TaskState.decode(TaskState("t[0]", passed=before.chain.passed).encode("sample"))
    assert Line(Logged(w6=2, w7=3, w8=4), state.passed["op"]).passes(*map(Watermark, (6, 7, 8))) == [4]


@pytest.mark.parametrize(("held", "text"), [(6, "beyond the input"), (None, "as an int, got None")])
def test_what_an_operator_holds_is_an_int_not_beyond_the_input(held: object, text: str) -> None:
    with pytest.raises(ContractViolation, match=rf"operator 'op' \(Logged\).*held\(5\).*{text}"):
        Line(Logged(w5=held)).passes(Watermark(5))


def test_an_operator_is_not_asked_about_the_last_watermark() -> None:
    operator = Logged()
    assert Line(operator).passes(Watermark(MAX_WATERMARK), Idle()) == [MAX_WATERMARK, "idle"]
    assert "held" not in " ".join(operator.log)


def test_an_operator_in_a_chain_learns_of_the_end_before_the_last_watermark() -> None:
    clock, operator = ManualClock(), Logged()
    parent, child = ChainNode("parent", None, clock), ChainNode("child", "parent", clock)
    parent.operator, child.operator = Logged(), operator
    parent.children = {None: [child]}
    chain = Chain([parent, child])
    chain.push(0, EndOfInput())
    while chain.advance():
        pass
    assert operator.log == ["ended 0", "emit", "emit", "last", "emit", "emit", "finish"]


def gate(ports: list[int], untimed: tuple[int, ...] = ()) -> tuple[InputGate, list[Channel]]:
    channels = [Channel(9, f"input {index}") for index in range(len(ports))]
    return InputGate(channels, aligner(len(ports)), RoundRobin(), ports, untimed), channels


def polled(of: InputGate) -> list[object]:
    elements = [taken.element for taken in iter(lambda: of.poll(0), None)]
    of.validate()
    return elements


def test_a_port_ends_with_its_last_channel_and_before_the_watermark_that_this_moves() -> None:
    one, channels = gate([0, 0, 1])
    for channel, time in zip(channels, (3, 4, 9), strict=True):
        channel.put(Watermark(time))
    polled(one)
    channels[0].put(EndOfInput())
    assert polled(one) == [Watermark(4), EndOfInput()]
    channels[1].put(EndOfInput())
    assert polled(one) == [PortEnded(0), Watermark(9), EndOfInput()]


def test_a_port_that_had_ended_is_not_reported_after_a_restore() -> None:
    one, channels = gate([0, 1])
    channels[0].put(EndOfInput())
    assert one.poll(0).element == PortEnded(0)  # type: ignore[union-attr]
    before = one.snapshot()  # the end itself is still in the channel, as rows in flight may be
    other, channels = gate([0, 1])
    other.restore(before)
    channels[0].put(EndOfInput())
    assert polled(other) == [EndOfInput()]


def test_after_a_restore_a_port_ends_with_the_channel_that_was_open_whatever_end_comes_first() -> None:
    one, channels = gate([0, 0])
    channels[0].put(EndOfInput())
    assert polled(one) == [EndOfInput()]
    other, channels = gate([0, 0])
    other.restore(one.snapshot())
    channels[1].put(EndOfInput())
    assert other.is_ending, "the end of the other channel comes again, and nothing before it"
    assert polled(other) == [PortEnded(0), Watermark(MAX_WATERMARK), EndOfInput()]
    channels[0].put(EndOfInput())
    assert polled(other) == [EndOfInput()]


def test_a_task_calls_ended_once_for_each_port_and_finishes_after_the_last_watermark() -> None:
    operator = Logged()
    bench = Bench(operator, credit=99)
    bench.task.task_input = ChannelInput(InputGate(bench.inputs, aligner(2), RoundRobin(), [0, 1]))
    bench.put(0, Watermark(3)).put(1, Watermark(9)).run()
    bench.put(0, EndOfInput()).run()
    bench.put(1, EndOfInput()).run()
    calls = [entry for entry in operator.log if entry != "emit"]
    assert calls == ["W3", "held 3", "ended 0", "W9", "held 9", "ended 1", "last", "finish"]


def test_a_port_that_does_not_count_holds_no_time_back() -> None:
    one, (rows, rules) = gate([0, 1], untimed=(1,))
    rules.put(Watermark(1))
    rows.put(Watermark(5))
    assert polled(one) == [Watermark(5), None]
    rows.put(EndOfInput())
    assert polled(one) == [PortEnded(0), Watermark(MAX_WATERMARK), EndOfInput()]
    rules.put(Data(batch(1)))
    rules.put(EndOfInput())
    assert [type(element) for element in polled(one)] == [Data, PortEnded, EndOfInput]
    assert one.watermarks == (MAX_WATERMARK, None)


def test_rows_of_a_port_that_does_not_count_do_not_end_idleness() -> None:
    one, (rows, rules) = gate([0, 1], untimed=(1,))
    rows.put(Idle())
    assert polled(one) == [Idle()]
    rules.put(Data(batch(1)))
    assert not one.rests(0)
    assert [type(element) for element in polled(one)] == [Data, Idle]
    rules.put(Idle())
    assert polled(one) == [None]


def test_the_last_watermark_goes_downstream_early_if_only_a_port_that_does_not_count_is_open() -> None:
    bench = Bench(Logged())
    bench.task.task_input = ChannelInput(InputGate(bench.inputs, aligner(2), RoundRobin(), [0, 1], [1]))
    bench.put(0, EndOfInput()).run()
    assert Watermark(MAX_WATERMARK) in bench.outputs[0].queued
    bench.put(1, EndOfInput()).run()
    assert bench.outputs[0].queued.count(Watermark(MAX_WATERMARK)) == 1
