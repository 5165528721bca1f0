"""The contract of a barrier handler: the automaton inside an input gate.

An input gate tells its handler what it took from which channel, and asks it which channels are blocked. The handler
answers with actions. It holds no thread, clock, queue or Arrow; time comes in as ``now`` (microseconds).

Guarantees: no method blocks or raises for any order of calls in which channels deliver first-in-first-out, nothing is
taken from a channel in ``blocked``, and nothing follows an ``end``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from dataflow.events import Barrier, Data, Element, Idle, Watermark
from dataflow.protocol.actions import AbortReason, Action

__all__ = ["BarrierHandler", "Received"]

Received = Data | Watermark | Idle
"""What a channel delivers beside barriers, cancels and its end."""


class BarrierHandler(Protocol):
    """What every handler answers. Channels are the integers 0 .. n-1 of the gate."""

    @property
    def blocked(self) -> Set[int]:
        """Channels nothing may be taken from now (urgent elements excepted)."""
        ...

    @property
    def deadline(self) -> int | None:
        """When to call ``tick``, in microseconds; None: no need."""
        ...

    @property
    def floor(self) -> int:
        """The lowest id of which a snapshot may still be taken: rows of a lower epoch are red for none."""
        ...

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """Since when (microseconds) ``barrier``, queued on a channel that can be overtaken, is to be taken first.

        0: at once, whatever the clock says (its trigger may be ahead of it). None: not as far as is known now; ask
        again after every event.
        """
        ...

    def element(self, channel: int, element: Received) -> Received:
        """Something was taken from ``channel``; answers it, rows in the colour they have here."""
        ...

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """A barrier was taken; ``overtaken`` is what is still queued on the channel ahead of where it stood."""
        ...

    def cancel(self, channel: int, checkpoint: int, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """An in-band cancel was taken, ahead of ``overtaken``, which is still queued."""
        ...

    def end(self, channel: int, now: int) -> list[Action]:
        """The channel ended: it counts as aligned with every later barrier, once."""
        ...

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """The coordinator gave ``checkpoint`` up; answers nothing where it is not pending here."""
        ...

    def tick(self, now: int) -> list[Action]:
        """Time passed."""
        ...
