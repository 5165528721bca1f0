"""The marker rule of one process in every order of what can come: alone, beside other snapshots, and told twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dataflow.protocol.actions import Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.events import Barrier, Data
from dataflow.protocol.markers import Markers
from dataflow.protocol.overtaking import Overtaker

Item = Data | Barrier
Script = list[list[Item]]
"""What comes on each channel, first in first out."""


def data(*names: str) -> list[Data]:
    return [Data([name]) for name in names]


def marker(snapshot: int) -> Barrier:
    return Barrier(snapshot, unaligned=True)


def orders(lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every order in which channels of so many items can be served."""
    if not any(lengths):
        yield ()
    for channel, length in enumerate(lengths):
        if length:
            for rest in orders((*lengths[:channel], length - 1, *lengths[channel + 1 :])):
                yield channel, *rest


def runs(script: Script) -> Iterator[list[tuple[int, Item]]]:
    for order in orders(tuple(map(len, script))):
        queues = [iter(items) for items in script]
        yield [(channel, next(queues[channel])) for channel in order]


def told(markers: Markers, run: Sequence[tuple[int, Item]]) -> list[list[Action]]:
    """What is decided, one item after the other; the invariants hold behind each."""
    decided: list[list[Action]] = []
    for channel, item in run:
        if isinstance(item, Barrier):
            decided.append(markers.barrier(channel, item))
        else:
            assert markers.element(channel, item) is item
            decided.append([])
        markers.validate()
    return decided


def test_one_snapshot_is_what_barriers_record_that_overtake_nothing() -> None:
    script: Script = [[*data(f"a{i}"), marker(1), *data(f"b{i}")] for i in range(3)]
    found = list(runs(script))
    for run in found:
        overtaker = Overtaker(3)
        expected: list[list[Action]] = []
        for channel, item in run:
            if isinstance(item, Barrier):
                expected.append(overtaker.barrier(channel, item, now=0))
            else:
                overtaker.element(channel, item)
                expected.append([])
        assert told(Markers(3), run) == expected
    assert len(found) == 1_680


@pytest.mark.parametrize("second", [(1, 2), (2, 1)], ids=["in one order", "crossing"])
def test_snapshots_under_way_together_are_each_what_they_are_alone(second: tuple[int, int]) -> None:
    script: Script = [
        [*data("a"), marker(1), *data("b"), marker(2), *data("c")],
        [*data("d"), marker(second[0]), *data("e"), marker(second[1]), *data("f")],
    ]
    orders_of_both = list(runs(script))
    for run in orders_of_both:
        alone = [
            told(Markers(2), [each for each in run if not isinstance(each[1], Barrier) or each[1].checkpoint == n])
            for n in (1, 2)
        ]
        together = told(Markers(2), run)
        for n, decided in zip((1, 2), alone, strict=True):
            found = [actions for (_, item), actions in zip(run, together, strict=True)
                     if not isinstance(item, Barrier) or item.checkpoint == n]  # fmt: skip
            assert found == decided
    assert len(orders_of_both) == 252


def test_a_process_that_begins_by_itself_waits_for_every_channel_whenever_it_does() -> None:
    script: Script = [[*data("a", "b"), marker(1)], [*data("c"), marker(1), *data("d")]]
    for run in runs(script):
        for i in range(run.index((0, marker(1)))):
            if (1, marker(1)) in run[:i]:
                continue
            markers = Markers(2)
            told(markers, run[:i])
            assert markers.begin(1) == [TakeSnapshot(Barrier(1))]
            assert markers.waiting == {1: {0, 1}}
            (complete,) = [action for actions in told(markers, run[i:]) for action in actions]
            assert isinstance(complete, Complete)
            behind = {channel: [item for c, item in run[i:] if c == channel] for channel in (0, 1)}
            expected = {channel: tuple(items[: items.index(marker(1))]) for channel, items in behind.items()}
            assert complete.in_flight == {channel: items for channel, items in expected.items() if items}


def test_what_is_left_ahead_of_a_marker_is_in_its_channel_and_what_was_received_is_not() -> None:
    markers, (x, y, z) = Markers(2), data("x", "y", "z")
    markers.element(0, x)
    assert markers.barrier(0, marker(1), [y]) == [TakeSnapshot(marker(1))]
    markers.element(1, z)
    assert markers.barrier(1, marker(1), [x]) == [Complete(1, in_flight={0: (y,), 1: (z, x)})]


def test_a_snapshot_is_begun_once_and_complete_once_whatever_is_repeated() -> None:
    markers = Markers(2)
    assert [markers.knows(1), markers.begin(1), markers.knows(1)] == [False, [TakeSnapshot(Barrier(1))], True]
    assert [markers.begin(1), markers.barrier(0, marker(1)), markers.barrier(0, marker(1))] == [
        [Ignore(1)], [], [Ignore(1)]
    ]  # fmt: skip
    assert markers.barrier(1, marker(1)) == [Complete(1)]
    assert [markers.begin(1), markers.barrier(0, marker(1)), markers.knows(1)] == [[Ignore(1)], [Ignore(1)], True]
    assert markers.waiting == {}


def test_a_process_that_nobody_writes_to_is_complete_when_it_begins() -> None:
    assert Markers(0).begin(1) == [TakeSnapshot(Barrier(1)), Complete(1)]


def test_a_copy_goes_on_by_itself() -> None:
    markers, (x,) = Markers(2), data("x")
    markers.barrier(0, marker(1))
    other = markers.copy()
    other.element(1, x)
    assert other.barrier(1, marker(1)) == [Complete(1, in_flight={1: (x,)})]
    assert markers.recorded(1) == {}
    assert markers.waiting == {1: {1}}
    assert markers.barrier(1, marker(1)) == [Complete(1)]


def test_what_a_copy_has_completed_is_news_to_the_other() -> None:
    markers = Markers(0)
    markers.copy().begin(1)
    assert not markers.knows(1)
