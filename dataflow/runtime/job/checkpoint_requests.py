"""Checkpoints that somebody outside asked for, until each is answered: by an id, or by why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dataflow.errors import DataflowError
from dataflow.protocol.events import BarrierKind

__all__ = ["CheckpointRequests", "CheckpointRequest"]

_PAUSE = 10_000
"""Microseconds before a checkpoint is asked for again that came to nothing although nothing broke."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Somebody asks for a checkpoint of ``kind``; ``future`` gets its id."""

    kind: BarrierKind
    future: Future[int] = field(default_factory=Future)


class CheckpointRequests:
    """Numbers requests for the coordinator, and remembers who waits for which answer.

    Invariant: every request is in exactly one of three places: with the coordinator, waiting to be asked again, or
    served by a checkpoint that is not yet visible everywhere; ``refuse`` empties all three.
    """

    def __init__(self) -> None:
        self._asked: dict[int, CheckpointRequest] = {}
        self._again: list[tuple[int, CheckpointRequest]] = []
        self._served: dict[int, list[CheckpointRequest]] = {}
        self._numbers = 0

    def add(self, wanted: CheckpointRequest) -> int:
        """The number under which the coordinator hears of it."""
        self._numbers += 1
        self._asked[self._numbers] = wanted
        return self._numbers

    def retry_later(self, requests: Sequence[int], now: int) -> None:
        """Nothing broke: a task was just ending, or a newer checkpoint came in between. Ask again in a while."""
        self._again += [(now + _PAUSE, self._asked.pop(request)) for request in requests]

    def due(self, now: int) -> list[CheckpointRequest]:
        """The requests to be asked again now."""
        due = [wanted for at, wanted in self._again if at <= now]
        self._again = [(at, wanted) for at, wanted in self._again if at > now]
        return due

    def serve(self, requests: Sequence[int], checkpoint: int) -> None:
        """``checkpoint`` is durable and serves these requests."""
        self._served.setdefault(checkpoint, []).extend(self._asked.pop(request) for request in requests)

    def complete(self, horizon: int) -> None:
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

    def complete_with_last(self, last: int) -> None:
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

    def refuse_all(self, why: BaseException) -> None:
        """There will be no checkpoint for anybody who still waits."""
        served = [wanted for waiting in self._served.values() for wanted in waiting]
        for wanted in (*self._asked.values(), *(w for _, w in self._again), *served):
            if not wanted.future.done():
                wanted.future.set_exception(why)
