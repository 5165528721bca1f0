"""A worker sleeps as soon as its tasks rest, and what a sleeping task waits for wakes it.

Every simulated run asserts the other half: a task that rests does nothing in its next step.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from dataflow.contracts.operator import Operator, Out
from dataflow.protocol.events import Barrier, Data, EndOfInput
from dataflow.protocol.overtaking import Overtaker
from dataflow.runtime.task.messages import Committed
from dataflow.runtime.task.outputs import ForwardOutput
from dataflow.runtime.task.poll_times import LearnedPolls
from dataflow.runtime.task.progress import Progress
from dataflow.testing import ScriptedSource
from tests.runtime.task.test_poll_times import _Telling, inlet
from tests.runtime.task.test_task import Bench, _Tapped, batch


class Passes(Operator):
    """Emits what it takes."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)


def passing(**settings: object) -> Bench:
    """A task that took one batch and has nothing more to do."""
    bench = Bench(Passes(), **settings)  # type: ignore[arg-type]
    bench.put(0, Data(batch(1)))
    assert bench.task.step() is Progress.WORKED
    return bench


def test_a_task_rests_after_the_last_batch_and_waits_from_then_on() -> None:
    bench = passing()
    assert (bench.task.rest(), bench.task.state) == (True, Progress.WAITING)
    bench.clock.advance(70)
    bench.task.step()
    assert (bench.task.meter.waiting, bench.task.meter.ready) == (70, 0)


MORE: dict[str, Callable[[Bench], object]] = {
    "rows": lambda bench: bench.put(1, Data(batch(2))),
    "a barrier": lambda bench: bench.put(1, Barrier(1)),
    "a message": lambda bench: bench.task.mailbox.put(Committed(1)),
    "a timer": lambda bench: bench.node.schedule(0),
    "a trigger": lambda bench: bench.task.task_input.trigger(Barrier(1)),
    "the end of a channel": lambda bench: bench.put(1, EndOfInput()),
}


@pytest.mark.parametrize("more", MORE)
def test_a_task_does_not_rest_while_there_is(more: str) -> None:
    bench = passing()
    MORE[more](bench)
    assert (bench.task.rest(), bench.task.state) == (False, Progress.WORKED)


def test_a_task_rests_until_a_timer_is_due() -> None:
    bench = passing()
    bench.node.schedule(50)
    assert bench.task.rest()
    bench.clock.advance(50)
    assert not bench.task.rests(bench.clock.now())


def test_a_task_that_waits_for_barriers_rests_until_it_is_time_to_convert_the_checkpoint() -> None:
    bench = Bench(Passes(), handler=Overtaker(2, timeout=100), overtakable="ab")
    bench.put(0, Barrier(1, triggered_at=0))
    bench.task.step()
    assert (bench.task.rest(), bench.task.state) == (True, Progress.BLOCKED)
    bench.clock.advance(101)
    assert not bench.task.rests(bench.clock.now())


def test_a_task_does_not_rest_once_all_its_channels_ended() -> None:
    bench = passing().put(0, EndOfInput()).put(1, EndOfInput())
    while not bench.task.task_input.ended:
        bench.task.step()
    assert not bench.task.rest()


def test_a_source_rests_until_its_rows_are_due() -> None:
    bench = Bench(Passes(), credit=1_000)
    bench.task.task_input = inlet(_Telling(bench.clock.now() + 5_000), LearnedPolls(), bench.clock)
    bench.task.step()
    assert bench.task.rest()
    bench.task.task_input.trigger(Barrier(1))
    assert not bench.task.rest()


def test_a_source_that_is_polled_at_once_never_rests() -> None:
    bench = Bench(Passes(), credit=1_000)
    bench.task.task_input = inlet(ScriptedSource([batch(1), batch(2)]), LearnedPolls())
    bench.task.step()
    assert not bench.task.rest()


def test_a_task_without_room_is_woken_by_the_next_rows_taken() -> None:
    bench = passing(credit=1)
    rung: list[int] = []
    for channel in bench.outputs:
        channel.on_take = lambda: rung.append(1)
    bench.put(0, Data(batch(2)))
    assert bench.task.step() is Progress.BACK_PRESSURED
    bench.outputs[0].take()
    assert rung == [1]
    assert bench.task.step() is Progress.BACK_PRESSURED
    bench.outputs[1].take()
    assert (rung, bench.task.step()) == ([1, 1], Progress.WORKED)


class _TakenMeanwhile(_Tapped):
    """Its reader takes the rows just before it can see that the writer waits for room."""

    @property
    def awaited(self) -> bool:  # type: ignore[override]
        return False

    @awaited.setter
    def awaited(self, wanted: bool) -> None:
        if wanted and self.queued_rows:
            self.take()


def test_room_that_a_reader_made_before_it_was_asked_to_ring_is_used_at_once() -> None:
    bench = Bench(Passes())
    bench.node.outputs = {None: [ForwardOutput([_TakenMeanwhile(1, "y", bench.log, overtakable=False)])]}
    bench.task.chain.outputs = tuple(bench.node.outputs[None])
    bench.put(0, Data(batch(1)), Data(batch(2)))
    assert [bench.task.step(), bench.task.step()] == [Progress.WORKED, Progress.WORKED]
    assert bench.log == ["y:1", "y:2"]
