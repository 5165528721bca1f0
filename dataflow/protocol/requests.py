"""The queue of requests for checkpoints.

One checkpoint serves all requests that wait when it starts. It is a savepoint if one of them is for a savepoint,
because a savepoint is a checkpoint, too. A request is the caller's number, or None if no caller waits for the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.protocol.events import BarrierKind

__all__ = ["Requests", "Served"]


@dataclass(frozen=True, slots=True)
class Served:
    """The requests that one checkpoint serves. ``last``: the savepoints that only the last checkpoint may serve."""

    savepoints: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = ()
    last: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[int, ...]:
        """All requests, those for a savepoint first."""
        return (*self.savepoints, *self.last, *self.checkpoints)

    @property
    def all_savepoints(self) -> tuple[int, ...]:
        """The requests for a savepoint."""
        return (*self.savepoints, *self.last)

    def __sub__(self, request: int) -> Served:
        """Return the requests without one for a savepoint."""
        savepoints = tuple(number for number in self.savepoints if number != request)
        return Served(savepoints, self.checkpoints, tuple(number for number in self.last if number != request))

    def __add__(self, later: Served) -> Served:
        return Served(self.savepoints + later.savepoints, self.checkpoints + later.checkpoints, self.last + later.last)


class Requests:
    """A queue of requests: the next checkpoint serves all of them.

    >>> requests = Requests()
    >>> requests.add(BarrierKind.CHECKPOINT, 1)
    >>> requests.add(BarrierKind.SAVEPOINT, 2)
    >>> requests.add_last(3)
    >>> requests.next()
    (<BarrierKind.SAVEPOINT: 'savepoint'>, Served(savepoints=(2,), checkpoints=(1,), last=()))
    >>> requests.next(), requests.take_all().last
    (None, (3,))
    """

    __slots__ = ("_checkpoint_wanted", "_savepoint_wanted", "_waiting")

    def __init__(self) -> None:
        self._waiting = Served()
        # Whether one was requested, perhaps only with request None.
        self._checkpoint_wanted = self._savepoint_wanted = False

    def add(self, kind: BarrierKind, request: int | None) -> None:
        """Add a request for a checkpoint of ``kind``."""
        requests = () if request is None else (request,)
        if kind is BarrierKind.SAVEPOINT:
            self._savepoint_wanted = True
            self._waiting += Served(savepoints=requests)
        else:
            self._checkpoint_wanted = True
            self._waiting += Served(checkpoints=requests)

    def add_last(self, request: int) -> None:
        """Add a request for a savepoint that the last checkpoint, at the end of the input, is to serve."""
        self._waiting += Served(last=(request,))

    def put_back(self, served: Served) -> None:
        """Put requests back, before all others, because their checkpoint is tried again."""
        self._waiting = served + self._waiting
        self._savepoint_wanted = self._savepoint_wanted or bool(served.savepoints)
        self._checkpoint_wanted = self._checkpoint_wanted or bool(served.checkpoints)

    def withdraw(self, request: int) -> bool:
        """Remove a request for a savepoint; return whether it waited here."""
        rest = self._waiting - request
        waited = rest != self._waiting
        self._waiting = rest
        if waited:
            self._savepoint_wanted = bool(rest.savepoints)
        return waited

    @property
    def wanted(self) -> bool:
        """Whether a request waits."""
        return self._checkpoint_wanted or self._savepoint_wanted or bool(self._waiting.last)

    def next(self) -> tuple[BarrierKind, Served] | None:
        """Remove and return the next checkpoint: its kind, and the requests it serves; None if there is none."""
        if not self._checkpoint_wanted and not self._savepoint_wanted:
            return None
        kind = BarrierKind.SAVEPOINT if self._savepoint_wanted else BarrierKind.CHECKPOINT
        served, self._waiting = self._waiting, Served(last=self._waiting.last)
        self._checkpoint_wanted = self._savepoint_wanted = False
        return kind, Served(served.savepoints, served.checkpoints)

    def take_all(self) -> Served:
        """Remove and return all requests: the last checkpoint serves them, or the job has failed."""
        served, self._waiting = self._waiting, Served()
        self._checkpoint_wanted = self._savepoint_wanted = False
        return served
