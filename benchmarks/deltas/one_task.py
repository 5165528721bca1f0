"""The state of one task, of which checkpoints are taken while a known share of its keys has changed.

The aggregate, the chain of objects and the writer are those of a job; only the thread is missing that would write the
part beside the task, so ``checkpoint`` writes it before it returns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.memory import forget_peak, peak_rss
from dataflow.clock import ManualClock, SystemClock
from dataflow.contracts.operator import OperatorContext
from dataflow.expressions import col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import Acknowledged, Mailbox, TaskStats
from dataflow.runtime.task.part_writer import PartWriter
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.services import Services
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import PartHandle
from operators.aggregation.aggregate import AggregateOperator

__all__ = ["OneTask", "Taken"]

TASK, OPERATOR = "totals[0]", "totals"
SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
OUTPUT = pa.schema({"key": pa.int64(), "n": pa.int64(), "total": pa.int64(), "top": pa.int64()})
AGGREGATIONS = [count().alias("n"), col("value").sum().alias("total"), col("value").max().alias("top")]
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Taken:
    """A checkpoint: bytes of its objects, seconds, and bytes of memory.

    ``freeze`` is the snapshot step on the task's thread, ``freeze_cpu`` the thread's own part of it; ``write`` and
    ``write_cpu`` are the same of the writer, fsync included. ``above`` is the peak memory above that before the step.
    """

    size: int
    freeze: float
    freeze_cpu: float
    write: float
    write_cpu: float
    above: int


class _Dropping:
    """An Out that keeps nothing."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        pass


class OneTask:
    """An aggregate of ``keys`` int64 keys with count, sum and max, and a base checkpoint of it in ``folder``."""

    def __init__(self, keys: int, folder: Path) -> None:
        context = OperatorContext(
            OPERATOR, 0, 1, (SCHEMA,), OUTPUT, range(128), 128, None, ManualClock(), lambda due: None
        )
        self._operator = AggregateOperator(context, ["key"], AGGREGATIONS, Emit.FINAL)
        self._keys = np.random.default_rng(20_150_629).permutation(keys)
        self._store = DirectoryStore(folder)
        self._store.open()
        self._mailbox = Mailbox[Any]()
        self._clock = SystemClock()
        self._services = Services(self._store, lambda queue, job: job(), self._clock, self._mailbox, LIBRARY)
        self._last, self._base = 0, tuple[PartHandle, ...]()
        self._at = 0  # where the next changed keys begin
        self._process(self._keys)

    def close(self) -> None:
        """Release the directory."""
        self._store.close()

    def bases(self, repeats: int) -> Iterator[Taken]:
        """Yield checkpoints of all keys, each on its own."""
        for _ in range(repeats):
            yield self._checkpoint(since=0)

    def deltas(self, percent: float, repeats: int) -> Iterator[Taken]:
        """Yield checkpoints, each after ``percent`` of the keys have changed since the one before it."""
        self._checkpoint(since=0)
        changed = round(len(self._keys) * percent / 100)
        for _ in range(repeats):
            places = np.arange(self._at, self._at + changed) % len(self._keys)
            self._at += changed
            self._process(self._keys[places])
            yield self._checkpoint(since=self._last)

    def _process(self, keys: npt.NDArray[np.int64]) -> None:
        for start in range(0, len(keys), BATCH_ROWS):
            some = keys[start : start + BATCH_ROWS]
            batch = pa.record_batch({"key": some * 7919, "value": some % 1_000}, schema=SCHEMA)
            self._operator.process(0, batch, _Dropping())

    def _checkpoint(self, since: int) -> Taken:
        """Take a checkpoint: a base (``since`` 0), or what changed since checkpoint ``since``.

        A delta is listed after the first base alone, so that it never becomes a base because deltas have added up.
        """
        number, chain = self._last + 1, LogChain()
        if since:
            chain.add(since, {OPERATOR: self._operator.snapshot()}, self._base)
        pa.default_memory_pool().release_unused()
        before, started, cpu = forget_peak(), time.perf_counter(), time.thread_time()
        states, older = chain.freeze({OPERATOR: self._operator.snapshot()}, number, since)
        freeze, freeze_cpu = time.perf_counter() - started, time.thread_time() - cpu
        assert bool(older) == bool(since), f"checkpoint {number} since {since} builds on {older}"
        writer = PartWriter(TASK, self._services, chain)
        writer.write(number, TaskState(TASK, operators=states, log_before=older), TaskStats())
        above = peak_rss() - before
        acknowledged = self._mailbox.take()
        assert isinstance(acknowledged, Acknowledged), acknowledged
        self._last = number
        own = tuple(part for part in acknowledged.parts if not part.checkpoint)
        if self._base:
            self._store.discard(number, own)
        else:
            self._base = tuple(msgspec.structs.replace(part, checkpoint=number) for part in own[1:])
        stats = acknowledged.stats
        return Taken(stats.size, freeze, freeze_cpu, stats.write / 1e6, stats.write_cpu / 1e6, above)
