"""A subtask for the length of a micro-batch: made from its state, fed step by step, and taken down to its state again.

What a task of this process does with a thread and channels for its whole life. The chain of operators is the same, and
so is its state: what a checkpoint holds of a task is what Spark holds of a slot or a lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from dataflow.clock import SystemClock
from dataflow.contracts.source import Json
from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Link, Vertex, task_id
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Data, Element, EndOfInput, Watermark
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runners.spark.envelopes import RAW, Content, Envelope
from dataflow.runners.spark.placement import Hosting, Stages
from dataflow.runners.spark.user_errors import Carrier, carried, noted
from dataflow.runtime.task.chain import Chain, ChainNode, Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.gate_input import GateInput
from dataflow.runtime.task.input_gate import InputGate, RoundRobin
from dataflow.runtime.task.notices import Notices, Packed
from dataflow.runtime.task.outputs import ForwardOutput, Output
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.wiring import SubtaskSetup, wire_chain

__all__ = ["Hosted", "Recorder", "Report"]

_PLENTY = 1 << 60
"""Credit of channels that are emptied after every step."""


@dataclass(frozen=True)
class Report:
    """What a subtask did in a micro-batch: the counters of ``OperatorMetrics`` per operator, and what it staged.

    ``busy`` are the microseconds it was there: its operators, and what it took to put it up and take it down.
    ``notices`` are the events that the user must be warned of.
    """

    task: str
    operators: Sequence[Sequence[Any]]
    handles: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    busy: int = 0
    notices: Sequence[Packed] = ()


class Recorder:
    """The outputs of a subtask: notes down what goes where, step by step.

    ``dealt`` says whether rows are dealt out to the slots of their target here, or later by somebody who has those of
    many subtasks.
    """

    def __init__(self, stages: Stages, source: int, round_: int, *, dealt: bool) -> None:
        self._stages = stages
        self._source = source
        self._round = round_
        self._dealt = dealt
        self._channels: list[tuple[Channel, int, int, Content]] = []  # channel, slot, link, what went over it

    def output(self, number: int, link: Link) -> Output:
        """The output of a link."""
        target = self._stages.hosting[link.target]
        if target is not Hosting.SLOT or not self._dealt:
            return ForwardOutput([self._channel(RAW, number)])
        subtasks = range(self._stages.plan.vertices[link.target].parallelism)
        if link.partitioning is Partitioning.FORWARD:
            subtasks = range(self._source, self._source + 1)
        slots = [self._stages.slot(link.target, subtask) for subtask in subtasks]
        return self._stages.output(link, [self._channel(slot, number) for slot in slots])

    def _channel(self, slot: int, link: int) -> Channel:
        channel = Channel(_PLENTY, f"{link} -> {slot}")
        self._channels.append((channel, slot, link, Content()))
        return channel

    def step(self, number: int) -> None:
        """What was emitted since the last call came of step ``number``."""
        for channel, _, _, content in self._channels:
            if channel.head is not None:
                content.add(number, _drained(channel))

    def envelopes(self) -> Iterator[Envelope]:
        """Everything, packed."""
        for _, slot, link, content in self._channels:
            if content.steps:
                yield Envelope(slot, link, self._source, self._round, content.encode())


def _drained(channel: Channel) -> Iterator[Element]:
    while channel.head is not None:
        yield channel.take()


class Hosted:
    """One subtask of ``vertex``, as ``state`` left it; a context manager that opens and closes its operators.

    An error of ``close`` is a notice, as in a local run. If the block raises, its notices become notes of the error.
    """

    def __init__(
        self,
        stages: Stages,
        vertex: Vertex,
        subtask: int,
        state: TaskState | None,
        run_id: str,
        recorder: Recorder,
        splits: SourceInput | None = None,
        notices: Notices | None = None,
    ) -> None:
        self.task = task_id(vertex.name, subtask)
        self.notices = notices or Notices()
        self._closed = False
        self.ended = state is not None and state.ended
        self._recorder = recorder
        self._inlet: GateInput | SourceInput = splits or self._gate(stages, vertex, subtask, state)
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._state = state
        place = SubtaskSetup(stages.plan, vertex, subtask, self._clock, run_id, state, splits)
        if stages.hosting[vertex.name] is Hosting.PARTITION:  # rows of any key, and Spark says how many there are
            wide = Vertex(vertex.name, max(vertex.parallelism, subtask + 1), vertex.nodes)
            place = replace(place, vertex=wide, key_groups=range(stages.plan.max_key_groups))
        with carried(self.task):
            self.chain = Chain(wire_chain(place, recorder.output))

    def _gate(self, stages: Stages, vertex: Vertex, subtask: int, state: TaskState | None) -> GateInput:
        numbers = stages.channels(vertex.name, subtask)
        self._channels = {place: Channel(_PLENTY, f"{place}") for place in numbers}
        gate = InputGate(
            list(self._channels.values()), Aligner(len(numbers), end_of_input=EndOfInputPolicy.ALIGN), RoundRobin()
        )
        if state is not None:
            watermarks: Any = state.inlet["watermarks"]
            gate.restore_watermarks(watermarks)
        return GateInput(gate, [stages.plan.links[number].port for number, _ in numbers])

    def __enter__(self) -> Hosted:
        try:
            with self._carried():
                for node in self.chain.nodes:
                    self.chain.working = node
                    node.open()
                self.chain.working = None
        except BaseException as error:  # Python does not call __exit__ for what __enter__ raises
            self.__exit__(type(error), error, error.__traceback__)
            raise
        if self._state is not None:
            self._restore_timers(self._state)
        if self.ended:  # whoever is behind is made anew for each micro-batch, and must be told again
            for output in self.chain.outputs:
                output.end()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if isinstance(error, Carrier) and (warnings := self.notices.warnings()):
            raise noted(error, [f"{type(warning).__name__}: {warning}" for warning in warnings]) from error.__cause__

    def close(self) -> None:
        """Close readers and operators. Later calls do nothing."""
        if not self._closed:
            self._closed = True
            for problem in [*self.chain.close(), *self._inlet.close()]:
                self.notices.cleanup_failed(self.task, problem)

    @contextmanager
    def _carried(self) -> Iterator[None]:
        with carried(self.task, lambda: self.chain.working):
            yield

    def push(self, port: int, flow: Flow) -> None:
        """Something for the head; returns when the chain has done all that comes of it."""
        with self._carried():
            self.chain.push(port, flow)
            while self.chain.advance():
                pass

    def feed(self, contents: Mapping[tuple[int, int], Content]) -> None:
        """Go through the steps of all channels, known by link and source."""
        for step in sorted({step for content in contents.values() for step in content.steps}):
            for rows_first in (True, False):  # of one step nothing may be late because of what another channel says
                for place, content in contents.items():
                    for element in content.steps.get(step, ()):
                        if isinstance(element, Data) is rows_first:
                            self._channels[place].put(element)
                self._work()
            self._recorder.step(step)
        self.ring()
        self._recorder.step(max([step for content in contents.values() for step in content.steps], default=0))

    def _work(self) -> None:
        while (taken := self._inlet.poll(0)) is not None:
            if taken.flow is not None:
                self.push(taken.port, taken.flow)
        if self._inlet.ended:
            self.finish()

    def finish(self) -> None:
        """No row will come any more. Said once."""
        if not self.ended:
            self.ended = True
            if self._inlet.is_source:  # channels have carried it already
                self.push(0, Watermark(MAX_WATERMARK))
            self.push(0, EndOfInput())

    def ring(self) -> list[str]:
        """Call the timers that are due now, unless everything has ended; return the names of their operators.

        Timers that these calls schedule wait for the next micro-batch, even if they are due: otherwise an operator that
        schedules one in each call would keep this micro-batch from ending.
        """
        now = self._clock.now()
        due = sorted((time, place) for place, node in enumerate(self.chain.nodes) for time in node.timers)
        rang: list[str] = []
        for time, place in due:
            if time <= now and not self.ended:
                rang.append(self.chain.nodes[place].name)
                self._ring(self.chain.nodes[place])
        return rang

    def ring_again(self, names: Sequence[str]) -> None:
        """Call the timers that ``ring`` called when the micro-batch was first tried, whatever the time is."""
        nodes = {node.name: node for node in self.chain.nodes}
        for name in names:
            self._ring(nodes[name])

    def _ring(self, node: ChainNode) -> None:
        with self._carried():
            self.chain.ring(node)
            while self.chain.advance():
                pass

    def state(self, round_: int) -> TaskState:
        """The subtask at the end of micro-batch ``round_``; two-phase writers prepare what they have.

        Timers are part of it, in time on the wall: to operators every micro-batch is a restart, and none would wait
        for longer than one.
        """
        with self._carried():
            operators = self.chain.snapshot(round_)
        wall = int(self._clock.wall() * 1_000_000) - self._clock.now()
        timers: dict[str, Json] = {node.name: node.timers[0] + wall for node in self.chain.nodes if node.timers}
        return TaskState(self.task, self.ended, {**self._inlet.snapshot(), "timers": timers}, operators)

    def _restore_timers(self, state: TaskState) -> None:
        timers: Any = state.inlet.get("timers", {})
        wall = int(self._clock.wall() * 1_000_000) - self._clock.now()
        for node in self.chain.nodes:
            if node.name in timers:
                node.timers[:] = [min([timers[node.name] - wall, *node.timers])]

    def report(self, reading: int = 0) -> Report:
        """What was done so far; ``reading`` are microseconds of the head's."""
        operators = [
            [
                node.name,
                node.rows_in,
                node.rows_out,
                node.tally.late,
                node.tally.skipped,
                node.busy_for + (reading if node is self.chain.head else 0),
                node.tally.lateness.packed(),
                [[sample.where, sample.row, sample.error] for sample in node.tally.samples],
            ]
            for node in self.chain.nodes
        ]
        handles = {node.name: list(node.transactions()) for node in self.chain.nodes if node.uncommitted}
        return Report(self.task, operators, handles, self._clock.now() - self._began, self.notices.packed())
