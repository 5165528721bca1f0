"""Where rows leave a task: credit, and who gets what."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dataflow.protocol.events import Barrier, Data, EndOfInput
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.outputs import BroadcastOutput, ForwardOutput, HashOutput, Output, RebalanceOutput


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def channels(*credits: int) -> list[Channel]:
    return [Channel(credit, str(i)) for i, credit in enumerate(credits)]


def queued(channel: Channel) -> list[int]:
    """The values queued in a channel; takes them."""
    found: list[int] = []
    while channel.head is not None:
        element = channel.take()
        if isinstance(element, Data):
            found += element.rows["x"].to_pylist()  # type: ignore[index]
    return found


def test_rebalance_goes_round_and_passes_a_full_channel_over() -> None:
    ends = channels(1, 3)
    output = RebalanceOutput(ends)
    for value in range(4):
        output.emit(batch(value), 0)
    assert [queued(end) for end in ends] == [[0], [1, 2, 3]]


def test_rebalance_goes_on_behind_the_channel_that_was_chosen() -> None:
    ends = channels(1, 3, 3)
    output = RebalanceOutput(ends)
    for value in range(6):
        output.emit(batch(value), 0)
    assert [queued(end) for end in ends] == [[0], [1, 3, 5], [2, 4]]


def test_rebalance_has_credit_while_one_channel_has() -> None:
    output = RebalanceOutput(channels(1, 2))
    had = [output.has_credit()]
    for value in range(3):
        output.emit(batch(value), 0)
        had.append(output.has_credit())
    assert had == [True, True, True, False]


def test_hash_and_broadcast_need_credit_on_every_channel() -> None:
    ends = channels(1, 2)
    broadcast, keyed = BroadcastOutput(ends), HashOutput(ends, ["x"], 128)
    assert broadcast.has_credit()
    broadcast.emit(batch(1), 0)
    assert not broadcast.has_credit()
    assert not keyed.has_credit()


def test_hash_sends_every_row_to_one_channel_and_the_same_key_to_the_same() -> None:
    ends = channels(9, 9, 9)
    output = HashOutput(ends, ["x"], 128)
    output.emit(batch(*range(50)), 0)
    first = [queued(end) for end in ends]
    output.emit(batch(*reversed(range(50))), 0)
    assert sorted(x for values in first for x in values) == list(range(50))
    assert [sorted(queued(end)) for end in ends] == first


def test_control_goes_to_every_channel_without_credit() -> None:
    ends = channels(1, 1)
    output = BroadcastOutput(ends)
    output.emit(batch(1), 0)
    output.send(Barrier(1))
    assert [len(end) for end in ends] == [2, 2]


def test_rebalance_goes_on_from_the_channel_it_chose() -> None:
    ends = channels(9, 9, 9)
    output = RebalanceOutput(ends)
    for value in range(5):
        output.emit(batch(value), 0)
    assert [queued(end) for end in ends] == [[0, 3], [1, 4], [2]]


def test_rebalance_looks_for_room_in_turn() -> None:
    ends = channels(1, 1, 9)
    output = RebalanceOutput(ends)
    ends[0].put(Data(batch(9)))
    for value in range(3):
        output.emit(batch(value), 0)
    assert [queued(end) for end in ends] == [[9], [0], [1, 2]]


def test_a_channel_without_a_row_of_the_batch_gets_nothing() -> None:
    ends = channels(9, 9, 9)
    HashOutput(ends, ["x"], 128).emit(batch(5), 0)
    assert sorted(len(end) for end in ends) == [0, 0, 1]


def outputs(*ends: Channel) -> list[Output]:
    return [
        ForwardOutput(ends[:1]),
        BroadcastOutput(ends),
        RebalanceOutput(ends),
        HashOutput(ends, ["x"], 128),
    ]


@pytest.mark.parametrize("kind", range(4))
def test_rows_keep_their_colour_and_are_counted(kind: int) -> None:
    ends = channels(9, 9)
    output = outputs(*ends)[kind]
    output.emit(batch(1, 2, 3), 7)
    taken = [end.take() for end in ends if end.head is not None]
    assert {element.epoch for element in taken if isinstance(element, Data)} == {7}
    assert output.rows == 3


def test_the_end_goes_once_to_every_channel() -> None:
    ends = channels(1, 1, 1)
    ends[1].preload([EndOfInput()])
    BroadcastOutput(ends).end()
    assert [(end.take(), len(end)) for end in ends] == [(EndOfInput(), 0)] * 3
