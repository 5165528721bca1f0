"""Handing batches from one thread to another: our channel beside the queues of the standard library.

The channel does more than they: credit, urgent elements, counters. Each round moves the same batches through a fresh
queue with the same bound, and asserts that all of them arrived in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dataflow.protocol.events import Data
from dataflow.runtime.task.channel import Channel

BOUND = 8


def through_channel(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    channel, got, room, some = Channel(BOUND, "bench"), [], threading.Event(), threading.Event()
    channel.on_put, channel.on_take = some.set, room.set

    def consume() -> None:
        while len(got) < len(batches):
            some.clear()
            while channel.head is not None:
                got.append(channel.take().rows)
            if len(got) < len(batches):
                some.wait()

    consumer = threading.Thread(target=consume)
    consumer.start()
    for batch in batches:
        while not channel.has_credit:
            room.clear()
            channel.awaited = True
            if not channel.has_credit:
                room.wait()
        channel.put(Data(batch))
    consumer.join()
    return got


def through_queue(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    bounded: queue.Queue[pa.RecordBatch] = queue.Queue(BOUND)
    got: list[pa.RecordBatch] = []
    consumer = threading.Thread(target=lambda: got.extend(bounded.get() for _ in batches))
    consumer.start()
    for batch in batches:
        bounded.put(batch)
    consumer.join()
    return got


def through_simple_queue(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """C code without a bound: what a hand-off can cost at the least."""
    unbounded: queue.SimpleQueue[pa.RecordBatch] = queue.SimpleQueue()
    got: list[pa.RecordBatch] = []
    consumer = threading.Thread(target=lambda: got.extend(unbounded.get() for _ in batches))
    consumer.start()
    for batch in batches:
        unbounded.put(batch)
    consumer.join()
    return got


@pytest.mark.benchmark(group="hand-off between two threads")
@pytest.mark.parametrize(
    "move", [through_channel, through_queue, through_simple_queue], ids=["Channel", "queue.Queue", "queue.SimpleQueue"]
)
def bench_hand_off(benchmark: Any, move: Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]]) -> None:
    n = 100 if benchmark.disabled else 5_000
    batches = [pa.record_batch({"i": [i]}) for i in range(n)]
    got = benchmark(move, batches)
    assert [batch["i"][0].as_py() for batch in got] == list(range(n))
    benchmark.extra_info["batches"] = n
    if not benchmark.disabled:
        benchmark.extra_info["us per batch, median"] = round(benchmark.stats.stats.median / n * 1e6, 2)
