"""The recorder of one checkpoint alone, and what the handler that owns it keeps of its own."""

from __future__ import annotations

from dataflow.protocol.events import Barrier, Cancel, Data, Element, Watermark
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.recording import Recorder

X, Y = Data(("x",)), Data(("y",))


def test_barriers_and_cancels_that_were_overtaken_are_no_channel_state() -> None:
    recorder = Recorder([0])
    overtaken: list[Element] = [X, Barrier(1), Watermark(3), Cancel(2), Y]
    recorder.close(0, overtaken)
    assert recorder.in_flight == {0: (X, Watermark(3), Y)}


def test_nothing_is_recorded_of_a_channel_that_is_closed() -> None:
    recorder = Recorder([0, 1])
    recorder.close(0, [X])
    recorder.record(0, Y)
    assert (recorder.open, recorder.in_flight) == ({1}, {0: (X,)})


def test_channel_states_come_in_the_order_of_the_channels() -> None:
    recorder = Recorder([0, 1, 2])
    for channel in (2, 0, 1):
        recorder.close(channel, [X])
    assert list(recorder.in_flight) == [0, 1, 2]


def test_which_edges_are_aligned_is_settled_when_the_handler_is_made() -> None:
    edges = {1}
    handler = Overtaker(2, aligned_edges=edges)
    edges.clear()
    assert handler.barrier(0, Barrier(1, unaligned=True), 0) == []
