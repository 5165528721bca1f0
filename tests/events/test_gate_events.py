"""What a gate records of barriers: how they arrived, which channels they blocked, and why these were let go."""

from __future__ import annotations

import pyarrow as pa

from dataflow.events.event_rows import Event
from dataflow.events.recorder import EventWriter
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, BarrierKind, Cancel, Data, Element, EndOfInput
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, RoundRobin

ROWS = Data(pa.record_batch({"x": [1, 2, 3]}))


class Rig:
    """A gate over channels named a, b, ... and the events that it recorded."""

    def __init__(self, handler: BarrierHandler, overtakable: str = "", channels: str = "ab") -> None:
        self.channels = {name: Channel(8, name, overtakable=name in overtakable) for name in channels}
        self.events = EventWriter("t[0]")
        self.gate = InputGate(list(self.channels.values()), handler, RoundRobin(), events=self.events)

    def feed(self, now: int, *arrivals: tuple[str, Element]) -> Rig:
        """Put elements, then poll until there is nothing left to take."""
        for name, element in arrivals:
            self.channels[name].put(element)
        while self.gate.poll(now) is not None:
            pass
        return self

    def recorded(self) -> list[Event]:
        return self.events.take()[0]

    def told(self) -> list[str]:
        return [told(event) for event in self.recorded()]


def told(event: Event) -> str:
    """The event in a line."""
    words = [str(event.time), event.kind.label, f"{event.channel} by {event.checkpoint}"]
    words += [f"after {event.duration}"] * (event.duration is not None) + [event.detail] * (event.detail is not None)
    return " ".join(words)


def aligner(channels: int = 2) -> Aligner:
    return Aligner(channels, end_of_input=EndOfInputPolicy.ALIGN)


def overtaker(timeout: int | None = None, aligned_edges: frozenset[int] = frozenset()) -> Overtaker:
    return Overtaker(2, aligned_edges=aligned_edges, timeout=timeout)


def test_a_channel_is_blocked_from_its_barrier_to_the_last_one() -> None:
    rig = Rig(aligner()).feed(5, ("a", Barrier(1))).feed(9, ("b", Barrier(1)))
    assert rig.told() == [
        "5 arrived a by 1 in order",
        "5 blocked a by 1",
        "9 arrived b by 1 in order",
        "9 unblocked a by 1 after 4 complete",
    ]


def test_the_end_of_an_input_ends_the_wait() -> None:
    rig = Rig(aligner()).feed(5, ("a", Barrier(1))).feed(9, ("b", EndOfInput()))
    assert rig.told()[-1] == "9 unblocked a by 1 after 4 ended"


def test_an_abort_and_a_cancel_end_the_wait() -> None:
    rig = Rig(aligner()).feed(5, ("a", Barrier(1)))
    rig.gate.abort(1, AbortReason.EXPIRED, 8)
    assert rig.told()[-1] == "8 unblocked a by 1 after 3 aborted"
    assert Rig(aligner()).feed(5, ("a", Barrier(1))).feed(7, ("b", Cancel(1))).told()[-1] == (
        "7 unblocked a by 1 after 2 aborted"
    )


def test_a_higher_checkpoint_ends_the_wait_for_an_older_one_and_blocks_anew() -> None:
    rig = Rig(aligner(3), channels="abc").feed(5, ("a", Barrier(1))).feed(9, ("b", Barrier(2)))
    assert rig.told()[-3:] == [
        "9 arrived b by 2 in order",
        "9 unblocked a by 1 after 4 aborted",
        "9 blocked b by 2",
    ]


def test_a_barrier_on_a_blocked_channel_parts_its_blocked_time_by_checkpoint() -> None:
    rig = Rig(overtaker(aligned_edges=frozenset({1})), overtakable="a")
    rig.feed(5, ("a", Barrier(1, unaligned=True))).feed(9, ("a", Barrier(2, unaligned=True)))
    assert rig.told()[1:] == [
        "5 blocked a by 1",
        "9 arrived a by 2 in order",
        "9 unblocked a by 1 after 4 aborted",
        "9 blocked a by 2",
    ]


def test_the_timeout_ends_the_wait_without_the_other_barrier() -> None:
    rig = Rig(overtaker(timeout=10), overtakable="ab").feed(5, ("a", Barrier(1)))
    rig.gate.tick(11)
    assert rig.told()[-1] == "11 unblocked a by 1 after 6 timeout"


def test_a_barrier_that_timed_out_upstream_counts_as_the_timeout() -> None:
    rig = Rig(Overtaker(3, timeout=10), overtakable="abc", channels="abc").feed(5, ("a", Barrier(1)))
    rig.feed(9, ("b", Barrier(1, unaligned=True)))
    assert "9 unblocked a by 1 after 4 timeout" in rig.told()


def test_within_the_timeout_the_last_barrier_ends_the_wait() -> None:
    rig = Rig(overtaker(timeout=10), overtakable="ab").feed(5, ("a", Barrier(1))).feed(7, ("b", Barrier(1)))
    assert rig.told()[-1] == "7 unblocked a by 1 after 2 complete"


def test_a_savepoint_has_no_timeout() -> None:
    rig = Rig(overtaker(timeout=10), overtakable="ab").feed(5, ("a", Barrier(1, BarrierKind.SAVEPOINT)))
    rig.gate.tick(11)
    assert rig.told()[-1] == "5 blocked a by 1"


def test_a_channel_that_cannot_be_overtaken_is_blocked_until_the_barriers_of_its_like() -> None:
    rig = Rig(overtaker(aligned_edges=frozenset({0, 1})))
    rig.feed(5, ("a", Barrier(1, unaligned=True))).feed(9, ("b", Barrier(1, unaligned=True)))
    assert rig.told()[-1] == "9 unblocked a by 1 after 4 complete"


def test_an_arrival_has_the_rows_that_it_overtook() -> None:
    rig = Rig(overtaker(), overtakable="ab")
    rig.feed(5, ("a", ROWS), ("a", ROWS), ("a", Barrier(1, unaligned=True)))
    (arrived,) = rig.recorded()
    assert (told(arrived), arrived.rows, arrived.bytes) == ("5 arrived a by 1 overtaking", 6, 48)


def test_a_barrier_that_overtook_nothing_came_in_order() -> None:
    rig = Rig(overtaker(), overtakable="ab").feed(5, ("a", Barrier(1, unaligned=True)))
    assert [(event.detail, event.rows) for event in rig.recorded()] == [("in order", 0)]


def test_a_checkpoint_that_starts_at_the_gate_is_told_apart() -> None:
    rig = Rig(overtaker(), overtakable="ab")
    rig.channels["a"].put(ROWS)
    rig.gate.start(Barrier(1, unaligned=True), 5)
    assert [(told(event), event.rows) for event in rig.recorded()] == [
        ("5 arrived a by 1 started here", 3),
        ("5 arrived b by 1 started here", 0),
    ]


def test_in_mode_unaligned_nothing_is_blocked() -> None:
    rig = Rig(Tracker(2)).feed(5, ("a", Barrier(1))).feed(9, ("b", Barrier(1)))
    assert rig.told() == ["5 arrived a by 1 in order", "9 arrived b by 1 in order"]
