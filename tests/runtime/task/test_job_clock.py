"""The clock of a job, and the operators that go by it while the wall clock steps."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock, SystemClock
from dataflow.contracts.operator import Operator, Out
from dataflow.errors import BarrierflowWarning, ClockStepWarning
from dataflow.planning.chosen_row_specs import Unique
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.job_clock import JobClock
from dataflow.state.ttl import Ttl
from operators.chosen_rows.unique import UniqueOperator
from tests.operators.operating import Emitted, context_of

SECOND = 1_000_000
DAY = 86_400 * SECOND


class Machine:
    """A machine whose wall clock is set by the test, the clock of a job on it, and the warnings."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall=20_000 * DAY)
        self.warnings: list[tuple[type[BarrierflowWarning], str]] = []
        self.job = JobClock(self.clock, lambda category, text: self.warnings.append((category, text)))

    def passes(self, seconds: int, *, step: int = 0) -> int:
        """Step the wall clock, then let time pass, with a reading each second; return time by the clock."""
        self.clock.step_wall(step)
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.job.time()
        return self.job.time() - 20_000 * DAY


def test_a_job_warns_once_of_steps_of_the_wall_clock() -> None:
    machine = Machine()
    machine.passes(3, step=SECOND // 2)
    assert machine.warnings == []
    machine.passes(3, step=DAY)
    machine.passes(3, step=-2 * DAY)
    ((category, text),) = machine.warnings
    assert category is ClockStepWarning
    assert text.startswith("the wall clock is 24.0 h ahead of the time by which the job goes")


def test_a_thread_that_is_held_up_between_two_readings_sees_no_step() -> None:
    class HeldUp(ManualClock):
        held_up = 3

        def wall(self) -> float:
            wall = super().wall()
            if self.held_up:
                self.held_up -= 1
                self.advance(5 * SECOND)
            return wall

    machine, told = HeldUp(), list[str]()
    JobClock(machine, lambda category, text: told.append(text)).time()
    assert told == []


def test_threads_that_read_one_after_the_other_see_rising_times() -> None:
    clock, readings = JobClock(SystemClock(), lambda category, text: None), list[int]()
    turn = threading.Lock()  # guards ``readings``, and orders the threads

    def read() -> None:
        for _ in range(200):
            with turn:
                readings.append(clock.time())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert readings == sorted(readings)


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_unique_by_the_clock_forgets_keys_in_time_whatever_the_wall_clock_does(step: int) -> None:
    machine, out = Machine(), Emitted()
    schema = pa.schema({"k": pa.string()})
    operator = UniqueOperator(context_of(schema, schema, clock=machine.job), Unique(("k",), Ttl(2 * SECOND), None))
    for back in (0, step, -step, 0, 0):
        operator.process(0, pa.record_batch({"k": ["a"]}), out)
        operator.process(0, pa.record_batch({"k": ["a"]}), out)
        machine.passes(5, step=back)
    assert out.take() == [("a",)] * 5


class Rings(Operator):
    """Notes the times of its timers."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def timer(self, due: int, out: Out) -> None:
        self.times.append(due)


def ringing(machine: Machine) -> tuple[ChainNode, Chain, list[int]]:
    """Return a node with timers, its chain, and the times for which they were set that have rung."""
    node, operator = ChainNode("timed", None, machine.job), Rings()
    node.operator = operator
    return node, Chain([node]), operator.times


def rung(machine: Machine, seconds: int, *, step: int) -> int | None:
    """Return after how many seconds a timer rings that is due in ``seconds`` by the clock; None: after 60 not yet."""
    node, chain, _ = ringing(machine)
    node.schedule_at(machine.job.time() + seconds * SECOND)
    machine.clock.step_wall(step)
    for after in range(60):
        now = machine.clock.now()
        if chain.due(now):
            assert not node.timers_by_clock
            return after
        seen = chain.next_timer(now)
        assert seen is not None
        assert seen > now
        machine.passes(1)
    return None


def test_a_timer_by_the_clock_rings_when_time_is_there() -> None:
    assert rung(Machine(), 30, step=0) == 30
    assert rung(Machine(), 30, step=DAY) == 10, "a lead that has lasted brings the timer forward"
    assert rung(Machine(), 20, step=-DAY) == 40, "time runs at half speed"


def test_a_timer_of_each_kind_rings_in_order() -> None:
    machine = Machine()
    node, chain, times = ringing(machine)
    now, time = machine.clock.now(), machine.job.time()
    for seconds in (4, 1, 3):
        node.schedule_at(time + seconds * SECOND)
    node.schedule(now + 2 * SECOND)
    for _ in range(5):
        machine.passes(1)
        while chain.due(machine.clock.now()):
            pass
    assert times == [time + SECOND, now + 2 * SECOND, time + 3 * SECOND, time + 4 * SECOND]
