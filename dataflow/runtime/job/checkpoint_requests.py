"""Checkpoints that somebody outside asked for, until each is answered: by an id, or by why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dataflow.errors import DataflowError
from dataflow.protocol.events import BarrierKind

__all__ = ["CheckpointRequests", "Wanted"]

_PAUSE = 10_000
"""Microseconds before a checkpoint is asked for again that came to nothing although nothing broke."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody asks for a checkpoint of ``kind``; ``future`` gets its id."""

    kind: BarrierKind
    future: Future[int] = field(default_factory=Future)


class CheckpointRequests:
    """Numbers requests for the coordinator, and remembers who waits for which answer.

    Invariant: every request is in exactly one of three places: with the coordinator, waiting to be asked again, or
    served by a checkpoint that is not yet visible everywhere; ``refuse`` empties all three.
    """

    def __init__(self) -> None:
        self._asked: dict[int, Wanted] = {}
        self._again: list[tuple[int, Wanted]] = []
        self._served: dict[int, list[Wanted]] = {}
        self._numbers = 0

    @property
    def waiting(self) -> list[Wanted]:
        """The requests in the three places; after ``refuse`` all of them are answered."""
        served = [wanted for waiting in self._served.values() for wanted in waiting]
        return [*self._asked.values(), *(wanted for _, wanted in self._again), *served]

    def validate(self) -> None:
        """Assert the invariants."""
        waiting = self.waiting
        places = len({id(wanted.future) for wanted in waiting})
        assert places == len(waiting), f"{len(waiting) - places} requests are in two places: {waiting}"
        assert max(self._asked, default=0) <= self._numbers, f"{list(self._asked)} of {self._numbers} numbers"

    def ask(self, wanted: Wanted) -> int:
        """The number under which the coordinator hears of it."""
        self._numbers += 1
        self._asked[self._numbers] = wanted
        return self._numbers

    def again(self, requests: Sequence[int], now: int) -> None:
        """Nothing broke: a task was just ending, or a newer checkpoint came in between. Ask again in a while."""
        self._again += [(now + _PAUSE, self._asked.pop(request)) for request in requests]

    def due(self, now: int) -> list[Wanted]:
        """The requests to be asked again now."""
        due = [wanted for at, wanted in self._again if at <= now]
        self._again = [(at, wanted) for at, wanted in self._again if at > now]
        return due

    def served(self, requests: Sequence[int], checkpoint: int) -> None:
        """``checkpoint`` is durable and serves these requests."""
        self._served.setdefault(checkpoint, []).extend(self._asked.pop(request) for request in requests)

    def answer(self, horizon: int) -> None:
        """Answer the served requests whose checkpoint all sinks have committed. A savepoint commits nothing."""
        for checkpoint in list(self._served):
            waiting = self._served.pop(checkpoint)
            ready = [w for w in waiting if checkpoint <= horizon or w.kind is BarrierKind.SAVEPOINT]
            for wanted in ready:
                wanted.future.set_result(checkpoint)
            if kept := [w for w in waiting if w not in ready]:
                self._served[checkpoint] = kept

    def fail(self, requests: Sequence[int], why: DataflowError) -> None:
        """There will be no checkpoint for these."""
        for request in requests:
            self._asked.pop(request).future.set_exception(why)

    def answer_overtaken(self, last: int) -> None:
        """Answer requests that wait to be asked again with ``last``, the job's last checkpoint, which covers them.

        Requests for a savepoint keep waiting, because a checkpoint does not replace one.
        """
        kept = []
        for at, wanted in self._again:
            if wanted.kind is BarrierKind.CHECKPOINT:
                wanted.future.set_result(last)
            else:
                kept.append((at, wanted))
        self._again = kept

    def refuse(self, why: BaseException) -> None:
        """There will be no checkpoint for anybody who still waits."""
        for wanted in self.waiting:
            if not wanted.future.done():
                wanted.future.set_exception(why)
