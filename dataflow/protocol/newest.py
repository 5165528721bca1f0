"""Only the newest checkpoint is pending: the policy of handlers that take one at a time.

1. A barrier of an id above every id seen aborts a pending checkpoint (*subsumed*): its channel will never deliver the
   older barrier. A barrier at or below the highest id seen, and not of the pending checkpoint, is ignored; if its
   checkpoint is not settled here, because a higher one came first, it is *passed over*.
2. A cancel of n aborts n if it is pending, or if n is new: then n is the highest id seen, and an older pending
   checkpoint is *superseded*, unless its barrier is still queued on that channel. Any other cancel changes nothing.
3. An abort by the coordinator aborts a pending checkpoint; if its barriers have not arrived yet, they are ignored.

The handler defines *pending*, and what a barrier of the pending checkpoint does.

Invariant: the pending checkpoint is the highest id seen, or one overtaken by a cancel while its barrier is queued.
Invariant: every checkpoint of which a barrier came is pending or settled: taken, aborted, passed over or withdrawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from dataflow.protocol.actions import Abort, AbortReason, Action, Ignore, PassOver
from dataflow.protocol.events import Barrier, Element
from dataflow.protocol.settled import Settled

__all__ = ["NewestOnly", "is_queued"]


class _Numbered(Protocol):
    @property
    def checkpoint(self) -> int: ...


P = TypeVar("P", bound=_Numbered)


class NewestOnly(Generic[P]):
    """The pending checkpoint, if any, and the rules that abort it. See the module's rules."""

    __slots__ = ("_latest", "_pending", "_settled")

    def __init__(self) -> None:
        self._pending: P | None = None
        self._latest = 0
        self._settled = Settled()

    def cancel(self, channel: int, checkpoint: int, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Abort ``checkpoint`` if pending or new, and an older pending one unless its barrier is still queued."""
        if self._is_pending(checkpoint):
            return self._abort_pending(AbortReason.CANCEL)
        is_news = self._settled.add(checkpoint)
        if checkpoint <= self._latest:
            return []
        superseded: list[Action] = []
        if self._pending is not None and not is_queued(self._pending.checkpoint, overtaken):
            superseded = self._abort_pending(AbortReason.SUPERSEDED)
        self._latest = checkpoint
        return [*superseded, Abort(checkpoint, AbortReason.CANCEL)] if is_news else superseded

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """Abort a pending ``checkpoint``; remember one whose barriers have not arrived yet."""
        if self._is_pending(checkpoint):
            return self._abort_pending(reason)
        self._settled.add(checkpoint)
        return []

    def _is_pending(self, checkpoint: int) -> bool:
        return self._pending is not None and self._pending.checkpoint == checkpoint

    def _succeeds(self, checkpoint: int, actions: list[Action]) -> bool:
        """Return whether a barrier of another checkpoint than the pending one makes its own pending.

        Adds the resulting actions for the pending checkpoint, or for the barrier, to ``actions``.
        """
        is_new = self._settled.add(checkpoint)
        if checkpoint > self._latest:
            actions += self._abort_pending(AbortReason.SUBSUMED)
            self._latest = checkpoint
            if is_new:
                return True
        elif is_new:
            actions.append(PassOver(checkpoint))
        actions.append(Ignore(checkpoint))
        return False

    def _abort_pending(self, reason: AbortReason) -> list[Action]:
        if self._pending is None:
            return []
        checkpoint = self._pending.checkpoint
        self._close()
        return [Abort(checkpoint, reason)]

    def _close(self) -> None:
        """Forget the pending checkpoint, which was taken or aborted."""
        self._pending = None


def is_queued(checkpoint: int, elements: Sequence[Element]) -> bool:
    """Return whether a barrier of ``checkpoint`` is among ``elements``."""
    return any(isinstance(element, Barrier) and element.checkpoint == checkpoint for element in elements)
