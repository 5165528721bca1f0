"""A gate whose handler lets barriers overtake: when they do, and what starts where no barrier can come in."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow.protocol.actions import Action, Complete, TakeSnapshot
from dataflow.protocol.events import Barrier, Data, Element, EndOfInput
from dataflow.protocol.overtaking import Overtaker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, RoundRobin

X, Y = Data("x"), Data("y")


def gate(*queued: list[Element], timeout: int | None = None, overtakable: str = "ab") -> InputGate:
    """A gate over the channels a, b with what they hold."""
    channels = []
    for name, elements in zip("ab", queued, strict=True):
        channels.append(Channel(8, name, overtakable=name in overtakable))
        for element in elements:
            channels[-1].put(element)
    edges = {i for i, channel in enumerate(channels) if not channel.overtakable}
    return InputGate(channels, Overtaker(len(channels), aligned_edges=edges, timeout=timeout), RoundRobin())


def unaligned(n: int) -> Barrier:
    return Barrier(n, unaligned=True)


def polled(polled_gate: InputGate, now: int) -> Sequence[Action]:
    taken = polled_gate.poll(now)
    assert taken is not None
    return taken.actions


def test_a_start_overtakes_all_that_is_queued() -> None:
    actions = gate([X], [Y]).start(unaligned(1), 0)
    assert actions == [TakeSnapshot(unaligned(1)), Complete(1, in_flight={0: (X,), 1: (Y,)})]


def test_a_start_waits_for_its_time() -> None:
    waiting = gate([X], [Y], timeout=100)
    assert waiting.start(Barrier(1, triggered_at=7), 107) is None
    assert waiting.start(Barrier(1, triggered_at=7), 108) == [
        TakeSnapshot(Barrier(1, triggered_at=7, unaligned=True)),
        Complete(1, in_flight={0: (X,), 1: (Y,)}),
    ]


def test_a_start_waits_for_barriers_that_overtake_as_well() -> None:
    behind = gate([X, unaligned(1)], [Y, unaligned(1)])
    assert behind.start(unaligned(2), 0) is None
    assert [type(action) for _ in "ab" for action in polled(behind, 0)] == [TakeSnapshot, Complete]
    assert behind.start(unaligned(2), 0) == [TakeSnapshot(unaligned(2)), Complete(2, in_flight={0: (X,), 1: (Y,)})]


def test_a_start_waits_for_barriers_that_are_late_as_well() -> None:
    behind = gate([X, Barrier(1)], [Y, Barrier(1)], timeout=100)
    assert behind.start(Barrier(2), 101) is None
    assert [type(action) for _ in "ab" for action in polled(behind, 101)] == [TakeSnapshot, Complete]


def test_a_start_without_a_timeout_waits_however_late_it_is() -> None:
    assert gate([X], [Y]).start(Barrier(1), 10**12) is None


def test_a_start_waits_for_channels_that_cannot_be_overtaken() -> None:
    for overtakable in ("a", "b", ""):
        assert gate([X], [Y], overtakable=overtakable).start(unaligned(1), 0) is None


def test_a_start_leaves_channels_out_that_ended_whether_they_could_be_overtaken_or_not() -> None:
    for overtakable in ("ab", "b"):
        ended = gate([EndOfInput()], [Y], overtakable=overtakable)
        assert ended.poll_control(0) is None
        ended.poll(0)
        actions = ended.start(unaligned(1), 0)
        assert actions == [TakeSnapshot(unaligned(1)), Complete(1, in_flight={1: (Y,)})]


def test_a_barrier_that_became_late_is_control_that_needs_no_room() -> None:
    late = gate([X, Barrier(1)], [Y], timeout=100)
    assert late.poll_control(100) is None
    taken = late.poll_control(101)
    assert taken is not None
    assert taken.element == Barrier(1)
    assert taken.actions == [TakeSnapshot(unaligned(1))]


def test_the_deadline_is_that_of_the_checkpoint_under_way() -> None:
    aligning = gate([Barrier(1, triggered_at=7)], [], timeout=100)
    aligning.poll(10)
    assert aligning.deadline == 108


def test_a_queued_barrier_that_is_late_sooner_comes_first() -> None:
    aligning = gate([Barrier(1, triggered_at=7)], [X, Barrier(2, triggered_at=3)], timeout=100)
    aligning.poll(10)
    assert aligning.deadline == 104


def test_a_snapshot_that_a_barrier_brings_ends_the_wait_for_what_it_subsumes_too() -> None:
    subsuming = gate([Barrier(1)], [])
    subsuming.poll(10)
    assert subsuming.aligning
    subsuming.channels[1].put(unaligned(2))
    subsuming.poll(25)
    assert (subsuming.aligning, subsuming.alignment.duration) == (False, 0)
