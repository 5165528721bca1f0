"""Real threads: checkpoints that are triggered while the rows that a restore put back are still queued.

A gate holds the first restored row inside an operator, so the test knows that all others are queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.protocol.events import Barrier, Element
from dataflow.runtime.task.channel import Channel
from tests.seeds import each_once

ROWS, CREDIT = 40, 4
QUEUED = 2 * CREDIT
"""Rows in the two channels before the gate when both are full."""
ALL = 1_000
"""More permits than there are rows."""


class Gate:
    """A function for ``map_batches`` that takes a permit for each batch, and may break."""

    def __init__(self) -> None:
        self.reached, self.permits = Semaphore(0), Semaphore(0)
        self.broken = False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.reached.release()
        assert self.permits.acquire(timeout=60), "no permit within a minute"
        if self.broken:
            raise RuntimeError("the gate broke")
        return batch


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Semaphore]:
    """Wait with ``take(put[...])`` for what is put into the channels before the gate: ``rows`` and ``barriers``."""
    counts, original = {"rows": Semaphore(0), "barriers": Semaphore(0)}, Channel.put

    def counted(channel: Channel, element: Element) -> None:
        original(channel, element)
        if channel.name.endswith("-> gate[0]"):
            counts["barriers" if isinstance(element, Barrier) else "rows"].release()

    monkeypatch.setattr(Channel, "put", counted)
    return counts


def take(semaphore: Semaphore, times: int = 1) -> None:
    for _ in range(times):
        assert semaphore.acquire(timeout=60), "it did not happen within a minute"


def pipeline(gate: Gate) -> flow.Pipeline:
    table = pa.table({"x": range(ROWS)})
    with flow.Pipeline("gated") as p:
        rows = p.source(op.from_arrow(table, batch_rows=1, splits=2), name="in", parallelism=2).rebalance()
        rows.map_batches(gate, name="gate", parallelism=1).sink(op.collect(), name="out", parallelism=1)
    return p


def start(gate: Gate, store: flow.MemoryStore, mode: str, restore: object, credit: int) -> Any:
    patience = "1us" if mode == "aligned-timeout" else None
    checkpoint = flow.Checkpointing(
        store, every="1h", mode=mode, alignment_timeout=patience, keep=20, duplicates="rows"
    )
    return pipeline(gate).start(checkpoint=checkpoint, restore=restore, channel_credit=credit)


def checkpointed(job: Any, gate: Gate, barriers: Semaphore, permits: int) -> int:
    """Request a checkpoint, and give permits when its barriers are behind the queued rows; return its id."""
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(job.checkpoint, timeout="60s")
        take(barriers, 2)
        gate.permits.release(permits)
        return int(number.result())


def broken_off(job: Any, gate: Gate) -> None:
    """Let the job fail at the next row."""
    gate.broken = True
    gate.permits.release(ALL)
    with pytest.raises(RuntimeError, match="the gate broke"):
        job.wait()


def in_flight(report: flow.RestoreReport) -> list[int]:
    batches: Sequence[Any] = [getattr(e, "rows", None) for state in report.in_flight for e in state.elements]
    return [x for batch in batches if batch is not None for x in batch["x"].to_pylist()]


@pytest.mark.parametrize(
    ("last", "taken"),
    each_once(
        ["aligned", "unaligned", "unaligned-persisted", "aligned-timeout"], ["unaligned-persisted", "aligned-timeout"]
    ),
)
def test_a_checkpoint_of_restored_rows_that_are_queued_is_whole(
    taken: str, last: str, put: Mapping[str, Semaphore]
) -> None:
    store, gate = flow.MemoryStore(), Gate()
    with start(gate, store, taken, "never", CREDIT) as job:
        take(gate.reached)
        take(put["rows"], QUEUED + 1)  # the channels are full, and one row is in the operator
        number = checkpointed(job, gate, put["barriers"], permits=1)
        broken_off(job, gate)
    queued: set[int] = set()
    for generation in range(3):  # the channels hold more rows than their credit, so the source adds none
        gate = Gate()
        with start(gate, store, taken, "latest", credit=1) as job:
            assert job.restore_report.checkpoint == number
            before, queued = queued, set(in_flight(job.restore_report))
            assert len(queued) == QUEUED - generation
            assert not generation or queued < before
            take(gate.reached)
            number = checkpointed(job, gate, put["barriers"], permits=1)
            broken_off(job, gate)
    gate = Gate()
    with start(gate, store, last, "latest", credit=1) as job:
        take(gate.reached)
        overtakes = last in ("unaligned-persisted", "aligned-timeout")
        number = checkpointed(job, gate, put["barriers"], permits=1 if overtakes else ALL)
        gate.permits.release(ALL)
        assert sorted(job.wait().table("out")["x"].to_pylist()) == list(range(ROWS))
    assert bool(store.manifest(number).summary["in_flight_rows"]) == overtakes
    gate = Gate()
    gate.permits.release(ALL)
    with start(gate, store, last, number, credit=1) as job:
        report, result = job.restore_report, job.wait()
    again = report.rows("out")
    assert sorted(result.table("out")["x"].to_pylist()) == sorted(
        [*range(ROWS), *(again["x"].to_pylist() if again is not None else [])]
    )
    assert again is None or last == "unaligned"
