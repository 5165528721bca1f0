"""The contract of a barrier handler: the automaton inside an input gate.

An input gate passes each element it takes from a channel to its handler, and asks it which channels are blocked. The
handler returns actions. It uses no thread, clock, queue or Arrow; time is the argument ``now`` (microseconds).

Guarantees: no method blocks or raises for any order of calls in which channels deliver first-in-first-out, nothing is
taken from a channel in ``blocked``, and nothing follows an ``end``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from dataflow.protocol.actions import AbortReason, Action
from dataflow.protocol.events import Barrier, Data, Element, Idle, Watermark

__all__ = ["BarrierHandler", "Received"]

Received = Data | Watermark | Idle
"""The elements of a channel other than barriers, cancels and its end."""


class BarrierHandler(Protocol):
    """The methods of every handler. Channels are the integers 0 .. n-1 of the gate."""

    @property
    def blocked(self) -> Set[int]:
        """The channels from which nothing may be taken now, except urgent elements."""
        ...

    @property
    def deadline(self) -> int | None:
        """The time (microseconds) at which to call ``tick``; None: not needed."""
        ...

    @property
    def floor(self) -> int:
        """The lowest checkpoint id of which a snapshot may still be taken: rows of a lower epoch are red for none."""
        ...

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """Return the time (microseconds) from which ``barrier`` overtakes; its channel must allow overtaking.

        0: at once, even if its trigger time is later than the clock. None: it does not, as of now; ask again after
        every event.
        """
        ...

    def element(self, channel: int, element: Received) -> Received:
        """Process an element taken from ``channel``; return it, with rows in the colour they have here."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Process a barrier; ``overtaken`` are the elements before it that are still queued on the channel."""
        ...

    def cancel(self, channel: int, checkpoint: int, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Process an in-band cancel; ``overtaken`` are the elements before it that are still queued."""
        ...

    def end(self, channel: int, now: int) -> list[Action]:
        """Process the end of a channel, once: from now on it counts as aligned with every barrier."""
        ...

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """Process an abort by the coordinator; return no actions if ``checkpoint`` is not pending here."""
        ...

    def tick(self, now: int) -> list[Action]:
        """Process the passing of time."""
        ...

    def validate(self) -> None:
        """Assert the invariants that hold between two calls."""
        ...
