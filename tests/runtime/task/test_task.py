"""One real task between real channels: what leaves it, in which order, around a barrier and at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from dataflow.background import Submit
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, Out, Snapshot
from dataflow.contracts.sink import Handle, TwoPhaseWriter
from dataflow.contracts.source import SourceContext
from dataflow.errors import StoreError
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Watermark
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.input_gate import InputGate, RoundRobin
from dataflow.runtime.task.messages import (
    AbortCheckpoint,
    Acknowledged,
    Committed,
    Declined,
    Ended,
    Mailbox,
    Stop,
    Trigger,
)
from dataflow.runtime.task.outputs import ForwardOutput
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.services import Services
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task import Task
from dataflow.runtime.task.task_input import SplitState
from dataflow.store.memory import MemoryStore
from dataflow.testing import ScriptedSource

aligner = partial(Aligner, end_of_input=EndOfInputPolicy.ALIGN)


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


class Bench:
    """A task with two inputs and two outputs, and one log of all that its operator does and all that leaves."""

    def __init__(
        self,
        operator: Operator | None = None,
        *,
        handler: Any = None,
        credit: int = 8,
        overtakable: str = "",
        submit: Submit = lambda lane, job: job(),
    ) -> None:
        self.log: list[str] = []
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.reports: Mailbox[Any] = Mailbox()
        self.inputs = [Channel(8, name, overtakable=name in overtakable) for name in "ab"]
        self.outputs = [_Tapped(credit, name, self.log, overtakable=name in overtakable) for name in "yz"]
        self.node = ChainNode("op", None, self.clock)
        self.node.operator = operator or Recorder(self)
        self.node.outputs = {None: [ForwardOutput([self.outputs[0]]), ForwardOutput([self.outputs[1]])]}
        gate = InputGate(self.inputs, handler or aligner(2), RoundRobin())
        self.task = Task(
            "op[0]",
            ChannelInput(gate),
            Chain([self.node]),
            Services(self.store, submit, self.clock, self.reports, LIBRARY),
        )

    def use(self, **services: Any) -> None:
        """Replace services of the task and its writer."""
        self.task._services = self.task._writer._services = replace(self.task._services, **services)

    def put(self, channel: int, *elements: Element) -> Bench:
        for element in elements:
            self.inputs[channel].put(element)
        return self

    def run(self, steps: int = 60) -> list[str]:
        """Step until nothing moves; answers the log since the last call."""
        for _ in range(steps):
            if self.task.step() is not Progress.WORKED:
                break
        said, self.log[:] = list(self.log), []
        return said

    def reported(self, kind: type) -> list[Any]:
        return [report for report in list(self.reports._queue) if isinstance(report, kind)]


class _Tapped(Channel):
    """A channel that tells what is put into it."""

    def __init__(self, credit: int, name: str, log: list[str], *, overtakable: bool) -> None:
        super().__init__(credit, name, overtakable=overtakable)
        self._log = log

    def put(self, element: Element) -> None:
        super().put(element)
        self._log.append(f"{self.name}:{_token(element)}")


class Recorder(Operator):
    """Logs every call; every watermark and every row asks for a timer that is due at once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._bench.node.schedule(0)
        out.emit(batch)

    def advance(self, watermark: int, out: Out) -> None:
        self._bench.node.schedule(0)
        self._bench.log.append(f"advance({watermark})")

    def timer(self, due: int, out: Out) -> None:
        self._bench.log.append("timer")

    def finish(self, out: Out) -> None:
        self._bench.log.append("finish")
        out.emit(batch(99))

    def snapshot(self) -> Snapshot:
        self._bench.log.append("snapshot")
        return Snapshot()


class RowByRow(Recorder):
    """Emits each row on its own."""

    def process(self, port: int, rows: pa.RecordBatch, out: Out) -> Any:
        for value in rows["x"].to_pylist():
            out.emit(batch(value))
            yield


class Writer(TwoPhaseWriter):
    """Stages nothing real; refuses the barriers it is told to."""

    def __init__(self, refuse: Sequence[int] = ()) -> None:
        self._refuse = refuse
        self._staged: list[Any] = []

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._staged += batch["x"].to_pylist()

    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        if checkpoint in self._refuse:
            raise StoreError("not now")
        rows, self._staged = self._staged, []
        return [{"rows": rows}] if rows else []


