"""Rows that a restore put back into a task: they come before all else, and a checkpoint stores those that are left."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dataflow.contracts.operator import Operator, Out
from dataflow.contracts.source import SourceContext
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.events import Barrier, BarrierKind, Cancel, Data, Element, EndOfInput, Watermark
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.job.who_waits import _causes
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.messages import Acknowledged, Declined, Ended, Trigger
from dataflow.runtime.task.pace import Unpaced
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.put_back import PutBack, PutBackQueue, put_back_id
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import SplitState
from dataflow.state.codec import decode, encode
from dataflow.testing import ScriptedSource
from tests.runtime.task.test_overtaking import in_flight, part, unaligned
from tests.runtime.task.test_task import Bench, aligner, batch

SAVEPOINT = Barrier(1, BarrierKind.SAVEPOINT)


def queue(*values: int, port: int = 0, generation: int = 1, operator: str = "op", **options: Any) -> PutBackQueue:
    """Rows put back, each in a batch of its own."""
    rows = Channel(1, put_back_id(operator, 0, port, generation).name, **options)
    rows.preload([Data(batch(value)) for value in values])
    return PutBackQueue(operator, port, generation, rows)


def task_with(*queues: PutBackQueue, operator: Operator | None = None, **options: Any) -> Bench:
    handler = options.pop("handler", None) or Overtaker(2, timeout=options.pop("timeout", None))
    bench = Bench(operator, handler=handler, overtakable=options.pop("overtakable", "abyz"), **options)
    bench.task.put_back = PutBack(queues)
    return bench


def sent(log: list[str]) -> list[str]:
    """What left on the first output."""
    return [entry.removeprefix("y:") for entry in log if entry.startswith("y:")]


def run_without_room(bench: Bench) -> None:
    """Run with outputs that have room for one batch, and are full then."""
    bench.run()
    assert bench.task.state is Progress.BACK_PRESSURED


class Ports(Operator):
    """Emits the port of each batch, times 1000, plus its rows."""

    def process(self, port: int, rows: pa.RecordBatch, out: Out) -> None:
        out.emit(batch(*[1_000 * port + value for value in rows["x"].to_pylist()]))


def test_put_back_rows_come_before_all_elements_of_all_channels() -> None:
    first, second = queue(1, 2), queue(3, port=1)
    bench = task_with(first, second, queue(4, generation=2), operator=Ports())
    bench.put(0, Data(batch(8)), Watermark(5), EndOfInput()).put(1, Watermark(7), Data(batch(9)), EndOfInput())
    rows = [entry for entry in sent(bench.run()) if entry.isdigit()]
    assert (rows[:4], sorted(rows[4:])) == (["1", "2", "1003", "4"], ["8", "9"])
    assert bench.reported(Ended)


@pytest.mark.parametrize("kind", ["aligned", "unaligned", "savepoint"])
def test_a_barrier_that_aligns_waits_until_the_last_put_back_row_was_taken(kind: str) -> None:
    handler = {"aligned": aligner(2), "unaligned": Tracker(2), "savepoint": Overtaker(2, timeout=0)}[kind]
    barrier = SAVEPOINT if kind == "savepoint" else Barrier(1)
    overtakable = "abyz" if kind == "savepoint" else ""
    bench = task_with(queue(1, 2), handler=handler, overtakable=overtakable, credit=1)
    bench.put(0, barrier, Data(batch(3))).put(1, barrier)
    run_without_room(bench)
    bench.clock.advance(1_000)
    bench.task.task_input.tick(bench.clock.now())
    run_without_room(bench)
    assert not bench.reported(Acknowledged)
    said = []
    for _ in range(3):
        for output in bench.outputs:
            while output.next is not None:
                output.take_urgent() if output.is_urgent else output.take()
        said += sent(bench.run())
    assert said == ["2", "B(1)", "3"]
    assert (part(bench, 1).in_flight, part(bench, 1).duplicates) == ([], [])


def test_a_barrier_that_overtakes_stores_the_rows_that_are_left_and_leaves_ahead_of_them() -> None:
    bench = task_with(queue(1, 2), queue(3, port=1), queue(4, generation=2), credit=1)
    bench.put(0, Data(batch(5)))
    run_without_room(bench)
    bench.put(0, unaligned(1)).put(1, Data(batch(6)), unaligned(1))
    assert sent(bench.run())[0] == "B(1)"
    states = part(bench, 1).in_flight
    assert in_flight(part(bench, 1)) == {
        "(put back 1) -> op[0]": [[2]],
        "(put back 1) -> op[0] (input 1)": [[3]],
        "(put back 2) -> op[0]": [[4]],
        "a": [[5]],
        "b": [[6]],
    }
    assert [(state.port, state.generation) for state in states] == [(0, 1), (1, 1), (0, 2), (None, 0), (None, 0)]


def test_rows_taken_while_channels_are_recorded_are_stored_once() -> None:
    bench = task_with(queue(1, 2))
    bench.task.step()
    bench.put(0, unaligned(1))
    bench.run()
    bench.put(1, Data(batch(3)), unaligned(1)).run()
    assert in_flight(part(bench, 1)) == {"(put back 1) -> op[0]": [[2]], "b": [[3]]}


def test_a_newer_checkpoint_stores_what_is_left_by_then() -> None:
    bench = task_with(queue(1, 2, 3), credit=1).put(0, unaligned(1))
    run_without_room(bench)
    for output in bench.outputs:
        output.take_urgent()
        output.take()
    run_without_room(bench)
    bench.put(0, unaligned(2)).put(1, unaligned(2)).run()
    assert [ack.checkpoint for ack in bench.reported(Acknowledged)] == [2]
    assert in_flight(part(bench, 2)) == {"(put back 1) -> op[0]": [[3]]}


def test_a_barrier_that_becomes_late_while_put_back_rows_wait_for_room_overtakes_them() -> None:
    bench = task_with(queue(1, 2), timeout=100, credit=1)
    bench.put(0, Data(batch(3)), Barrier(1, triggered_at=5)).put(1, Barrier(1, triggered_at=5))
    run_without_room(bench)
    assert (bench.task.task_input.deadline, bench.reported(Acknowledged)) == (106, [])
    bench.clock.advance(106)
    bench.run()
    assert in_flight(part(bench, 1)) == {"(put back 1) -> op[0]": [[2]], "a": [[3]]}


def test_a_barrier_waits_for_an_edge_that_cannot_be_overtaken_and_so_for_the_put_back_rows() -> None:
    handler = Overtaker(2, aligned_edges={1})
    bench = task_with(queue(1, 2), handler=handler, overtakable="a").put(0, Data(batch(3)), unaligned(1))
    bench.put(1, unaligned(1))
    assert sent(bench.run()) == ["1", "2", "B(1)", "3"]
    assert in_flight(part(bench, 1)) == {"a": [[3]]}


def test_a_task_without_live_inputs_overtakes_put_back_rows_as_well() -> None:
    bench = task_with(queue(1, 2), credit=1).put(0, Data(batch(3)), EndOfInput()).put(1, EndOfInput())
    run_without_room(bench)
    bench.task.mailbox.put(Trigger(unaligned(1), finished=False))
    bench.run()
    found = in_flight(part(bench, 1))
    assert found == {"(put back 1) -> op[0]": [[2]], "a": [[3], EndOfInput()], "b": [EndOfInput()]}


def test_a_cancel_overtakes_put_back_rows() -> None:
    bench = task_with(queue(1, 2), credit=1)
    run_without_room(bench)
    bench.put(0, Cancel(1))
    assert sent(bench.run()) == ["X(1)"]
    assert [declined.checkpoint for declined in bench.reported(Declined)] == [1]


def test_timers_wait_for_put_back_rows() -> None:
    said = task_with(queue(1, 2)).run()
    assert [entry for entry in said if entry in ("y:1", "y:2", "timer")] == ["y:1", "y:2", "timer", "timer"]


def test_a_task_with_put_back_rows_never_rests_and_says_why_it_waits() -> None:
    bench = task_with(queue(1, 2), operator=Ports(), credit=1)
    run_without_room(bench)
    assert not bench.task.rests(0)
    assert _causes(bench.task, 0)[-1] == "takes rows that the restore put back before its input: 1 are left"
    assert bench.task.put_back.rows == 1


class OneRow(Unpaced):
    max_rows = 1


@pytest.mark.parametrize(("kind", "left"), [({}, [2, 3, 3]), ({"is_signed": True}, [3])])
def test_a_batch_is_cut_like_that_of_a_channel_and_the_rest_is_stored(kind: dict[str, bool], left: list[int]) -> None:
    changes = queue(**kind)
    changes.queue.preload([Data(pa.record_batch({"x": [1, 2, 3, 3], "change": pa.array([-1, 1, 1, -1], pa.int8())}))])
    bench = task_with(changes)
    bench.task._pace = OneRow()
    bench.task.step()
    bench.put(0, unaligned(1)).put(1, unaligned(1)).run()
    assert in_flight(part(bench, 1)) == {"(put back 1) -> op[0]": [left]}


# --- operators inside a chain


class Plus(Operator):
    """Adds to each row."""

    stateless = True

    def __init__(self, number: int) -> None:
        self._number = number

    def process(self, port: int, rows: pa.RecordBatch, out: Out) -> None:
        out.emit(batch(*[self._number + value for value in rows["x"].to_pylist()]))


def chained(bench: Bench, operator: Operator | None = None) -> Bench:
    """The same with an operator after the head, which has the outputs."""
    last = ChainNode("last", "op", bench.clock)
    last.operator, last.outputs = operator or Plus(100), bench.node.outputs
    bench.node.outputs, bench.node.children = {}, {None: [last]}
    bench.task.chain = Chain([bench.node, last])
    return bench


def test_rows_put_back_inside_a_chain_enter_there_and_come_before_those_of_its_head() -> None:
    bench = chained(task_with(queue(1, operator="last", generation=2), queue(2), operator=Plus(10)))
    assert sent(bench.put(0, Data(batch(3))).run()) == ["101", "112", "113"]


def test_rows_that_are_left_inside_a_chain_are_stored_for_their_operator() -> None:
    bench = chained(task_with(queue(1, 2, operator="last"), queue(3), operator=Plus(10), credit=1))
    run_without_room(bench)
    bench.put(0, unaligned(1)).put(1, unaligned(1)).run()
    assert in_flight(part(bench, 1)) == {"(put back 1) -> last[0]": [[2]], "(put back 1) -> op[0]": [[3]]}
    assert [state.operator for state in part(bench, 1).in_flight] == ["last", "op"]


def source_with(*queues: PutBackQueue) -> Bench:
    """A source with the rows 7 and 8, and an operator after it, with room for one batch."""
    bench = chained(task_with(*queues, credit=1), Plus(100))
    source = ScriptedSource([batch(7), batch(8)])
    context = SourceContext("op", 0, 1, bench.clock)
    task_input = SourceInput(source, [SplitState(split) for split in source.splits()], context)
    bench.node.operator = Plus(0)
    bench.task.task_input = task_input
    return bench


def test_a_source_reads_nothing_before_the_rows_put_back_into_its_chain_were_taken() -> None:
    bench = source_with(queue(1, 2, operator="last"))
    run_without_room(bench)
    assert bench.task.task_input.splits[0].rows == 0
    for _ in range(5):
        for output in bench.outputs:
            while output.head is not None:
                output.take()
        bench.run()
    assert bench.reported(Ended)


def test_at_a_source_a_checkpoint_overtakes_put_back_rows_only_if_its_barrier_does() -> None:
    aligns, overtakes = (source_with(queue(1, 2, operator="last")) for _ in "ab")
    for bench, barrier in ((aligns, Barrier(1)), (overtakes, unaligned(1))):
        run_without_room(bench)
        bench.task.mailbox.put(Trigger(barrier, finished=False))
        bench.run()
    assert in_flight(part(overtakes, 1)) == {"(put back 1) -> last[0]": [[2]]}
    assert not aligns.reported(Acknowledged)
    for output in aligns.outputs:
        output.take()
    assert sent(aligns.run()) == ["102", "B(1)"]
    assert (part(aligns, 1).in_flight, part(aligns, 1).inlet["splits"][0]["rows"]) == ([], 0)  # type: ignore[index, call-overload]


# --- what a part holds of them


def test_put_back_rows_keep_port_and_generation_in_a_part() -> None:
    rows = [Data(pa.record_batch({"k": pa.array(["a", "b"]).dictionary_encode()}))]
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "here", rows, [["k", "string"]], ["k"], 1, 3)])
    (found,) = TaskState.decode(bytes(encoded(state))).in_flight
    assert (found.operator, found.port, found.generation, found.schema) == ("op", 1, 3, [["k", "string"]])
    (data,) = found.elements
    assert data.rows["k"].to_pylist() == ["a", "b"]  # type: ignore[union-attr, index]


def encoded(state: TaskState) -> bytes:
    return b"".join(bytes(piece) for piece in state.pieces("rows"))


@pytest.mark.parametrize(
    ("changes", "elements", "message"),
    [
        ({"port": None}, [Data(batch(1))], "have no input port"),
        ({"port": -1}, [Data(batch(1))], "port"),
        ({"generation": -1}, [Data(batch(1))], "generation"),
        ({}, [Data(batch(1)), Watermark(3)], "hold .*Watermark.* expected only rows"),
        ({}, [EndOfInput()], "hold .*EndOfInput.* expected only rows"),
    ],
)
def test_put_back_rows_that_no_task_could_have_left_are_damage(
    changes: dict[str, Any], elements: list[Element], message: str
) -> None:
    state = TaskState("t[0]", in_flight=[ChannelState("op", "t[0]", "here", elements, None, (), 0, 1)])
    values, tables = decode(encoded(state))
    values["in_flight"][0].update(changes)  # type: ignore[index, call-overload, union-attr]
    with pytest.raises(CheckpointDamaged, match=message):
        TaskState.decode(encode(values, tables))


def test_a_task_that_ended_has_no_put_back_rows() -> None:
    rows = ChannelState("op", "t[0]", "here", [Data(batch(1))], None, (), 0, 1)
    with pytest.raises(CheckpointDamaged, match="are left, but the task had ended"):
        TaskState.decode(encoded(TaskState("t[0]", ended=True, in_flight=[rows])))
