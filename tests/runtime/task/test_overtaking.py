"""Barriers that overtake, at one real task and between two: what is snapshot, what is channel state, what goes on."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from dataflow.contracts.operator import Operator, Out
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.events import Barrier, Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.overtaking import Overtaker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.messages import AbortCheckpoint, Acknowledged, Trigger
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.progress import Progress
from tests.runtime.task.test_task import Bench, batch


def unaligned(n: int) -> Barrier:
    return Barrier(n, unaligned=True)


def overtaking(operator: Operator | None = None, **options: Any) -> Bench:
    handler = Overtaker(2, timeout=options.pop("timeout", None))
    return Bench(operator, handler=handler, overtakable="abyz", **options)


def part(bench: Bench, n: int) -> TaskState:
    """The task's part of checkpoint ``n``, as it was written."""
    (found,) = [report for report in bench.reported(Acknowledged) if report.checkpoint == n]
    return TaskState.decode(bench.store.read(n, found.parts[0]))


def in_flight(state: TaskState) -> dict[str, list[Any]]:
    return {channel.channel: shown(channel.elements) for channel in state.in_flight}


def shown(elements: Any) -> list[Any]:
    return [e.rows["x"].to_pylist() if isinstance(e, Data) else e for e in elements]


def test_a_barrier_that_overtakes_leaves_ahead_of_the_rows_it_passed() -> None:
    bench = overtaking().put(0, Data(batch(1)), unaligned(1))
    assert bench.run()[:4] == ["y:B(1)", "z:B(1)", "snapshot", "y:1"]


def test_the_part_holds_what_was_overtaken_and_what_came_before_the_other_barrier() -> None:
    bench = overtaking().put(0, Data(batch(1)), Watermark(5), unaligned(1))
    bench.run()
    bench.put(1, Data(batch(2, 3)), Idle(), Data(batch(4)), unaligned(1), Data(batch(5))).run()
    assert in_flight(part(bench, 1)) == {"a": [[1], Watermark(5)]} | {"b": [[2, 3], Idle(), [4]]}


def test_channel_state_has_the_columns_of_its_own_channel() -> None:
    bench = overtaking()
    for channel, columns in zip(bench.inputs, ([["x", "int64"]], [["x", "int32"]]), strict=True):
        channel.schema = columns
        channel.put(Data(batch(1)))
        channel.put(unaligned(1))
    bench.run()
    found = {channel.channel: channel.schema for channel in part(bench, 1).in_flight}
    assert found == {"a": [["x", "int64"]], "b": [["x", "int32"]]}


def test_what_was_taken_before_the_barrier_came_in_is_in_the_snapshot_and_not_in_flight() -> None:
    bench = overtaking().put(0, Data(batch(1)))
    bench.run()
    bench.put(0, Data(batch(2)), unaligned(1)).put(1, unaligned(1)).run()
    assert in_flight(part(bench, 1)) == {"a": [[2]]}


def test_the_watermarks_of_the_part_are_those_at_the_barrier_not_at_its_completion() -> None:
    bench = overtaking().put(0, Watermark(3))
    bench.run()
    bench.put(0, unaligned(1)).run()
    bench.put(1, Watermark(4), unaligned(1)).run()
    assert part(bench, 1).inlet["watermarks"] == [3, None]


def test_an_end_that_was_in_flight_is_channel_state() -> None:
    bench = overtaking().put(1, Data(batch(1)), EndOfInput()).put(0, unaligned(1))
    bench.run()
    assert in_flight(part(bench, 1)) == {"b": [[1], EndOfInput()]}


def test_a_barrier_overtakes_rows_that_wait_for_room_downstream() -> None:
    bench = overtaking(credit=1).put(0, Data(batch(1)), Data(batch(2)), Data(batch(3)))
    bench.run()
    bench.put(0, unaligned(1)).put(1, unaligned(1)).run()
    assert (bench.task.state, in_flight(part(bench, 1))) == (Progress.BACK_PRESSURED, {"a": [[2], [3]]})


class Fork(Operator):
    """Emits on both outputs, one after the other."""

    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)
        out.emit(batch)


def test_rows_that_were_taken_get_out_of_the_way_of_a_barrier_even_without_room() -> None:
    bench = overtaking(Fork(), credit=1).put(0, Data(batch(1)), Data(batch(2)))
    bench.run()
    assert not bench.task.chain.busy
    assert bench.inputs[0].queued_rows == 1


def test_an_abort_by_the_coordinator_drops_the_recording_and_rows_go_on() -> None:
    bench = overtaking().put(0, unaligned(1)).put(1, Data(batch(1)))
    bench.run()
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    bench.put(1, unaligned(1), Data(batch(2)))
    assert bench.run() == ["y:X(1)", "z:X(1)", "y:2", "z:2", "timer"]
    assert not bench.reported(Acknowledged)


def test_a_part_whose_checkpoint_was_given_up_is_not_written_any_more() -> None:
    bench = overtaking()
    later: list[Any] = []
    bench.use(submit=lambda lane, job: later.append(job))
    bench.put(0, unaligned(1)).put(1, unaligned(1)).run()
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    bench.run()
    later.pop()()
    assert bench.store.highest_id() == 0


def test_a_part_whose_checkpoint_was_given_up_is_let_go_at_once() -> None:
    bench = overtaking()
    bench.use(submit=lambda lane, job: None)
    bench.put(0, Data(queued := batch(1)), unaligned(1)).put(1, unaligned(1)).run()
    held = sys.getrefcount(queued)
    bench.task.mailbox.put(AbortCheckpoint(1, AbortReason.EXPIRED))
    bench.run()
    assert sys.getrefcount(queued) < held


