"""Aligned barriers: a channel is blocked after its barrier until every channel's barrier arrived. Exactly once.

The algorithm is Algorithm 1 of Carbone et al., *Lightweight Asynchronous Snapshots for Distributed Dataflows* (2015):

1. Each barrier of checkpoint n blocks its channel.
2. When the barriers of all live channels have arrived, send barrier n, copy the state, and unblock all channels.

The snapshot then holds exactly the rows before barrier n. The paper covers neither failures nor the end of a channel;
these rules do:

3. At most one checkpoint is pending, the newest: see ``newest``. An ignored barrier blocks nothing, and an abort
   unblocks all channels.
4. An ended channel counts as aligned with this and every later checkpoint (or, by policy, aborts the pending one).

Invariant: channels are blocked if and only if a checkpoint is pending; they are live, and never all of the live ones.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import Enum

from dataflow.protocol.actions import AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.events import Barrier, Element
from dataflow.protocol.handler import Received
from dataflow.protocol.newest import NewestOnly

__all__ = ["Aligner", "EndOfInputPolicy"]


class EndOfInputPolicy(Enum):
    """Effect of a channel's end on the checkpoint that waits for its barrier."""

    ALIGN = "aligned"
    """The end counts as the barrier."""
    ABORT = "abort"
    """The checkpoint is aborted; later ones do not wait for the channel."""


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
        """The channels whose barrier of the pending checkpoint has arrived; a live view."""
        return self._arrived

    @property
    def deadline(self) -> int | None:
        """None: alignment has no time limit."""
        return None

    @property
    def floor(self) -> int:
        """The lowest checkpoint id of which a snapshot may still be taken."""
        return self._latest + 1 if self._pending is None else self._pending.checkpoint

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """Return None: a barrier never overtakes."""
        return None

    def element(self, channel: int, element: Received) -> Received:
        """Return ``element`` unchanged: because channels block, no red row is taken before a snapshot."""
        return element

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Block ``channel``; return the snapshot's actions if this was the last missing barrier."""
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
        """Stop waiting for barriers of ``channel``, which ended."""
        self._live.discard(channel)
        match self._end_of_input:
            case EndOfInputPolicy.ALIGN:
                return self._aligned()
            case EndOfInputPolicy.ABORT:
                return self._abort_pending(AbortReason.END_OF_INPUT)

    def tick(self, now: int) -> list[Action]:
        """Return no actions: alignment does not depend on time."""
        return []

    def validate(self) -> None:
        """Assert the invariants."""
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
