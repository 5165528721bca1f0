"""What channel state is made of, and what it means to be promoted: handler, gate and channels together."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dataflow.protocol.actions import Action, Complete, TakeSnapshot
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Idle, Watermark
from dataflow.protocol.handler import Received
from dataflow.protocol.overtaking import Overtaker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, RoundRobin

X, Y = Data(("x",)), Data(("y",))


def unaligned(n: int) -> Barrier:
    return Barrier(n, unaligned=True)


def gate_of(handler: Overtaker, *channels: Channel) -> InputGate:
    return InputGate(channels, handler, RoundRobin())


def fill(elements: list[Element], *, overtakable: bool = True) -> Channel:
    channel = Channel(9, "c", overtakable=overtakable)
    for element in elements:
        channel.put(element)
    return channel


def drain(gate: InputGate, now: int = 0) -> list[Action]:
    actions: list[Action] = []
    while (taken := gate.poll(now)) is not None:
        actions += taken.actions
    return actions


def test_watermarks_idleness_and_the_end_are_channel_state_in_their_order() -> None:
    received: list[Element] = [Watermark(3), X, Idle(), Y, Watermark(5), EndOfInput()]
    gate = gate_of(Overtaker(2), fill([unaligned(1)]), fill(received))
    assert drain(gate) == [TakeSnapshot(unaligned(1)), Complete(1, in_flight={1: tuple(received)})]


def test_what_a_barrier_overtook_is_channel_state_behind_what_was_received() -> None:
    a, b = fill([unaligned(1)]), fill([Watermark(3), X])
    gate = gate_of(Overtaker(2), a, b)
    taken = drain(gate)
    for element in (Y, Idle(), Watermark(4), unaligned(1), Data(("z",))):
        b.put(element)
    assert [*taken, *drain(gate)][-1] == Complete(1, in_flight={1: (Watermark(3), X, Y, Idle(), Watermark(4))})


def test_barriers_are_no_channel_state() -> None:
    b = fill([X, Barrier(1), Y, unaligned(2)])
    gate = gate_of(Overtaker(2, timeout=100), fill([unaligned(2)]), b)
    assert Complete(2, in_flight={1: (X, Y)}) in drain(gate)


def test_elements_of_a_channel_whose_barrier_came_are_not_recorded() -> None:
    gate = gate_of(Overtaker(2), fill([unaligned(1), X, Watermark(1), Idle()]), fill([Y, unaligned(1), X]))
    assert drain(gate) == [TakeSnapshot(unaligned(1)), Complete(1, in_flight={1: (Y,)})]


def test_the_end_of_a_channel_whose_barrier_came_is_not_recorded() -> None:
    a, b = fill([unaligned(1), EndOfInput()]), fill([Y])
    gate = gate_of(Overtaker(2), a, b)
    taken = drain(gate)
    b.put(unaligned(1))
    assert [*taken, *drain(gate)] == [TakeSnapshot(unaligned(1)), Complete(1, in_flight={1: (Y,)})]


# --- what is promoted keeps its place --------------------------------------------------------------------------------


def test_channel_state_is_in_the_order_of_the_channels() -> None:
    handler = Overtaker(3)
    handler.barrier(0, unaligned(1), 0)
    handler.barrier(2, unaligned(1), 0, [X])
    done = handler.barrier(1, unaligned(1), 0, [Y])[0]
    assert isinstance(done, Complete)
    assert list(done.in_flight.items()) == [(1, (Y,)), (2, (X,))]


def test_a_promoted_barrier_is_taken_between_the_urgent_elements_around_it() -> None:
    channel = fill([X, Cancel(1), (second := Barrier(2)), Y, Cancel(3), X, unaligned(4), Y])
    channel.promote(second)
    taken = [channel.take_urgent() for _ in range(4)]
    assert taken == [(Cancel(1), (X,)), (second, (X,)), (Cancel(3), (X, Y)), (unaligned(4), (X, Y, X))]


def test_what_was_taken_before_is_not_overtaken_by_a_promoted_barrier() -> None:
    channel = fill([X, Idle(), X, (barrier := Barrier(1)), Y, Cancel(2)])
    taken = [channel.take(), channel.take()]
    channel.promote(barrier)
    assert [*taken, channel.take_urgent(), channel.take_urgent()] == [X, Idle(), (barrier, (X,)), (Cancel(2), (X, Y))]


def test_what_is_put_behind_a_promoted_barrier_is_counted_right() -> None:
    channel = fill([X, (barrier := Barrier(1)), Y])
    channel.promote(barrier)
    channel.put(unaligned(2))
    channel.put(X)
    assert [channel.take_urgent(), channel.take_urgent()] == [(barrier, (X,)), (unaligned(2), (X, Y))]
    assert [channel.take() for _ in range(3)] == [X, Y, X]


def test_a_barrier_is_promoted_by_its_place_not_by_its_looks() -> None:
    channel = fill([X, Barrier(1), Y, (second := Barrier(1))])
    channel.promote(second)
    assert channel.take_urgent() == (second, (X, Barrier(1), Y))
    assert list(channel.barriers) == [Barrier(1)]


def test_a_gate_is_due_when_the_first_queued_barrier_will_be_late() -> None:
    late, later = fill([X, Barrier(1, triggered_at=50)]), fill([X, Barrier(2, triggered_at=60)])
    gate = gate_of(Overtaker(3, timeout=100), later, late, fill([Barrier(1)], overtakable=False))
    assert gate.deadline == 151


def test_a_task_without_credit_takes_a_barrier_that_became_late() -> None:
    barrier = Barrier(1)
    gate = gate_of(Overtaker(2, timeout=100), fill([X, barrier]), fill([]))
    assert gate.poll_control(100) is None
    assert gate.poll_control(101) == (0, barrier, [TakeSnapshot(unaligned(1))])
    assert gate.poll_control(101) is None


# --- any order of arrival --------------------------------------------------------------------------------------------


class Listener(Overtaker):
    """An overtaker that remembers what each channel delivered."""

    __slots__ = ("heard",)

    def __init__(self, channels: int, timeout: int | None) -> None:
        super().__init__(channels, timeout=timeout)
        self.heard: list[list[Element]] = [[] for _ in range(channels)]

    def element(self, channel: int, element: Received) -> Received:
        self.heard[channel].append(element)
        return super().element(channel, element)

    def end(self, channel: int, now: int) -> list[Action]:
        self.heard[channel].append(EndOfInput())
        return super().end(channel, now)


def merged(elements: Sequence[Element]) -> list[Element]:
    """``elements`` without a watermark that another one follows at once: a channel may have merged them."""
    watermarks = [isinstance(element, Watermark) for element in elements]
    return [one for i, one in enumerate(elements) if watermarks[i : i + 2] != [True, True]]


class Feed:
    """What was put on a channel, and how much of it stood before each barrier."""

    def __init__(self) -> None:
        self.channel = Channel(99, "c", overtakable=True)
        self.elements: list[Element] = []
        self.marks: dict[int, int] = {}
        self.newest = 0

    def put(self, element: Element) -> None:
        self.channel.put(element)
        if isinstance(element, Barrier):
            self.newest = element.checkpoint
            self.marks[self.newest] = len(self.elements)
        else:
            self.elements.append(element)


@given(st.integers(min_value=0))
def test_what_was_heard_and_channel_state_are_all_that_stood_before_the_barrier(seed: int) -> None:
    rng = random.Random(seed)
    feeds = [Feed() for _ in range(rng.randint(1, 3))]
    handler = Listener(len(feeds), rng.choice((None, 15)))
    gate = gate_of(handler, *(feed.channel for feed in feeds))
    in_time = rng.choice((0, 0.5, 1))
    before: dict[int, list[list[Element]]] = {}
    for now in range(80):
        feed = rng.choice(feeds)
        actions: Sequence[Action] = ()
        match rng.choice(("row", "time", "time", "idle", "barrier", "end", "tick", "poll", "poll", "poll", "poll")):
            case "tick":
                actions = gate.tick(now)
            case "poll":
                taken = gate.poll(now)
                actions = taken.actions if taken else ()
            case "end" if rng.random() < 0.1 and not feed.channel.ended:
                feed.put(EndOfInput())
            case "row" if not feed.channel.ended:
                feed.put(Data((now,)))
            case "time" if not feed.channel.ended:
                feed.put(Watermark(now))
            case "idle" if not feed.channel.ended:
                feed.put(Idle())
            case "barrier" if not feed.channel.ended:
                lags = feed.newest < max(other.newest for other in feeds)
                n = max(other.newest for other in feeds) if lags else feed.newest + 1
                feed.put(Barrier(n, triggered_at=now, unaligned=rng.random() >= in_time))
            case _:
                pass
        for action in actions:
            match action:
                case TakeSnapshot(barrier=barrier):
                    before[barrier.checkpoint] = [list(heard) for heard in handler.heard]
                case Complete(checkpoint=n, in_flight=in_flight):
                    for index, one in enumerate(feeds):
                        seen = [*before[n][index], *in_flight.get(index, ())]
                        assert merged(seen) == merged(one.elements[: one.marks.get(n)]), f"seed {seed}, checkpoint {n}"
                case _:
                    pass