def _token(element: Element) -> str:
    match element:
        case Data(rows=rows):
            return ",".join(str(x) for x in rows["x"].to_pylist())  # type: ignore[index]
        case Barrier(checkpoint=n):
            return f"B({n})"
        case Cancel(checkpoint=n):
            return f"X({n})"
        case Watermark(time=time):
            return f"W({time})"
        case other:
            return type(other).__name__


# --- K7


@pytest.mark.parametrize("handler", [aligner, Tracker])
def test_a_barrier_leaves_on_all_outputs_and_then_the_state_is_copied_with_nothing_in_between(handler: Any) -> None:
    bench = Bench(handler=handler(2))
    bench.put(0, Data(batch(1)), Watermark(5), Barrier(1), Data(batch(2))).put(
        1, Watermark(7), Barrier(1), Watermark(9)
    )
    said = bench.run()
    at = said.index("y:B(1)")
    assert said[at : at + 3] == ["y:B(1)", "z:B(1)", "snapshot"]
    assert said.count("y:B(1)") == said.count("z:B(1)") == said.count("snapshot") == 1


def test_no_barrier_is_taken_while_an_emission_is_pending() -> None:
    bench = Bench(credit=1)
    bench.node.operator = RowByRow(bench)
    bench.put(0, Data(batch(1, 2, 3)), Barrier(1)).put(1, Barrier(1))
    said = []
    for _ in range(20):
        said += bench.run()
        for output in bench.outputs:
            while output.head is not None:
                output.take()
    assert [token for token in said if token.startswith("y")] == ["y:1", "y:2", "y:3", "y:B(1)"]


def test_a_long_emission_waits_for_room_between_its_parts() -> None:
    bench = Bench(credit=1)
    bench.node.operator = RowByRow(bench)
    bench.put(0, Data(batch(1, 2, 3))).run()
    assert [output.queued_rows for output in bench.outputs] == [1, 1]


def test_a_barrier_needs_no_credit() -> None:
    bench = Bench(credit=1).put(0, Data(batch(1)), Barrier(1), Data(batch(2))).put(1, Barrier(1))
    assert "y:B(1)" in bench.run()
    assert bench.task.state is Progress.BACK_PRESSURED


def test_rows_wait_for_credit_on_every_output() -> None:
    bench = Bench(credit=1).put(0, Data(batch(1)), Data(batch(2)))
    bench.run()
    bench.outputs[0].take()
    assert bench.run() == []
    bench.outputs[1].take()
    assert {"y:2", "z:2"} <= set(bench.run())


def test_watermarks_leave_on_every_output_whatever_its_tag() -> None:
    bench = Bench()
    bench.node.outputs = {None: bench.node.outputs[None][:1], "late": bench.node.outputs[None][1:]}
    bench.put(0, Watermark(5)).put(1, Watermark(7))
    assert [said for said in bench.run() if "W(" in said] == ["y:W(5)", "z:W(5)"]


# --- K8, K10: what a checkpoint names


def transactions(bench: Bench) -> dict[int, list[Any]]:
    """The rows each acknowledged checkpoint wants committed."""
    return {
        ack.checkpoint: [handle["rows"] for handle in ack.transactions.get("op", ())]
        for ack in bench.reported(Acknowledged)
    }


def checkpoints(bench: Bench, *ids: int) -> Bench:
    """A row before each barrier, its value the barrier's id."""
    for n in ids:
        bench.put(0, Data(batch(n)), Barrier(n)).put(1, Barrier(n))
        bench.run()
    return bench


def test_a_transaction_is_named_until_it_is_known_to_be_committed() -> None:
    bench = checkpoints(Bench(Writer()), 1, 2)
    bench.task.mailbox.put(Committed(1))
    checkpoints(bench, 3)
    assert transactions(bench) == {1: [[1]], 2: [[1], [2]], 3: [[2], [3]]}


def test_a_commit_covers_all_older_transactions() -> None:
    bench = checkpoints(Bench(Writer()), 1, 2)
    bench.task.mailbox.put(Committed(2))
    assert transactions(checkpoints(bench, 3))[3] == [[3]]


def test_every_operator_of_a_task_hears_of_a_commit() -> None:
    bench = Bench()
    bench.node.children = {None: [last := ChainNode("out", "op", bench.clock)]}
    last.operator = Writer()
    bench.task.chain = Chain([bench.node, last])
    checkpoints(bench, 1)
    assert last.transactions() == ({"rows": [1]},)
    bench.task.mailbox.put(Committed(1))
    bench.run()
    assert last.transactions() == ()