def test_a_trigger_that_is_held_tells_when_it_may_start() -> None:
    bench = overtaking(timeout=100, credit=1).put(0, Data(batch(1)), Data(batch(2)), EndOfInput()).put(1, EndOfInput())
    bench.run()
    bench.task.mailbox.put(Trigger(Barrier(1, triggered_at=5), finished=False))
    bench.run()
    assert bench.task.task_input.deadline == 106


def test_an_aligned_barrier_past_its_timeout_overtakes_where_it_stands() -> None:
    bench = overtaking(timeout=100).put(0, Data(batch(1)), Barrier(1)).put(1, Data(batch(2)), Barrier(1))
    bench.clock.advance(101)
    assert bench.run()[:3] == ["y:B(1)", "z:B(1)", "snapshot"]
    assert in_flight(part(bench, 1)) == {"a": [[1]], "b": [[2]]}


def test_an_aligned_barrier_in_time_keeps_its_place() -> None:
    bench = overtaking(timeout=100).put(0, Data(batch(1)), Barrier(1)).put(1, Data(batch(2)), Barrier(1))
    bench.clock.advance(100)
    bench.run()
    assert in_flight(part(bench, 1)) == {}


def test_a_barrier_that_is_queued_tells_when_it_will_overtake() -> None:
    bench = overtaking(timeout=100).put(0, Data(batch(1)), Barrier(1, triggered_at=7))
    assert bench.task.task_input.deadline == 108


def test_a_task_without_live_inputs_overtakes_what_is_left_in_its_queues() -> None:
    bench = overtaking(credit=1).put(0, Data(batch(1)), Data(batch(2)), EndOfInput()).put(1, EndOfInput())
    bench.run()
    bench.task.mailbox.put(Trigger(unaligned(1), finished=False))
    bench.run()
    assert in_flight(part(bench, 1)) == {"a": [[2], EndOfInput()], "b": [EndOfInput()]}


# --- one queue between two tasks (K17), and the way back


def pair() -> tuple[Bench, Bench]:
    """An upstream task whose first output is the first input of the downstream one."""
    up, down = overtaking(), overtaking()
    down.inputs[0] = up.outputs[0]
    down.task.task_input.gate._channels = tuple(down.inputs)  # type: ignore[attr-defined]
    return up, down


def test_what_stands_between_two_tasks_is_captured_once_in_order() -> None:
    up, down = pair()
    up.put(0, Data(batch(1)), Data(batch(2)), Data(batch(3))).run()
    up.put(0, unaligned(1)).put(1, unaligned(1)).run()
    down.put(1, unaligned(1)).run()
    assert (in_flight(part(up, 1)), in_flight(part(down, 1))) == ({}, {"y": [[1], [2], [3]]})


def test_restored_channel_state_comes_first_and_in_order() -> None:
    bench = overtaking()
    bench.inputs[0].preload([Data(batch(1)), Watermark(5), Data(batch(2)), Watermark(6)])
    bench.put(0, Data(batch(3))).put(1, Watermark(9))
    log = [entry for entry in bench.run() if entry[0] in "ya"]
    assert log == ["y:1", "advance(5)", "y:W(5)", "y:2", "advance(6)", "y:W(6)", "y:3"]


def test_a_checkpoint_captures_what_is_left_of_restored_channel_state() -> None:
    bench = overtaking(credit=2)
    bench.inputs[0].preload([Data(batch(n)) for n in range(5)])
    bench.run()
    bench.put(0, Data(batch(5)), unaligned(7)).put(1, unaligned(7)).run()
    assert in_flight(part(bench, 7)) == {"a": [[2], [3], [4], [5]]}


def test_an_end_in_restored_channel_state_is_not_sent_a_second_time() -> None:
    channel = Channel(4, "a", overtakable=True)
    channel.preload([Data(batch(1)), EndOfInput()])
    assert channel.ended


# --- what a part holds of channels


def test_channel_state_survives_its_part_as_it_was() -> None:
    elements: list[Element] = [Data(batch(1, 2)), Idle(), Data(batch(3)), Watermark(-4), EndOfInput()]
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a -> t", elements, [["x", "int64"]])])
    (found,) = TaskState.decode(state.encode("sample")).in_flight
    assert (found.operator, found.channel, found.schema) == ("op", "a -> t", [["x", "int64"]])
    assert shown(found.elements) == shown(elements)
    assert (found.rows, found.bytes) == (3, 24)


def test_batches_of_different_dictionaries_survive() -> None:
    rows = [pa.record_batch({"x": pa.array(v).dictionary_encode()}) for v in (["a", "b"], ["c"], ["b", None])]
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a -> t", [Data(r) for r in rows])])
    (found,) = TaskState.decode(state.encode("sample")).in_flight
    assert shown(found.elements) == [["a", "b"], ["c"], ["b", None]]


def test_rows_without_columns_are_still_rows() -> None:
    empty = batch(1, 2, 3).select([])
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "a -> t", [Data(empty)])])
    (found,) = TaskState.decode(state.encode("sample")).in_flight
    assert found.rows == 3


def test_unknown_channel_state_is_refused() -> None:
    from dataflow.state.codec import encode

    header = {"task": "t", "ended": False, "inlet": {}, "operators": {}, "duplicates": []}
    header |= {"passed": {}, "timed": [], "logs": []}
    later = {"operator": "op", "channel": "a", "schema": None, "elements": [["teleport", 1]]}
    with pytest.raises(CheckpointDamaged, match="holds 'teleport', which is unknown here"):
        TaskState.decode(encode({**header, "in_flight": [later]}, {}))
