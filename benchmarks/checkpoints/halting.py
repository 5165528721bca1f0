"""Stop-the-world snapshots, as the ABS paper describes those of earlier systems.

All sources halt; rows in transit are processed to the end; every task copies and stores its state; when the whole
snapshot is durable, the sources resume. The engine has no such mode. It is built here from a gate in the sources and
from ``job.checkpoint()``: because no source emits rows after the halt, the barrier is the last item in every channel.
So each task copies its state when its rows in transit are processed, no channel is blocked while rows wait in it,
and no row is channel state.

This is the best case for such a snapshot. A task stores its state while tasks downstream still process rows, there is
no round of messages to agree that all channels are empty, and between two snapshots every source returns at least one
batch, also if a snapshot takes longer than the interval.
"""

from __future__ import annotations

import threading
import time

from benchmarks.checkpoints.gate import Gate
from dataflow.errors import CheckpointError
from dataflow.runners.local_job import LocalJob

__all__ = ["HaltingCheckpoints"]


class HaltingCheckpoints(threading.Thread):
    """Takes a stop-the-world checkpoint of ``job`` every ``interval`` seconds, from start to start, until ``end()``."""

    def __init__(self, job: LocalJob, gate: Gate, interval: float) -> None:
        super().__init__(name="stop-the-world", daemon=True)
        self._job = job
        self._gate = gate
        self._interval = interval
        self._over = threading.Event()
        self.halts: list[float] = []
        """Seconds from each halt until all sources moved again."""
        self.failures = 0

    def run(self) -> None:
        due = time.perf_counter() + self._interval
        while not self._over.wait(max(0.0, due - time.perf_counter())):
            started = time.perf_counter()
            self._gate.halt()
            try:
                self._job.checkpoint()
            except CheckpointError:
                self.failures += 1
            self._gate.resume()
            self.halts.append(time.perf_counter() - started)
            due = started + self._interval

    def end(self) -> None:
        """Take no more checkpoints, and wait for the one in progress."""
        self._over.set()
        self._gate.lift()
        self.join()