def test_only_a_writer_with_rows_has_prepared_something() -> None:
    bench = Bench(Writer())
    points: list[Point] = []
    bench.node.snapshots(1, points.append)
    assert (points, bench.node.transactions()) == ([], ())
    bench.put(0, Data(batch(7))).run()
    bench.node.snapshots(2, points.append)
    assert (points, bench.node.transactions()) == ([Point.PREPARED], ({"rows": [7]},))


def test_a_transaction_whose_checkpoint_was_aborted_belongs_to_the_next() -> None:
    bench = checkpoints(Bench(Writer()), 1)
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    assert transactions(checkpoints(bench, 2))[2] == [[1], [2]]


def test_the_costs_of_a_snapshot_are_its_alignment_and_its_copy() -> None:
    bench = Bench().put(0, Barrier(1))
    bench.clock.advance(100)
    bench.run()
    bench.clock.advance(30)
    bench.use(probe=lambda point: bench.clock.advance(4))
    bench.put(1, Barrier(1)).run()
    (ack,) = bench.reported(Acknowledged)
    assert (ack.stats.alignment, ack.stats.copy, ack.stats.copy_cpu) == (30, 4, 4)
    assert ack.stats.blocked == {"a": 30}


def test_the_blocked_time_of_a_checkpoint_is_what_its_own_barriers_blocked() -> None:
    bench = Bench()
    for number, wait in ((1, 30), (3, 7)):  # 2 is aborted while its barrier blocks the input
        bench.put(0, Barrier(number)).run()
        bench.clock.advance(wait)
        bench.put(1, Barrier(number)).run()
        if number == 1:
            bench.put(0, Barrier(2)).run()
            bench.clock.advance(1_000)
            bench.task.mailbox.put(AbortCheckpoint(2, AbortReason.EXPIRED))
            bench.run()
    assert [ack.stats.blocked for ack in bench.reported(Acknowledged)] == [{"a": 30}, {"a": 7}]


def test_rows_that_could_not_be_prepared_are_in_the_next_transaction_and_downstream_is_told() -> None:
    bench = checkpoints(Bench(Writer(refuse=[1])), 1)
    assert bench.reported(Declined) == [Declined("op[0]", 1, FailureReason.SNAPSHOT, "not now")]
    assert bench.outputs[0].is_urgent, "no cancel was sent"
    assert transactions(checkpoints(bench, 2)) == {2: [[1, 2]]}


def test_a_snapshot_holds_the_watermark_of_each_channel() -> None:
    bench = Bench().put(0, Watermark(9), Barrier(1)).put(1, Watermark(7), Barrier(1))
    bench.run()
    (ack,) = bench.reported(Acknowledged)
    state = TaskState.decode(bench.store.read(1, ack.parts[0]))
    assert state.inlet["watermarks"] == [9, 7]


# --- aborts


def test_a_cancel_goes_downstream_ahead_of_what_is_queued_and_unblocks() -> None:
    bench = Bench().put(0, Barrier(1), Data(batch(1)))
    assert bench.run() == []
    bench.put(1, Cancel(1))
    assert bench.run()[:2] == ["y:X(1)", "z:X(1)"]
    assert bench.outputs[0].queued_rows == 1
    assert [d.checkpoint for d in bench.reported(Declined)] == [1]


def test_an_aborted_checkpoint_is_not_acknowledged() -> None:
    bench = Bench().put(0, Barrier(1))
    bench.run()
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    bench.put(1, Barrier(1))
    bench.run()
    assert bench.reported(Acknowledged) == []


def test_a_trigger_that_waits_for_the_end_takes_no_snapshot_of_an_aborted_checkpoint() -> None:
    bench = Bench()
    bench.task.mailbox.put(Trigger(Barrier(1), finished=False))
    bench.run()
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    assert "snapshot" not in bench.put(0, EndOfInput()).put(1, EndOfInput()).run()


def test_a_part_that_waits_to_be_written_is_not_written_once_its_checkpoint_is_aborted() -> None:
    waiting: list[Callable[[], None]] = []
    bench = Bench(submit=lambda lane, job: waiting.append(job)).put(0, Barrier(1)).put(1, Barrier(1))
    bench.run()
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    bench.run()
    for job in waiting:
        job()
    assert (len(waiting), bench.store.highest_id(), bench.reported(Acknowledged)) == (1, 0, [])


