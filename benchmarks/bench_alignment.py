"""What alignment costs per batch at the gate: the real gate with the aligner and the tracker, beside a loop by hand.

Channels are filled with batches and barriers beforehand, in one thread; a round drains them all. The rivals are a
merge that knows no barriers, and a textbook aligner written as one loop over plain deques. All deliver the same rows;
the three that know barriers snapshot the same number of times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from dataflow.protocol.actions import TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, Data, Element
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, RoundRobin

CHANNELS, BATCHES_BETWEEN = 4, 8
Answer = tuple[int, int]
"""Rows delivered, snapshots taken."""


def script(barriers: int) -> list[list[Element]]:
    """Per channel: batches of one row, with barriers at different distances, so that channels wait for each other."""
    return [
        [
            element
            for n in range(1, barriers + 1)
            for element in (*(Data("x") for _ in range(BATCHES_BETWEEN + channel)), Barrier(n))
        ]
        for channel in range(CHANNELS)
    ]


def through_gate(handler: Callable[[], BarrierHandler]) -> Callable[[list[list[Element]]], Answer]:
    def drain(elements: list[list[Element]]) -> Answer:
        channels = [Channel(1 << 30, str(i)) for i in range(CHANNELS)]
        for channel, queued in zip(channels, elements, strict=True):
            channel.preload(queued)
        gate = InputGate(channels, handler(), RoundRobin())
        rows = snapshots = 0
        while (taken := gate.poll(0)) is not None:
            rows += isinstance(taken.element, Data)
            snapshots += sum(isinstance(action, TakeSnapshot) for action in taken.actions)
        return rows, snapshots

    return drain


def by_hand(elements: list[list[Element]]) -> Answer:
    queues = [deque(queued) for queued in elements]
    blocked: set[int] = set()
    rows = snapshots = 0
    while True:
        moved = False
        for i, q in enumerate(queues):
            if i in blocked or not q:
                continue
            moved = True
            if isinstance(q.popleft(), Barrier):
                blocked.add(i)
                if len(blocked) == len(queues):
                    snapshots += 1
                    blocked.clear()
            else:
                rows += 1
        if not moved:
            return rows, snapshots


@pytest.mark.benchmark(group="barrier alignment at the gate")
@pytest.mark.parametrize(
    "drain",
    [
        through_gate(lambda: Aligner(CHANNELS, end_of_input=EndOfInputPolicy.ALIGN)),
        through_gate(lambda: Tracker(CHANNELS)),
        by_hand,
    ],
    ids=["gate, aligner", "gate, tracker", "one loop over deques"],
)
def bench_drain(benchmark: Any, drain: Callable[[list[list[Element]]], Answer]) -> None:
    barriers = 3 if benchmark.disabled else 100  # so few that the fastest channel is never 50 ahead
    elements = script(barriers)
    rows = sum(isinstance(element, Data) for queued in elements for element in queued)
    assert benchmark(drain, elements) == (rows, barriers)
    benchmark.extra_info["batches"] = rows
    if not benchmark.disabled:
        benchmark.extra_info["us per batch, median"] = round(benchmark.stats.stats.median / rows * 1e6, 2)
