"""Requests for checkpoints from outside of the job, until each is completed with an id or an error."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dataflow.errors import DataflowError
from dataflow.protocol.events import BarrierKind

__all__ = ["CheckpointRequests", "CheckpointRequest"]

_PAUSE = 10_000
"""Microseconds before a request is retried whose checkpoint was dropped without a failure."""


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A request for a checkpoint of ``kind``; ``future`` gets its id."""

    kind: BarrierKind
    future: Future[int] = field(default_factory=Future)


class CheckpointRequests:
    """Numbers requests for the coordinator, and completes them.

    Invariant: every open request is in exactly one of three places: with the coordinator, waiting to be retried, or
    served by a checkpoint that not all sinks have committed; ``refuse_all`` fails the requests of all three.
    """

    def __init__(self) -> None:
        self._pending: dict[int, CheckpointRequest] = {}
        self._retries: list[tuple[int, CheckpointRequest]] = []
        self._served: dict[int, list[CheckpointRequest]] = {}
        self._numbers = 0

    @property
    def open_requests(self) -> list[CheckpointRequest]:
        """The requests in the three places; ``refuse_all`` completes all of them."""
        served = [request for requests in self._served.values() for request in requests]
        return [*self._pending.values(), *(request for _, request in self._retries), *served]

    def validate(self) -> None:
        """Assert the invariants."""
        requests = self.open_requests
        twice = len(requests) - len({id(request.future) for request in requests})
        assert not twice, f"{twice} requests are in two places: {requests}"
        assert max(self._pending, default=0) <= self._numbers, f"{list(self._pending)} of {self._numbers} numbers"

    def add(self, request: CheckpointRequest) -> int:
        """Register a request; return its number, by which the coordinator knows it."""
        self._numbers += 1
        self._pending[self._numbers] = request
        return self._numbers

    def retry_later(self, requests: Sequence[int], now: int) -> None:
        """Retry requests after a pause. Nothing failed: a task was just ending, or a newer checkpoint came first."""
        self._retries += [(now + _PAUSE, self._pending.pop(number)) for number in requests]

    @property
    def deadline(self) -> int | None:
        """The time of the next retry; None: no request waits for one."""
        return min([at for at, _ in self._retries], default=None)

    def due(self, now: int) -> list[CheckpointRequest]:
        """Remove and return the requests to be retried now."""
        due = [request for at, request in self._retries if at <= now]
        self._retries = [(at, request) for at, request in self._retries if at > now]
        return due

    def serve(self, requests: Sequence[int], checkpoint: int) -> list[CheckpointRequest]:
        """Assign requests to ``checkpoint``, which is durable, and return them."""
        served = [self._pending.pop(number) for number in requests]
        self._served.setdefault(checkpoint, []).extend(served)
        return served

    def complete(self, horizon: int) -> None:
        """Complete the served requests whose checkpoint all sinks have committed."""
        for checkpoint in [n for n in self._served if n <= horizon]:
            for request in self._served.pop(checkpoint):
                request.future.set_result(checkpoint)

    def withdraw(self, request: CheckpointRequest) -> int | None:
        """Remove an open request; return its number if the coordinator has it, else None."""
        self._retries = [(at, retry) for at, retry in self._retries if retry is not request]
        for checkpoint, served in list(self._served.items()):
            self._served[checkpoint] = [each for each in served if each is not request]
            if not self._served[checkpoint]:
                del self._served[checkpoint]
        for number, pending in self._pending.items():
            if pending is request:
                del self._pending[number]
                return number
        return None

    def fail(self, requests: Sequence[int], error: DataflowError) -> None:
        """Fail these requests with ``error``."""
        for number in requests:
            self._pending.pop(number).future.set_exception(error)

    def take_retries(self) -> list[CheckpointRequest]:
        """Remove and return the requests that wait to be retried, because the job's last checkpoint serves them."""
        requests = [request for _, request in self._retries]
        self._retries = []
        return requests

    def refuse_all(self, error: BaseException) -> None:
        """Fail all open requests with ``error``."""
        for request in self.open_requests:
            if not request.future.done():
                request.future.set_exception(error)