# --- K13, K14: the end


def test_the_end_is_finish_then_its_rows_then_the_end_of_input_then_nothing() -> None:
    bench = Bench().put(0, EndOfInput()).put(1, Data(batch(1)), EndOfInput())
    said = [token for token in bench.run() if token[0] in "yf" and "W(" not in token]
    assert said == ["y:1", "finish", "y:99", "y:EndOfInput"]
    assert [r.task for r in bench.reported(Ended)] == ["op[0]"]
    assert bench.task.state is Progress.ENDED


def test_a_task_that_ended_takes_the_last_checkpoint_and_sends_nothing() -> None:
    bench = Bench().put(0, EndOfInput()).put(1, EndOfInput())
    bench.run()
    bench.task.mailbox.put(Trigger(Barrier(4), finished=True))
    assert bench.run() == ["snapshot"]
    assert [a.checkpoint for a in bench.reported(Acknowledged)] == [4]


def test_the_part_of_a_task_that_ended_says_so() -> None:
    bench = Bench().put(0, Watermark(3), EndOfInput()).put(1, EndOfInput())
    bench.run()
    for n in (4, 5):
        bench.task.mailbox.put(Trigger(Barrier(n), finished=True))
    bench.run()
    states = [TaskState.decode(bench.store.read(ack.checkpoint, ack.parts[0])) for ack in bench.reported(Acknowledged)]
    assert [(state.task, state.ended) for state in states] == [("op[0]", True)] * 2


def test_a_trigger_for_a_task_that_has_just_finished_is_declined() -> None:
    bench = Bench().put(0, EndOfInput()).put(1, EndOfInput())
    bench.run()
    bench.task.mailbox.put(Trigger(Barrier(4), finished=False))
    bench.run()
    assert [(d.checkpoint, d.reason) for d in bench.reported(Declined)] == [(4, FailureReason.NOT_READY)]


def test_triggers_that_waited_for_the_end_of_input_all_come_before_it_is_passed_on() -> None:
    bench = Bench().put(0, EndOfInput()).put(1, EndOfInput())
    for n in (1, 2):
        bench.task.mailbox.put(Trigger(Barrier(n), finished=False))
    assert [said for said in bench.run() if said in ("y:B(1)", "y:B(2)", "finish")] == ["y:B(1)", "y:B(2)", "finish"]


def test_a_task_is_done_only_when_it_is_told_to_stop() -> None:
    bench = Bench().put(0, EndOfInput()).put(1, EndOfInput())
    bench.run()
    bench.task.mailbox.put(Stop())
    bench.run()
    assert bench.task.state is Progress.DONE


# --- colour


def test_a_stateful_operator_that_took_red_rows_emits_red_until_its_snapshot() -> None:
    bench = Bench(handler=Tracker(2)).put(0, Data(batch(1)), Barrier(3), Data(batch(2)))
    bench.run()
    bench.put(1, Data(batch(3)))
    bench.run()
    epochs = []
    while bench.outputs[0].head is not None:
        element = bench.outputs[0].take()
        epochs += [element.epoch] if isinstance(element, Data) else []
    assert epochs == [0, 3, 3]


# --- the input's ends


def test_a_source_sends_the_last_watermark_before_its_operators_finish() -> None:
    bench, source = Bench(), ScriptedSource([batch(1)])
    splits = [SplitState(split) for split in source.splits()]
    bench.task.task_input = SourceInput(source, splits, SourceContext("in", 0, 1, bench.clock))
    ends = [said for said in [*bench.run(), *bench.run()] if said.startswith(("advance", "finish"))]
    assert ends == [f"advance({MAX_WATERMARK})", "finish"]


def test_a_snapshot_between_the_last_end_and_finish_is_of_a_task_that_runs() -> None:
    bench = Bench(handler=Overtaker(2), overtakable="ab").put(0, EndOfInput()).put(1, EndOfInput())
    while not bench.task.task_input.ended:
        bench.task.step()
    bench.task.mailbox.put(Trigger(Barrier(1, unaligned=True), finished=False))
    assert bench.run().count("finish") == 1
    (report,) = bench.reported(Acknowledged)
    assert TaskState.decode(bench.store.read(1, report.parts[0])).ended is False
