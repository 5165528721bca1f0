"""The queue of requests for checkpoints.

Savepoints go first, one checkpoint each, because each may have its own location. One checkpoint serves all waiting
requests for a plain checkpoint. A request is the caller's number, or None if no caller waits for the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataflow.protocol.events import BarrierKind

__all__ = ["Requests"]


class Requests:
    """A queue of requests, with savepoints before plain checkpoints.

    >>> requests = Requests()
    >>> requests.add(BarrierKind.CHECKPOINT, 1)
    >>> requests.add(BarrierKind.SAVEPOINT, 2)
    >>> requests.add(BarrierKind.CHECKPOINT, 3)
    >>> requests.next(), requests.next(), requests.next()
    ((<BarrierKind.SAVEPOINT: 'savepoint'>, (2,)), (<BarrierKind.CHECKPOINT: 'checkpoint'>, (1, 3)), None)
    """

    __slots__ = ("_checkpoints", "_savepoints", "_wanted")

    def __init__(self) -> None:
        self._savepoints: list[tuple[int, ...]] = []
        self._checkpoints: tuple[int, ...] = ()
        # Whether a plain checkpoint was requested, perhaps only with request None.
        self._wanted = False

    def add(self, kind: BarrierKind, request: int | None) -> None:
        """Add a request for a checkpoint of ``kind``."""
        requests = () if request is None else (request,)
        if kind is BarrierKind.SAVEPOINT:
            self._savepoints.append(requests)
        else:
            self._wanted = True
            self._checkpoints += requests

    def put_back(self, requests: Iterable[int]) -> None:
        """Put ``requests`` back, before all others, because their checkpoint is tried again."""
        self._checkpoints = (*requests, *self._checkpoints)
        self._wanted = self._wanted or bool(self._checkpoints)

    @property
    def checkpoint_wanted(self) -> bool:
        """Whether a request for a plain checkpoint waits."""
        return self._wanted

    def next(self) -> tuple[BarrierKind, tuple[int, ...]] | None:
        """Remove and return the next checkpoint: its kind, and the requests it serves; None if there is none."""
        if self._savepoints:
            return BarrierKind.SAVEPOINT, self._savepoints.pop(0)
        return (BarrierKind.CHECKPOINT, self.take_checkpoints()) if self._wanted else None

    def take_checkpoints(self) -> tuple[int, ...]:
        """Remove and return all requests for a plain checkpoint."""
        requests, self._checkpoints, self._wanted = self._checkpoints, (), False
        return requests

    def take_savepoints(self) -> tuple[int, ...]:
        """Remove and return all requests for a savepoint."""
        savepoints, self._savepoints = self._savepoints, []
        return tuple(request for requests in savepoints for request in requests)
