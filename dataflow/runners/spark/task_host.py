"""Hosts that run one subtask during one micro-batch: restore its state, process its input step by step, snapshot it.

On threads a task runs for the length of the job, with a thread and channels of its own. The chain of operators is the
same here, and so is its state: Spark stores of a source task or keyed task what a checkpoint stores of a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from dataflow.clock import OperatorClock, SystemClock
from dataflow.contracts.incremental import Counted
from dataflow.contracts.live_splits import TimesSplits
from dataflow.contracts.source import Json
from dataflow.errors import ContractViolation
from dataflow.events.plan_shape import task_id
from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Link, Vertex
from dataflow.planning.specs import Read, Write
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Data, Element, EndOfInput, Idle, LastWatermark, Watermark
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runners.spark.envelopes import TO_DRIVER, UNROUTED, Content, Envelope
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runners.spark.split_times import SplitTimes
from dataflow.runners.spark.task_report import TaskReport, TaskTime, TaskWork
from dataflow.runners.spark.user_errors import SerializedError, serialized_errors, with_notes
from dataflow.runtime.task.chain import Chain, ChainNode, Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.input_gate import InputGate, RoundRobin
from dataflow.runtime.task.job_clock import JobClock
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.outputs import ForwardOutput, Output
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.wiring import SubtaskSetup, wire_chain

__all__ = ["MicroBatchClock", "OutputRecorder", "TaskHost"]

_PLENTY = 1 << 60
"""The credit of channels, practically unlimited because they are emptied after every step."""
_SHOWN = 5
"""The names of awaited splits that a report has at most."""
_FULL = 32 << 20
"""Bytes that the outputs of a subtask of a batch record before they are sent."""


class OutputRecorder:
    """The outputs of a subtask, which record what it emits in each step and for which task.

    ``distributed``: rows are distributed to the keyed tasks of their target here; otherwise later, by routing,
    together with the rows of other subtasks. ``read_by_spark``: the subtask has rows of a streaming reader of Spark's,
    whose partitions share one channel; time moves after all their rows.
    """

    def __init__(
        self, spark_plan: SparkPlan, source: int, round_: int, *, distributed: bool, read_by_spark: bool = False
    ) -> None:
        self._spark_plan = spark_plan
        self._source = 0 if read_by_spark else source
        self._read_by_spark = read_by_spark
        self._round = round_
        self._distributed = distributed
        self._channels: list[tuple[Channel, int, int, Content]] = []  # channel, keyed task, link, content
        self._bytes = 0  # of the rows that `rows` keeps
        self._to_driver: list[Output] = []

    def output(self, number: int, link: Link) -> Output:
        """Return the output of a link."""
        target = self._spark_plan.placements[link.target]
        if target is Placement.DRIVER:
            self._to_driver.append(ForwardOutput([self._channel(TO_DRIVER, number)]))
            return self._to_driver[-1]
        if target is not Placement.KEYED_TASK or not self._distributed:
            return ForwardOutput([self._channel(TO_DRIVER if self._spark_plan.in_batch else UNROUTED, number)])
        subtasks: Sequence[int] = range(self._spark_plan.plan.vertices[link.target].parallelism)
        if link.partitioning is Partitioning.FORWARD and not self._read_by_spark:
            subtasks = [self._source % len(subtasks)]  # of Spark's own partitions there may be more
        tasks = [self._spark_plan.keyed_task_number(link.target, subtask) for subtask in subtasks]
        return self._spark_plan.output(link, [self._channel(task, number) for task in tasks])

    @property
    def rows_to_driver(self) -> int:
        """The rows that were emitted for sinks in the driver."""
        return sum(output.rows for output in self._to_driver)

    def _channel(self, task: int, link: int) -> Channel:
        channel = Channel(_PLENTY, f"{link} -> {task}")
        self._channels.append((channel, task, link, Content()))
        return channel

    def step(self, number: int) -> None:
        """Tag everything emitted since the last call with step ``number``."""
        for channel, _, _, content in self._channels:
            if channel.head is not None:
                elements = _drain(channel)
                content.add(number, [e for e in elements if isinstance(e, Data)] if self._read_by_spark else elements)

    def take_times(self, times: Mapping[str, Mapping[str, int]], at: int) -> None:
        """Record the watermarks of splits in the micro-batch of time ``at``, by the operator that makes them."""
        for _, _, number, content in self._channels:
            maker = self._spark_plan.maker_of_time(self._spark_plan.plan.links[number])
            own = {} if maker is None else times.get(maker.name, {})
            for split, time in own.items():
                content.take_time(split, time)
                content.at = at

    def envelopes(self) -> Iterator[Envelope]:
        """Yield all that was recorded."""
        for _, task, link, content in self._channels:
            for part in content.parts():
                yield Envelope(task, link, self._source, self._round, part.encode())

    def rows(self, *, all_of_them: bool = False) -> Iterator[Envelope]:
        """Yield the rows that were recorded since the last call, if they are many; else keep them. For batches.

        Time and ends are dropped, because every task of a batch knows when its input ends.
        """
        for channel, _, _, content in self._channels:
            elements: list[Any] = [element for element in _drain(channel) if isinstance(element, Data)]
            content.add(0, elements)
            self._bytes += sum(element.rows.nbytes for element in elements)
        if self._bytes >= _FULL or all_of_them:
            yield from self.envelopes()
            for *_, content in self._channels:
                content.steps.clear()
            self._bytes = 0


def _drain(channel: Channel) -> Iterator[Element]:
    while channel.head is not None:
        yield channel.take()


class MicroBatchClock(SystemClock):
    """The clock of operators on Spark, for which a micro-batch is a moment: ``time``, which the driver has stored.

    ``now`` is the same, so that an attempt that repeats the micro-batch, on another machine, calls the same timers.
    """

    def __init__(self, time: int) -> None:
        self._time = time

    def now(self) -> int:
        return self._time

    def time(self) -> int:
        """Return time by the clock of the micro-batch."""
        return self._time

    def begin(self, time: int) -> None:
        """Begin another micro-batch. Time by the clock never goes back from one to the next."""
        self._time = time


class TaskHost:
    """Runs one subtask of ``vertex`` from ``state`` on; a context manager that opens and closes its operators.

    ``clock`` is the clock of its operators; None: they have their own, in a batch. An error in ``close`` becomes a
    notice, as in a local run. If the block raises, the notices become notes of its error. ``kept`` are the operators of
    an earlier host, as ``keep`` returned them, whose state is that of ``state``; ``logs`` are the objects in which
    ``state`` is stored.
    """

    def __init__(
        self,
        spark_plan: SparkPlan,
        vertex: Vertex,
        subtask: int,
        state: TaskState | None,
        run_id: str,
        recorder: OutputRecorder,
        splits: SourceInput | None = None,
        notices: Notices | None = None,
        clock: OperatorClock | None = None,
        kept: Mapping[int, ChainNode] | None = None,
        logs: LogChain | None = None,
    ) -> None:
        self.task = task_id(vertex.name, subtask)
        self._subtask = subtask
        self.notices = notices or Notices()
        self._closed = False
        self.ended = state is not None and state.ended
        self._recorder = recorder
        self._task_input: ChannelInput | SourceInput = splits or self._gate(spark_plan, vertex, subtask, state)
        self._clock = clock or JobClock(SystemClock(), self.notices.add)
        self._meter = SystemClock()
        self._started = self._meter.now()
        self._freezes = 0  # how often the state was taken
        self._entries = 0  # of the state that was taken last
        self._times: Sequence[TaskTime] = ()  # when it was taken
        self._kept, self._logs = kept, logs or LogChain()
        for node in (kept or {}).values():
            node.unwire()
        self._state = state
        self._taken: set[tuple[int, int, int]] = set()
        self._awaited: tuple[int, list[str]] | None = None
        stored = {} if state is None else state.inlet.get("split_times", {})
        self._split_times = SplitTimes(spark_plan.rules_of(vertex.name), stored)
        place = SubtaskSetup(spark_plan.plan, vertex, subtask, self._clock, run_id, state, splits)
        placement = spark_plan.placements[vertex.name]
        if placement in (Placement.PARTITION, Placement.NATIVE_READER):  # rows of any key; Spark numbers the subtasks
            wide = Vertex(vertex.name, max(vertex.parallelism, subtask + 1), vertex.nodes)
            place = replace(place, vertex=wide, key_groups=range(spark_plan.plan.max_key_groups))
        with serialized_errors(self.task):
            self._nodes = vertex.nodes
            self.chain = Chain(wire_chain(place, recorder.output, kept))
        for node in self.chain.nodes:
            node.meter = self._meter

    def _gate(self, spark_plan: SparkPlan, vertex: Vertex, subtask: int, state: TaskState | None) -> ChannelInput:
        numbers = spark_plan.channels(vertex.name, subtask)
        self._channels = {place: Channel(_PLENTY, f"{place}") for place in numbers}
        handler = Aligner(len(numbers), end_of_input=EndOfInputPolicy.ALIGN)
        ports = [spark_plan.plan.links[number].port for number, _ in numbers]
        untimed = spark_plan.plan.untimed_ports(vertex.name)
        gate = InputGate(list(self._channels.values()), handler, RoundRobin(), ports, untimed)
        if state is not None:
            gate.restore(state.inlet)
        return ChannelInput(gate)

    def __enter__(self) -> TaskHost:
        if self._kept is None:
            self._open()
        if self.ended:  # the tasks after it are built anew for each micro-batch, and need the end again
            for output in self.chain.outputs:
                output.end()
        return self

    def _open(self) -> None:
        try:
            with self._serialized_errors():
                for node in self.chain.nodes:
                    self.chain.working = node
                    node.open()
                self.chain.working = None
        except BaseException as error:  # Python does not call __exit__ for what __enter__ raises
            self.__exit__(type(error), error, error.__traceback__)
            raise
        if self._state is not None:
            self._restore_timers(self._state)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if isinstance(error, SerializedError) and (warnings := self.notices.warnings()):
            notes = [f"{type(warning).__name__}: {warning}" for warning in warnings]
            raise with_notes(error, notes) from error.__cause__

    def close(self) -> None:
        """Close readers and operators. Later calls do nothing."""
        if not self._closed:
            self._closed = True
            self.notices.cleanup([(self.task, error) for error in [*self.chain.close(), *self._task_input.close()]])

    def keep(self) -> Mapping[int, ChainNode] | None:
        """Return the operators for a later host, instead of closing them; None: they must be closed.

        Call it after the snapshot. This host only reports from then on.
        """
        if self._closed or any([node.holds_resources for node in self.chain.nodes]):
            return None
        self._closed = True
        return {node.id: chain_node for node, chain_node in zip(self._nodes, self.chain.nodes, strict=True)}

    def free(self) -> None:
        """Close the operators and free their memory now. This host only reports from then on."""
        self.close()
        for node in self.chain.nodes:
            node.free()

    @contextmanager
    def _serialized_errors(self) -> Iterator[None]:
        with serialized_errors(self.task, lambda: self.chain.working):
            yield

    def push(self, port: int, flow: Flow) -> None:
        """Process ``flow`` in the chain; return when the chain has finished with it."""
        with self._serialized_errors():
            self.chain.push(port, flow)
            while self.chain.advance():
                pass

    def feed(self, contents: Mapping[tuple[int, int], Content]) -> None:
        """Process the contents of all channels, by link and source, step by step; then call the timers that are due."""
        for step in sorted({step for content in contents.values() for step in content.steps}):
            for rows_first in (True, False):  # no row may be late because of another channel's watermark of its step
                for place, content in contents.items():
                    for element in content.steps.get(step, ()):
                        if isinstance(element, Data) is rows_first:
                            self._channels[place].put(element)
                self._work()
            self._recorder.step(step)
        last = max([step for content in contents.values() for step in content.steps], default=0) + 1
        self._move_time(contents)
        self._work()
        self._recorder.step(last)
        self.call_due_timers()
        self._recorder.step(last)

    def _move_time(self, contents: Mapping[tuple[int, int], Content]) -> None:
        """Give the channels of streaming DataFrames the watermarks of their splits, after all rows of a micro-batch."""
        known = [content.at for content in contents.values() if content.at is not None]
        if not known:
            return
        now = max(known)
        for link in self._split_times.links:
            content = contents.get((link, 0))
            time = self._split_times.take(link, {} if content is None else content.times, now)
            if (link, 0) in self._channels and time is not None:
                self._channels[link, 0].put(Watermark(time))
            if (link, 0) in self._channels and self._split_times.is_silent(link, now):
                self._channels[link, 0].put(Idle())
        awaited = self._split_times.awaited(now)
        self._awaited = len(awaited), sorted(awaited)[:_SHOWN]

    def take(self, envelope: Envelope) -> None:
        """Process the rows of an envelope, then call the timers that are due. For batches."""
        self._taken.add((envelope.link, envelope.source, envelope.round))
        for rows in Content.decode(envelope.payload).rows():
            self._channels[envelope.link, 0].put(rows)
            self._work()
        self.call_due_timers()

    def end(self) -> None:
        """Process the end of every channel. For batches."""
        for channel in self._channels.values():
            channel.put(Watermark(MAX_WATERMARK))
            channel.put(EndOfInput())
        self._work()

    def _work(self) -> None:
        while (taken := self._task_input.poll(0)) is not None:
            if taken.flow is not None:
                self.push(taken.port, taken.flow)
        if self._task_input.ended:
            self.finish()

    def finish(self) -> None:
        """End the input. Later calls do nothing."""
        if not self.ended:
            self.ended = True
            if self._task_input.is_source:  # a gate has returned it already
                self.push(0, LastWatermark())
            self.push(0, EndOfInput())

    def call_due_timers(self) -> None:
        """Call the timers that are due, unless the input has ended.

        Timers that these calls schedule wait for the next micro-batch, even if they are due. Otherwise an operator that
        schedules one in each call would keep this micro-batch from ending.
        """
        now, ahead = self._clock.now(), self._ahead
        due = [
            (time, place)
            for place, node in enumerate(self.chain.nodes)
            for time in (*node.timers, *[by_clock - ahead for by_clock in node.timers_by_clock])
        ]
        for time, place in sorted(due):
            if time <= now and not self.ended:
                self._call_timer(self.chain.nodes[place])

    @property
    def _ahead(self) -> int:
        """How far time by the clock is ahead of the clock by which timers are set."""
        return self._clock.time() - self._clock.now()

    def _call_timer(self, node: ChainNode) -> None:
        with self._serialized_errors():
            self.chain.ring(node)
            while self.chain.advance():
                pass

    def snapshot(self, round_: int) -> TaskState:
        """Return the whole state at the end of micro-batch ``round_``; two-phase writers prepare their transactions.

        The state includes timers, in time by the clock. An operator may be restored in every micro-batch, so otherwise
        no timer could outlast one.
        """
        self._freezes += 1  # a state may be taken twice in a micro-batch, the second time after the end of the input
        return self._snapshot(round_, self._freezes, since=0)

    def changes(self, round_: int, since: int) -> TaskState:
        """Return the state at the end of micro-batch ``round_``, its logs as deltas to those of ``since`` if possible.

        ``since`` is the number of the state that the host started from, which is below ``round_``; 0: it had none.
        """
        return self._snapshot(round_, round_, since)

    def prepare_writers(self, round_: int) -> None:
        """Let writers that are made anew for each micro-batch prepare their transactions for ``round_``.

        Raises: SerializedError of a ContractViolation if one has state, which would be lost.
        """
        state = self.snapshot(round_)
        for node in self._nodes:
            kept = state.operators[node.name]
            if isinstance(node.spec, Write) and (kept.values or kept.tables or kept.logs):
                names = sorted([*kept.values, *kept.tables, *kept.logs])
                with serialized_errors(self.task):
                    raise ContractViolation(
                        f"sink {node.name!r}: its writer has the state {names}, but on Spark each micro-batch has "
                        "writers of its own, so it would be lost; keep it in an operator before the sink"
                    )

    def _snapshot(self, round_: int, number: int, since: int) -> TaskState:
        with self._serialized_errors():
            states = self.chain.snapshot(round_)
            logs = [log for state in states.values() for log in state.logs.values()]
            self._entries = sum([log.entries for log in logs if isinstance(log, Counted)])
            operators, before = self._logs.freeze(states, number, since)
            self._times = self._reached()
        ahead = self._ahead
        timers: dict[str, Json] = {node.name: node.timers[0] + ahead for node in self.chain.nodes if node.timers}
        inlet = {**self._task_input.snapshot(), "timers": timers, **self._split_times.stored()}
        chain = self.chain
        return TaskState(
            self.task, self.ended, inlet, operators, passed=chain.passed, timed=chain.timed, log_before=before
        )

    def _restore_timers(self, state: TaskState) -> None:
        timers: Any = state.inlet.get("timers", {})
        ahead = self._ahead
        for node in self.chain.nodes:
            if node.name in timers:
                node.timers[:] = [min([timers[node.name] - ahead, *node.timers])]

    def split_times(self) -> Mapping[str, Mapping[str, int]]:
        """Return the watermarks of splits that its operators have made of rows that Spark has read, by operator."""
        return {
            node.name: node.operator.split_times()
            for node in self.chain.nodes
            if isinstance(node.operator, TimesSplits)
        }

    def report(self, state: int = 0) -> TaskReport:
        """Return the report of the work so far. ``state``: bytes of keyed state that are stored."""
        operators = [node.metrics for node in self.chain.nodes]
        handles = {node.name: list(node.transactions()) for node in self.chain.nodes if node.uncommitted}
        busy, taken = self._meter.now() - self._started, sorted(self._taken)
        rows_out = sum([output.rows for output in self.chain.outputs])
        nodes = list(zip([node.spec for node in self._nodes], operators, strict=True))
        return TaskReport(
            self.task,
            operators,
            handles,
            busy,
            self.notices.packed(),
            taken,
            read=sum(metrics.rows_in for spec, metrics in nodes if isinstance(spec, Read)),
            written=self._recorder.rows_to_driver
            + sum(metrics.rows_in for spec, metrics in nodes if isinstance(spec, Write)),
            late=sum(metrics.late for metrics in operators),
            state=state,
            lag=self._lag,
            state_rows=self._entries,
            awaited=self._awaited,
            work=[TaskWork(self._subtask, operators[0].rows_in, rows_out, busy, self._times)],
        )

    def _reached(self) -> Sequence[TaskTime]:
        """Return the watermarks that the subtask has reached."""
        reached = self._task_input.watermark
        times = [] if reached is None else [TaskTime(None, reached)]
        makers = [(node, node.made) for node in self.chain.nodes if node.made is not None]
        return [*times, *[TaskTime(node.name, time, node.held_by) for node, time in makers]]

    @property
    def _lag(self) -> int | None:
        watermark = None if self._task_input.is_source else self._task_input.watermark
        if watermark is None or watermark == MAX_WATERMARK:
            return None
        return self._clock.time() - watermark
