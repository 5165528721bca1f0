"""The state of keyed tasks in Spark, and operators that stay in a worker's memory, without Spark.

The random scripts repeat micro-batches after failures and change workers, as Spark does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointDamaged
from dataflow.protocol.events import Data, Watermark
from dataflow.runners.spark import keyed_tasks, stored_state
from dataflow.runners.spark.envelopes import REPORT, Content, Envelope
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.keyed_tasks import run
from dataflow.runners.spark.live_operators import LiveOperators, LiveTask
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.stored_state import StoredState
from dataflow.runners.spark.task_host import MicroBatchClock
from dataflow.runners.spark.user_errors import SerializedError
from dataflow.runtime.task.log_chain import LogChain
from tests.forcing import Force, counted_calls, forced

TASK = "totals[0]"


class Store:
    """The two variables of Spark's, as ``StoredState`` uses them; ``written`` counts bytes."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.content: dict[int, bytes] = {}
        self.written = 0

    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:  # noqa: N802
        return (self.content[key[0]],) if key[0] in self.content else None

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        self.content[key[0]] = value[0]
        self.written += len(value[0])

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        del self.content[key[0]]

    def copy(self) -> Store:
        copied = Store()
        copied.value, copied.content = self.value, dict(self.content)
        return copied

    def opened(self) -> StoredState:
        return StoredState(self, self, TASK)


def assignment_of(pipeline: flow.Pipeline, folder: Path, state_memory: int) -> Assignment:
    spark_plan = plan_for_spark(pipeline.graph, parallelism=1, key_groups=1).for_workers(with_sources=False)
    (folder / "job" / "working").mkdir(parents=True, exist_ok=True)
    return Assignment(spark_plan, JobDirectory(folder / "job"), "run", 100, state_memory)


def totals(folder: Path, state_memory: int = 1 << 30) -> Assignment:
    """Sums of ``x`` for each ``k``: each call of the task emits the sums that it changes."""
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"k": [0], "x": [0]})), name="in")
        rows.key_by("k").agg(col("x").sum().alias("sum"), emit="updates", name="totals").sink(op.collect(), name="out")
    return assignment_of(p, folder, state_memory)


def take(assignment: Assignment, store: Store, number: int, rows: Mapping[str, Any]) -> dict[int, int]:
    """Run the task through micro-batch ``number``; return the sums that it emitted."""
    vertex = next(vertex for vertex, _ in assignment.spark_plan.keyed_tasks if vertex.name == "totals")
    content = Content({0: [Data(pa.record_batch(rows), 0), Watermark(number)]})
    link = next(n for n, link in enumerate(assignment.spark_plan.plan.links) if link.target == "totals")
    envelope = Envelope(0, link, 0, number, content.encode())
    found: dict[int, int] = {}
    assignment.directory.write_time(number, number)
    for sent in run(assignment, vertex, 0, [envelope], store.opened()):
        for data in Content.decode(sent.payload).rows() if sent.link != REPORT else ():
            emitted: Any = data.rows
            found.update(zip(emitted["k"].to_pylist(), emitted["sum"].to_pylist(), strict=True))
    return found


@contextmanager
def on(worker: LiveOperators, piece: int = stored_state.PIECE) -> Iterator[None]:
    """Run a task on a worker, where state is stored in pieces of so many bytes."""
    with (
        forced(keyed_tasks, "LIVE", worker, calls=LiveOperators.take),
        forced(stored_state, "PIECE", piece, calls=StoredState._write),
    ):
        yield


def script(seed: int, folder: Path) -> int:
    """Some micro-batches, of which attempts fail, on some workers. Return how often operators went on from memory."""
    rng = random.Random(seed)
    workers = [LiveOperators() for _ in range(rng.randint(1, 3))]
    piece = rng.choice([300, 5_000, 1 << 20])
    assignment = totals(folder / f"{seed}", rng.choice([0, 200_000, 1 << 30]))
    store, sums, warm = Store(), dict[int, int](), 0
    for number in range(rng.randint(5, 25)):
        keys = [rng.randrange(rng.choice([3, 1_000])) for _ in range(rng.randint(1, 400))]
        rows = {"k": keys, "x": [rng.randrange(100) for _ in keys]}
        attempt = store.copy()
        while rng.random() < 0.2:  # an attempt whose state Spark drops
            with on(rng.choice(workers), piece):
                take(assignment, attempt, number, rows if rng.random() < 0.5 else {"k": [5], "x": [1_000_000]})
            attempt = store.copy()
        worker = rng.choice(workers)
        warm += any(live.token == attempt.opened().token for live in worker._tasks.values())
        with on(worker, piece):
            found = take(assignment, attempt, number, rows)
        store = attempt
        for key, value in zip(rows["k"], rows["x"], strict=True):
            sums[key] = sums.get(key, 0) + value
        assert found == {key: sums[key] for key in keys}
    state = store.opened().read()
    assert state is not None
    return warm


