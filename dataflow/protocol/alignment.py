"""Aligned barriers: a channel whose barrier came waits until every channel's barrier came. Exactly once.

The algorithm is Algorithm 1 of Carbone et al., *Lightweight Asynchronous Snapshots for Distributed Dataflows* (2015):

1. The first barrier of checkpoint n blocks its channel; so does each further one.
2. When the barriers of all live channels are here, send barrier n, copy the state, and unblock everything.

The snapshot then holds exactly the rows that stood before barrier n. The paper knows neither failures nor ends; these
rules complete it:

3. At most one checkpoint is pending. A barrier of a higher id gives the pending one up (*subsumed*): its channel will
   never bring the older barrier.
4. A barrier at or below the highest id ever seen, and not of the pending checkpoint, is ignored and blocks nothing.
5. A cancel of n gives n up if it is pending, or if n is news: then n is the highest id seen, and an older pending
   checkpoint is *superseded*, unless its barrier is still queued on that channel. Any other cancel changes nothing.
6. An ended channel counts as aligned with this and every later checkpoint (or, by policy, gives the pending one up).

Invariant: channels are blocked if and only if a checkpoint is pending; they are live, and never all of the live ones.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import Enum

from dataflow.events import Barrier, Element
from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.given_up import GivenUp
from dataflow.protocol.handler import Received

__all__ = ["Aligner", "EndOfInputPolicy"]


class EndOfInputPolicy(Enum):
    """What the end of a channel means to the checkpoint that waits for its barrier."""

    ALIGN = "aligned"
    """The end stands for the barrier."""
    ABORT = "abort"
    """The checkpoint is given up; later ones do not wait for the channel."""


class Aligner:
    """The handler of ``aligned`` checkpoints over the channels 0 .. ``channels`` - 1. See the module's rules.

    >>> aligner = Aligner(2, end_of_input=EndOfInputPolicy.ALIGN)
    >>> aligner.barrier(0, Barrier(1), now=0), set(aligner.blocked)
    ([], {0})
    >>> [type(action).__name__ for action in aligner.barrier(1, Barrier(1), now=5)], set(aligner.blocked)
    (['TakeSnapshot', 'Complete'], set())
    """

    __slots__ = ("_arrived", "_end_of_input", "_given_up", "_latest", "_live", "_pending")

    def __init__(self, channels: int, *, end_of_input: EndOfInputPolicy) -> None:
        assert channels > 0, f"a gate has at least one channel, got {channels}"
        self._end_of_input = end_of_input
        self._live = set(range(channels))
        self._arrived: set[int] = set()
        self._pending: Barrier | None = None
        self._latest = 0
        self._given_up = GivenUp()

    @property
    def blocked(self) -> Set[int]:
        """The channels whose barrier of the pending checkpoint is here; a live view."""
        return self._arrived

    @property
    def deadline(self) -> int | None:
        """None: alignment waits as long as it takes."""
        return None

    @property
    def floor(self) -> int:
        """The lowest id of which a snapshot may still be taken."""
        return self._latest + 1 if self._pending is None else self._pending.checkpoint

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """None: a barrier keeps its place."""
        return None

    def element(self, channel: int, element: Received) -> Received:
        """What came, as it is: with blocked channels no red row is ever taken ahead of a snapshot."""
        return element

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Block ``channel``; answer the snapshot when it was the last one to wait for."""
        checkpoint = barrier.checkpoint
        if self._is_pending(checkpoint):
            if channel in self._arrived:
                return [Ignore(checkpoint)]
            self._arrived.add(channel)
            return self._aligned()
        if checkpoint <= self._latest:
            return [Ignore(checkpoint)]
        subsumed = self._abort_pending(AbortReason.SUBSUMED)
        self._latest = checkpoint
        if self._given_up.remove(checkpoint):
            return [*subsumed, Ignore(checkpoint)]
        self._pending = barrier
        self._arrived.add(channel)
        return [*subsumed, *self._aligned()]

    def cancel(self, channel: int, checkpoint: int, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Give ``checkpoint`` up where that is news; see rule 5 for an older pending one."""
        if self._is_pending(checkpoint):
            return self._abort_pending(AbortReason.CANCEL)
        if checkpoint <= self._latest:
            return []
        superseded: list[Action] = []
        if self._pending is not None and not is_queued(self._pending.checkpoint, overtaken):
            superseded = self._abort_pending(AbortReason.SUPERSEDED)
        self._latest = checkpoint
        if self._given_up.remove(checkpoint):
            return superseded
        return [*superseded, Abort(checkpoint, AbortReason.CANCEL)]

    def end(self, channel: int, now: int) -> list[Action]:
        """The channel leaves the set that checkpoints wait for."""
        self._live.discard(channel)
        match self._end_of_input:
            case EndOfInputPolicy.ALIGN:
                return self._aligned()
            case EndOfInputPolicy.ABORT:
                return self._abort_pending(AbortReason.END_OF_INPUT)

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """Give a pending ``checkpoint`` up; remember one whose barriers are still to come, or they would block."""
        if self._is_pending(checkpoint):
            return self._abort_pending(reason)
        if checkpoint > self._latest:
            self._given_up.add(checkpoint)
        return []

    def tick(self, now: int) -> list[Action]:
        """Time changes nothing here."""
        return []

    def validate(self) -> None:
        """Walk the invariants."""
        assert self._arrived <= self._live, f"channels {self._arrived} block, but only {self._live} are live"
        assert bool(self._arrived) == (self._pending is not None), f"{self._pending} pending, {self._arrived} blocked"
        if self._pending is not None:
            assert self._arrived < self._live, f"{self._pending} waits although all of {self._live} are aligned"
            assert self._pending.checkpoint <= self._latest, f"{self._pending} is above the highest id {self._latest}"

    def _is_pending(self, checkpoint: int) -> bool:
        return self._pending is not None and self._pending.checkpoint == checkpoint

    def _aligned(self) -> list[Action]:
        if self._pending is None or not self._live <= self._arrived:
            return []
        barrier = self._close()
        return [TakeSnapshot(barrier), Complete(barrier.checkpoint)]

    def _abort_pending(self, reason: AbortReason) -> list[Action]:
        if self._pending is None:
            return []
        return [Abort(self._close().checkpoint, reason)]

    def _close(self) -> Barrier:
        assert self._pending is not None, "no checkpoint is pending"
        barrier, self._pending = self._pending, None
        self._arrived.clear()
        self._given_up.forget(self._latest)
        return barrier


def is_queued(checkpoint: int, elements: Sequence[Element]) -> bool:
    """Whether a barrier of ``checkpoint`` is among ``elements``."""
    return any(isinstance(element, Barrier) and element.checkpoint == checkpoint for element in elements)
