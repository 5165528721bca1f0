"""The times of micro-batches, taken from Spark's ``StreamingQueryProgress``.

A listener would hear of them some time later, on a thread of its own. But the thread of the query notes down how
micro-batch n went before it begins n + 1, and before it ends. So whoever looks when n + 1 is delivered, and when the
query is over, misses none, although Spark keeps no more than the last hundred.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dataflow.runners.micro_batches import MicroBatch, MicroBatches, StateUse

__all__ = ["Timing", "micro_batch"]


class Timing:
    """Collects the micro-batches of ``query``, which is set when it has started, from number ``first`` on."""

    def __init__(self, first: int) -> None:
        self.query: Any = None
        self._first = first
        self._found: dict[int, MicroBatch] = {}

    def catch_up(self, before: int) -> None:
        """Take all micro-batches below ``before``. One call to the JVM, where the one before was taken in its turn."""
        if self.query is None or not self._missing(before):
            return
        last = self.query.lastProgress
        alone = last is not None and last["batchId"] == before - 1 and _is_whole(last) and not self._missing(before - 1)
        for progress in [last] if alone else self.query.recentProgress:
            if _is_whole(progress):
                self._found[progress["batchId"]] = micro_batch(progress)

    def _missing(self, before: int) -> bool:
        return before > self._first and before - 1 not in self._found

    def taken(self, done: int) -> MicroBatches:
        """All that are known; ``done`` are those in the life of the job, of which the last are looked for now."""
        with suppress(Exception):  # the JVM may be gone; what is known is told
            self.catch_up(done)
        return MicroBatches([self._found[number] for number in sorted(self._found)])


def _is_whole(progress: Any) -> bool:
    """Whether it tells of a micro-batch. Spark also reports that it waits, under the number of the next one."""
    return "addBatch" in progress["durationMs"]


def micro_batch(progress: Any) -> MicroBatch:
    """A report of Spark's in our units. The rows it counts are envelopes, and so are left out."""
    times = {name: int(time) * 1_000 for name, time in progress["durationMs"].items()}
    duration = times.pop("triggerExecution", sum(times.values()))
    states = [
        StateUse(
            slots=state["numRowsTotal"],
            updated=state["numRowsUpdated"],
            memory=state["memoryUsedBytes"],
            updating=state["allUpdatesTimeMs"] * 1_000,
            committing=state["commitTimeMs"] * 1_000,
        )
        for state in progress["stateOperators"]
    ]
    return MicroBatch(progress["batchId"], duration, times, states)