def test_sums_are_right_whichever_worker_takes_a_micro_batch_and_whatever_attempts_fail(
    tmp_path: Path,
) -> None:
    with counted_calls(StoredState._write, giving=lambda written: written[0] > 1) as in_pieces:
        warm = sum(script(seed, tmp_path) for seed in range(60))
    assert warm > 100
    assert in_pieces.total > 100


@pytest.mark.soak
def test_many_scripts_of_attempts_and_workers(tmp_path: Path) -> None:
    assert sum(script(seed, tmp_path) for seed in range(1_000, 4_000)) > 5_000


def test_a_micro_batch_writes_what_has_changed(tmp_path: Path) -> None:
    assignment, store = totals(tmp_path), Store()
    with on(LiveOperators()):
        take(assignment, store, 0, {"k": list(range(100_000)), "x": [1] * 100_000})
        whole, store.written = store.written, 0
        assert whole > 1_600_000
        take(assignment, store, 1, {"k": [7], "x": [1]})
    assert store.written < 5_000
    with on(LiveOperators()):  # another worker
        assert take(assignment, store, 2, {"k": [7, 8], "x": [1, 1]}) == {7: 3, 8: 2}
    assert store.written < 10_000


def test_deltas_become_a_base_and_what_was_before_it_is_removed(tmp_path: Path, force: Force) -> None:
    force(keyed_tasks, "LIVE", LiveOperators(), calls=LiveOperators.take)
    force(stored_state, "PIECE", 1_000, calls=StoredState._write, giving=lambda written: written[0] > 1)
    assignment, store = totals(tmp_path), Store()
    most = 0
    for number in range(40):
        take(assignment, store, number, {"k": list(range(300)), "x": [1] * 300})
        most = max(most, sum(len(piece) for number, piece in store.content.items() if number >= 0))
    assert most < 40_000  # 300 keys of 16 bytes, and at most as much again
    assert take(assignment, store, 40, {"k": [9], "x": [1]}) == {9: 41}


def test_a_missing_piece_is_named(tmp_path: Path) -> None:
    store = Store()
    with on(LiveOperators()):
        take(totals(tmp_path), store, 0, {"k": [1], "x": [1]})
    del store.content[0]
    with pytest.raises(CheckpointDamaged, match=r"Spark's state of totals\[0\] lacks piece 0"):
        store.opened().read()
    for damaged in (b'{"token": 7}', b"\xff", b"BARRIERF"):
        store.value = (damaged,)
        with pytest.raises(CheckpointDamaged, match="index of the state"):
            store.opened()


def kept_task() -> LiveTask:
    return LiveTask({}, LogChain(), "token", 40, MicroBatchClock(0))


def test_a_worker_keeps_the_tasks_that_it_ran_last() -> None:
    live = LiveOperators()
    for number in range(5):
        live.keep(
            (Path("job"), "run", f"{number}"), LiveTask({}, LogChain(), "token", 40, MicroBatchClock(0)), most=100
        )
    kept = [live.take((Path("job"), "run", f"{number}"), "token") is not None for number in range(5)]
    assert kept == [False, False, False, True, True]
    live.keep((Path("job"), "run", "0"), kept_task(), most=100)
    assert live.take((Path("job"), "run", "0"), "another") is None
    assert live.take((Path("job"), "run", "0"), "token") is None


class Noting(flow.KeyedProcess):
    """Counts the rows of a key."""

    seen = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        self.seen.set((self.seen.get() or 0) + rows.num_rows)
        ctx.emit({"k": key, "sum": self.seen.get()})


class Closing(Noting):
    """Has something to release."""

    def close(self) -> None:
        print("closed")


@pytest.mark.parametrize(("function", "stays"), [(Noting, True), (Closing, False)])
def test_a_function_stays_in_memory_unless_it_must_be_closed(
    function: Any,
    stays: bool,  # noqa: FBT001
    tmp_path: Path,
    force: Force,
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = LiveOperators()
    force(keyed_tasks, "LIVE", live, calls=LiveOperators.take)
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(pa.table({"k": [0], "x": [0]})), name="in").key_by("k")
        schema = pa.schema({"k": pa.int64(), "sum": pa.int64()})
        rows.process(function, schema=schema, name="totals").sink(op.collect(), name="out")
    assignment, store = assignment_of(p, tmp_path, 1 << 20), Store()
    assert take(assignment, store, 0, {"k": [1, 1], "x": [0, 0]}) == {1: 2}
    assert bool(live._tasks) is stays
    assert capsys.readouterr().out == ("" if stays else "closed\n")
    assert take(assignment, store, 1, {"k": [1], "x": [0]}) == {1: 3}


def test_a_task_that_fails_is_not_kept(tmp_path: Path, force: Force) -> None:
    live = LiveOperators()
    force(keyed_tasks, "LIVE", live, calls=LiveOperators.take)
    assignment, store = totals(tmp_path), Store()
    take(assignment, store, 0, {"k": [1], "x": [2**62]})
    assert live._tasks
    before = store.copy()
    with pytest.raises(SerializedError):
        take(assignment, store, 1, {"k": [1], "x": [2**62]})
    assert not live._tasks
    assert take(assignment, before, 1, {"k": [1], "x": [-1]}) == {1: 2**62 - 1}
