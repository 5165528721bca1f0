"""How long a task stands still for a snapshot of 10 million keys: at the barrier, and in the batches that follow.

Run with ``python -m pytest benchmarks/bench_snapshot.py --benchmark-enable -s``; what it prints at the end has all
figures of one run. The benchmark's own table times ``snapshot()``. Meanwhile-figures are ``process`` calls over random
keys, 64k rows each, while another thread writes the snapshot as a checkpoint part.

The rival copies all columns at the barrier, which is what most engines in one process do; the floor is one memcpy of as
many bytes to fresh memory. What is written must hold the rows of the barrier, all of them and no others.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as counter
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.expressions import col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.parts import TaskState
from operators.aggregation.aggregate import AggregateOperator

SCHEMA = pa.schema({"key": pa.int64(), "price": pa.int64()})
OUTPUT = pa.schema({"key": pa.int64(), "count": pa.int64(), "price_sum": pa.int64(), "price_max": pa.int64()})
AGGREGATIONS = [count(), col("price").sum(), col("price").max()]
Spent = tuple[float, float]
"""Milliseconds by the wall, and of the thread's own work: on a busy machine only the second is ours."""

WORDS = 5
"""Words a key: the key itself, the flags of its record, and three aggregates."""


class Dropping:
    """An Out that keeps nothing."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        pass


class State:
    """An operator that has seen ``keys`` keys, and random batches for it."""

    def __init__(self, keys: int, batch_rows: int) -> None:
        context = OperatorContext(
            "bench", 0, 1, (SCHEMA,), OUTPUT, range(128), 128, None, ManualClock(), lambda due: None
        )
        self.keys, self.rows, self.checkpoints = keys, 0, counter(1)
        self.operator = AggregateOperator(context, ["key"], AGGREGATIONS, Emit.FINAL)
        for start in range(0, keys, batch_rows):
            self.process(np.arange(start, min(start + batch_rows, keys)))
        rng = np.random.default_rng(1)
        self.batches = [rng.integers(0, keys, batch_rows) for _ in range(50)]

    def process(self, keys: np.ndarray[Any, np.dtype[np.int64]]) -> Spent:
        """Process a batch; answers what that took."""
        batch = pa.record_batch({"key": keys * 7919, "price": keys % 1000})
        self.rows += batch.num_rows
        before, cpu = time.perf_counter(), time.thread_time()
        self.operator.process(0, batch, Dropping())
        return 1e3 * (time.perf_counter() - before), 1e3 * (time.thread_time() - cpu)

    def undisturbed(self) -> list[Spent]:
        return [self.process(keys) for keys in self.batches]

    def while_written(self, snapshot: Snapshot) -> tuple[list[Spent], pa.Buffer]:
        """The times of ``process`` calls until another thread has written ``snapshot``, and what it wrote."""
        parts: list[pa.Buffer] = []
        state = TaskState("bench[0]", operators={"bench": snapshot})
        writer = threading.Thread(target=lambda: parts.append(state.encode("rows")))
        writer.start()
        times = []
        for keys in cycle(self.batches):
            times.append(self.process(keys))
            if not writer.is_alive():
                break
        writer.join()
        return times, parts[0]


def copy_on_write(state: State) -> Snapshot:
    checkpoint = next(state.checkpoints)
    states, _ = LogChain().freeze({"bench": state.operator.snapshot()}, checkpoint, since=0)
    return states["bench"]


def columns_copied(state: State) -> Snapshot:
    snapshot: Any = copy_on_write(state)
    parts = [{name: reader.read_all() for name, reader in part.items()} for part in snapshot.logs["state"]]
    return Snapshot(snapshot.values, logs={"state": parts})


@dataclass
class Figures:
    """Milliseconds of several rounds: each list has one entry a round."""

    snapshot: list[float]
    before: list[float]
    meanwhile: list[float]
    longest: list[float]
    most_work: list[float]

    def __str__(self) -> str:
        before, longest = float(np.median(self.before)), [round(value, 1) for value in self.longest]
        return (
            f"snapshot() at most {max(self.snapshot):.2f} ms\n"
            f"  process() {before:.1f} ms undisturbed, {float(np.median(self.meanwhile)):.1f} ms while it is written\n"
            f"  longest process() of each round {longest} ms, {max(longest) / before:.1f} times undisturbed;"
            f" of that the thread's own work at most {max(self.most_work):.1f} ms\n  "
        )


Report = dict[str, Figures | float]


def stall(figures: Figures | float) -> float:
    """The longest time in which no row moved: in ``snapshot()``, or in a batch behind it."""
    return max(*figures.snapshot, *figures.longest) if isinstance(figures, Figures) else figures


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    """What was measured, printed together at the end."""
    found: Report = {}
    yield found
    ours = stall(found["copy_on_write"]) if "copy_on_write" in found else None
    for name, figures in found.items():
        ratio = f"{stall(figures) / ours:.1f} times copy on write" if ours else ""
        print(
            f"\n{name}: {figures if isinstance(figures, Figures) else ''}longest stall {stall(figures):.1f} ms, {ratio}"
        )


@pytest.fixture(scope="module")
def states() -> dict[int, State]:
    """States by their number of keys, built when first asked for."""
    return {}


@pytest.fixture
def only_our_garbage() -> Iterator[None]:
    """Keep the collector from what pytest holds: 50 ms a time, in whatever batch it strikes. A job has no such heap."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.benchmark(group="snapshot of 10 million keys, count, sum, max")
@pytest.mark.usefixtures("only_our_garbage")
@pytest.mark.parametrize("take", [copy_on_write, columns_copied])
def bench_snapshot(benchmark: Any, take: Callable[[State], Snapshot], states: dict[int, State], report: Report) -> None:
    keys, batch_rows, rounds = (3_000, 500, 1) if benchmark.disabled else (10_000_000, 65_536, 5)
    if keys not in states:
        states[keys] = State(keys, batch_rows)
    state = states[keys]
    figures = Figures([], [], [], [], [])

    def timed() -> Snapshot:
        started = time.perf_counter()
        snapshot = take(state)
        figures.snapshot.append(1e3 * (time.perf_counter() - started))
        return snapshot

    for _ in range(rounds):
        figures.before.append(float(np.median([wall for wall, _ in state.undisturbed()])))
        rows, snapshot = state.rows, timed()
        times, part = state.while_written(snapshot)
        figures.meanwhile.append(float(np.median([wall for wall, _ in times])))
        figures.longest.append(max(wall for wall, _ in times))
        figures.most_work.append(max(work for _, work in times))
        held: Any = TaskState.decode(part).operators["bench"].logs["state"]
        records = held[0]["keys"]
        assert (records.num_rows, pc.sum(records["count()/count"]).as_py()) == (keys, rows)
        del records, part, snapshot, held
    benchmark.pedantic(timed, rounds=rounds)
    benchmark.extra_info.update(vars(figures))
    report[take.__name__] = figures


@pytest.mark.benchmark(group="snapshot of 10 million keys, count, sum, max")
def bench_plain_copy(benchmark: Any, report: Report) -> None:
    source = np.ones((3_000 if benchmark.disabled else 10_000_000) * WORDS, np.int64)
    copied = benchmark.pedantic(source.copy, rounds=1 if benchmark.disabled else 5)
    if benchmark.stats:
        report["plain copy"] = 1e3 * benchmark.stats.stats.max
    assert np.array_equal(copied, source)
