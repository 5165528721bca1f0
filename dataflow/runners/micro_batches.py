"""The time of a run by micro-batch and phase, as the underlying engine (only Spark so far) reports it.

``RunResult.metrics`` has the times of operators, as for every runner. This module has the time spent around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.clock import duration_text

__all__ = ["MicroBatch", "MicroBatches", "StateUse"]


@dataclass(frozen=True, slots=True)
class StateUse:
    """The state of the keyed tasks of one shuffle, after a micro-batch. Times are microseconds, summed over partitions.

    Attributes:
        pieces: the entries in Spark's store: for each keyed task an index, its small state, and the pieces of its logs.
        written: the entries that this micro-batch wrote.
        memory: bytes of the store that are in memory.
        updating: time spent in Spark's tasks that run the keyed tasks, operators included.
        committing: time spent making the state durable.
    """

    pieces: int
    written: int
    memory: int
    updating: int
    committing: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch. Times are microseconds.

    Attributes:
        number: the engine's number, counted from 0 in each job.
        duration: from its trigger to its end.
        phases: the time by phase, under the engine's own names: Spark plans (``queryPlanning``), runs (``addBatch``,
            all operators and sinks included), and logs (``walCommit``, ``commitOffsets``) a micro-batch.
        states: one entry per shuffle.
    """

    number: int
    duration: int
    phases: Mapping[str, int]
    states: Sequence[StateUse] = ()


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The micro-batches of a run, in order; ``print`` them for a summary.

    >>> first = MicroBatch(0, 900_000, {"addBatch": 800_000}, [StateUse(4, 4, 2_000_000, 300_000, 5_000)])
    >>> second = MicroBatch(1, 1_500_000, {"addBatch": 1_000_000, "walCommit": 400_000}, [StateUse(4, 2, 7, 0, 5_000)])
    >>> MicroBatches([first, second])
    2 micro-batches in 2.40 s, slowest 1.50 s; state: 4 pieces, 0.0 MB in memory, 10.0 ms to commit
      addBatch   1.80 s
      walCommit  400.0 ms
      (other)    200.0 ms
    """

    batches: Sequence[MicroBatch]

    @property
    def duration(self) -> int:
        """The total duration in microseconds."""
        return sum(batch.duration for batch in self.batches)

    @property
    def phases(self) -> Mapping[str, int]:
        """Microseconds by phase over all micro-batches, longest first; ``(other)``: outside Spark's phases."""
        total: Counter[str] = Counter()
        for batch in self.batches:
            total.update(batch.phases)
        rest = self.duration - total.total()
        return {name: time for name, time in [*total.most_common(), ("(other)", max(0, rest))] if time}

    @property
    def states(self) -> Sequence[StateUse]:
        """The state of each shuffle after the last micro-batch, with times summed over all micro-batches."""
        if not self.batches:
            return ()
        columns = zip(*[batch.states for batch in self.batches], strict=False)
        return [
            StateUse(
                uses[-1].pieces,
                sum(use.written for use in uses),
                uses[-1].memory,
                sum(use.updating for use in uses),
                sum(use.committing for use in uses),
            )
            for uses in columns
        ]

    @property
    def headline(self) -> str:
        """The number and duration of the micro-batches and the size of the state, in one line."""
        slowest = max((batch.duration for batch in self.batches), default=0)
        line = (
            f"{len(self.batches):,} micro-batches in {duration_text(self.duration)}, slowest {duration_text(slowest)}"
        )
        if not self.states:
            return line
        pieces, memory, committing = (
            sum(getattr(s, name) for s in self.states) for name in ("pieces", "memory", "committing")
        )
        return (
            f"{line}; state: {pieces:,} pieces, {memory / 1e6:,.1f} MB in memory, {duration_text(committing)} to commit"
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; times in microseconds."""
        return {
            "count": len(self.batches),
            "duration_us": self.duration,
            "slowest_us": max((batch.duration for batch in self.batches), default=0),
            "phases_us": dict(self.phases),
            "state": [
                {
                    "pieces": state.pieces,
                    "memory_bytes": state.memory,
                    "updating_us": state.updating,
                    "committing_us": state.committing,
                }
                for state in self.states
            ],
        }

    def __str__(self) -> str:
        width = max(map(len, self.phases), default=0)
        return "\n".join(
            [self.headline, *(f"  {name:<{width}}  {duration_text(time)}" for name, time in self.phases.items())]
        )

    __repr__ = __str__
