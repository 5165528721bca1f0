"""Aligned barriers: a channel whose barrier came waits until every channel's barrier came. Exactly once.

The algorithm is Algorithm 1 of Carbone et al., *Lightweight Asynchronous Snapshots for Distributed Dataflows* (2015):

1. The first barrier of checkpoint n blocks its channel; so does each further one.
2. When the barriers of all live channels are here, send barrier n, copy the state, and unblock everything.

The snapshot then holds exactly the rows that stood before barrier n. The paper knows neither failures nor ends; these
rules complete it:

3. At most one checkpoint is pending, the newest: see ``newest``. A barrier that is ignored blocks nothing, and what is
   given up unblocks everything.
4. An ended channel counts as aligned with this and every later checkpoint (or, by policy, gives the pending one up).

Invariant: channels are blocked if and only if a checkpoint is pending; they are live, and never all of the live ones.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import Enum

from dataflow.events import Barrier, Element
from dataflow.protocol.actions import AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.handler import Received
from dataflow.protocol.newest import NewestOnly

__all__ = ["Aligner", "EndOfInputPolicy"]


class EndOfInputPolicy(Enum):
    """What the end of a channel means to the checkpoint that waits for its barrier."""

    ALIGN = "aligned"
    """The end stands for the barrier."""
    ABORT = "abort"
    """The checkpoint is given up; later ones do not wait for the channel."""


class Aligner(NewestOnly[Barrier]):
    """The handler of ``aligned`` checkpoints over the channels 0 .. ``channels`` - 1. See the module's rules.

    >>> aligner = Aligner(2, end_of_input=EndOfInputPolicy.ALIGN)
    >>> aligner.barrier(0, Barrier(1), now=0), set(aligner.blocked)
    ([], {0})
    >>> [type(action).__name__ for action in aligner.barrier(1, Barrier(1), now=5)], set(aligner.blocked)
    (['TakeSnapshot', 'Complete'], set())
    """

    __slots__ = ("_arrived", "_end_of_input", "_live")

    def __init__(self, channels: int, *, end_of_input: EndOfInputPolicy) -> None:
        assert channels > 0, f"a gate has at least one channel, got {channels}"
        super().__init__()
        self._end_of_input = end_of_input
        self._live = set(range(channels))
        self._arrived: set[int] = set()

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
        actions: list[Action] = []
        if self._succeeds(checkpoint, actions):
            self._pending = barrier
            self._arrived.add(channel)
            actions += self._aligned()
        return actions

    def end(self, channel: int, now: int) -> list[Action]:
        """The channel leaves the set that checkpoints wait for."""
        self._live.discard(channel)
        match self._end_of_input:
            case EndOfInputPolicy.ALIGN:
                return self._aligned()
            case EndOfInputPolicy.ABORT:
                return self._abort_pending(AbortReason.END_OF_INPUT)

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

    def _aligned(self) -> list[Action]:
        barrier = self._pending
        if barrier is None or not self._live <= self._arrived:
            return []
        self._close()
        return [TakeSnapshot(barrier), Complete(barrier.checkpoint)]

    def _close(self) -> None:
        super()._close()
        self._arrived.clear()
