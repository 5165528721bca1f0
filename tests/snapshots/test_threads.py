"""Snapshots of processes on threads, which nobody stops for them."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from dataflow.errors import ConfigurationError, GraphError, JobTimeout
from dataflow.snapshots.cuts import channel_states
from dataflow.snapshots.processes import Channel, Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.snapshot_check import check
from dataflow.snapshots.runs.system import System
from dataflow.snapshots.runs.threads import Threads
from tests.seeds import seeds
from tests.snapshots.systems import coins, random_graph
from tests.snapshots.test_simulation import Failing, to

SECONDS = 60


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_snapshots_on_threads_are_consistent_and_the_run_can_be_repeated_step_by_step(seed: int) -> None:
    graph = random_graph(seed)
    with Threads(graph) as running:
        begun = [running.begin(*list(graph.processes)[: 1 + i % 2]) for i in range(4)]
        states = [running.wait(number, SECONDS) for number in begun]
        states += [running.snapshot(timeout=SECONDS) for _ in range(3)]
        running.wait_until_quiet(SECONDS)
        last = running.snapshot(timeout=SECONDS)
    again = System(graph)
    for event in running.trace.events:
        again.repeat(event)
    assert (again.state.processes, again.state.channels) == (last.processes, last.channels)
    for state in [*states, last]:
        check(running.trace, state)
        assert state.channels == channel_states(running.trace, state.cut)
        assert coins(state) == coins(last)


class Endless(Process):
    """Passes on a ball as long as it runs."""

    def __init__(self, to: str, balls: int) -> None:
        self.to, self.balls, self.hits = to, balls, 0

    def receive(self, sender: str, message: str) -> None:
        self.balls += 1

    @action(when=lambda self: self.balls > 0)
    def hit(self) -> Sends:
        self.balls -= 1
        self.hits += 1
        return {self.to: "ball"}


def game() -> ProcessGraph:
    return ProcessGraph().add("a", Endless("b", 1)).add("b", Endless("a", 1)).connect("a", "b")


def test_a_system_that_never_rests_is_recorded_while_it_works() -> None:
    with Threads(game()) as running:
        states = [running.snapshot("a", "b", timeout=SECONDS) for _ in range(20)]
        assert not running.quiet
    for state in states:
        assert sum(p["balls"] for p in state.processes.values()) + len(state.in_flight) == 2
        check(running.trace, state)
    assert states[-1].processes["a"]["hits"] >= states[0].processes["a"]["hits"]


def test_what_a_process_raises_ends_the_run_and_is_raised_with_process_and_action() -> None:
    running = Threads(to(Failing()))
    running.start()
    with pytest.raises(ValueError, match="no more") as caught:
        running.wait_until_quiet(SECONDS)
    assert caught.value.__notes__[0] == "in 'receive' of process 'b', its event 1"
    with pytest.raises(ValueError, match="no more"):
        running.begin("a")
    with pytest.raises(ValueError, match="no more"):
        running.stop()
    assert [event.process for event in running.trace.events] == ["a"]


def test_leaving_the_block_raises_what_a_process_raised() -> None:
    finished = threading.Event()

    class Telling(Failing):
        def receive(self, sender: str, message: Any) -> Sends:
            finished.set()
            raise ValueError("no more")

        def __deepcopy__(self, memo: Any) -> Telling:
            return self

    with pytest.raises(ValueError, match="no more"), Threads(to(Telling())):
        assert finished.wait(SECONDS)


def test_a_snapshot_that_is_not_complete_in_time_says_who_is_missing() -> None:
    at_work, release = threading.Event(), threading.Event()

    class Slow(Process):
        def receive(self, sender: str, message: Any) -> None:
            at_work.set()
            assert release.wait(SECONDS)

    with Threads(to(Slow())) as running:
        assert at_work.wait(SECONDS)
        number = running.begin("a")
        with pytest.raises(
            JobTimeout, match=r"after 0 s snapshot 0 is not complete, markers have not arrived at (a, )?b:"
        ):
            running.wait(number, timeout=0)
        release.set()
        assert running.wait(number, SECONDS).in_flight == []


class Losing(queue.SimpleQueue):  # type: ignore[type-arg]
    """Lets no marker through."""

    def put(self, item: Any, *_: Any) -> None:
        if not getattr(item, "is_marker", False):
            super().put(item)


def test_a_snapshot_that_was_under_way_when_the_run_was_stopped_is_not_waited_for() -> None:
    with Threads(to(Adding()), inbox=Losing) as running:
        number = running.begin("a")
    with pytest.raises(ConfigurationError, match="the run was stopped, and snapshot 0 is not complete, markers"):
        running.wait(number, SECONDS)


class Many(Process):
    """Sends two messages in a row, and its first marker behind them."""

    def __init__(self) -> None:
        self.left = 5

    @action(when=lambda self: self.left > 0)
    def send(self) -> Sends:
        self.left -= 1
        return {"b": self.left}


class Adding(Process):
    def __init__(self) -> None:
        self.total = 0

    def receive(self, sender: str, message: int) -> None:
        self.total += message


class Swapping(queue.SimpleQueue):  # type: ignore[type-arg]
    """Gives the second item before the first."""

    held: Any = None

    def put(self, item: Any, *_: Any) -> None:
        if self.held is None and getattr(item, "number", None) == 1:
            self.held = item
        else:
            super().put(item)
            if self.held is not None:
                super().put(self.held)


def test_a_transport_that_is_not_fifo_is_found_out_and_ends_the_run() -> None:
    graph = ProcessGraph().add("a", Many()).add("b", Adding()).channel("a", "b")
    running = Threads(graph, inbox=Swapping)
    running.start()
    with pytest.raises(ConfigurationError, match="channel a -> b is not FIFO: expected its item 1, got 2"):
        running.wait_until_quiet(SECONDS)
    with pytest.raises(ConfigurationError, match="not FIFO"):
        running.stop()


def test_a_run_is_over_when_it_is_stopped() -> None:
    running = Threads(game())
    with pytest.raises(ConfigurationError, match="the run is not active"):
        running.begin("a")
    with running:
        state = running.snapshot("a", timeout=SECONDS)
    running.stop()
    assert running.wait(0) == state
    with pytest.raises(ConfigurationError, match="the run is not active"):
        running.snapshot("a", timeout=SECONDS)
    with pytest.raises(ConfigurationError, match="started already"):
        running.start()


def test_a_snapshot_by_nobody_known_or_that_nobody_began_is_refused() -> None:
    with Threads(to(Adding())) as running:
        with pytest.raises(GraphError, match="there is no process 'c'"):
            running.snapshot("c", timeout=SECONDS)
        with pytest.raises(GraphError, match="never reaches a"):
            running.snapshot("b", timeout=SECONDS)
        with pytest.raises(GraphError, match="there is no snapshot 9"):
            running.wait(9, SECONDS)
        assert running.snapshot(timeout=SECONDS).channels.keys() == {Channel("a", "b")}
