"""The checkpoints that need no answer from a task any more: begun, given up or passed over here, or withdrawn.

A barrier of such a checkpoint is ignored. Two kinds of barriers come late: those of a checkpoint that was given up (the
coordinator speaks through mailboxes, which are faster than barriers), and those of one that the task never began,
because a higher checkpoint came first. The second kind needs one answer, or the coordinator would wait for it.

Invariant: at most ``LIMIT`` ids are kept, the highest ones.
"""

from __future__ import annotations

__all__ = ["Settled"]

LIMIT = 50


class Settled:
    """A small set of checkpoint ids.

    >>> settled = Settled()
    >>> settled.add(4), settled.add(4), 4 in settled
    (True, False, True)
    """

    __slots__ = ("_checkpoints",)

    def __init__(self) -> None:
        self._checkpoints: set[int] = set()

    def __contains__(self, checkpoint: int) -> bool:
        return checkpoint in self._checkpoints

    def add(self, checkpoint: int) -> bool:
        """Remember ``checkpoint``, forget the lowest beyond the limit; return whether it is new."""
        if checkpoint in self._checkpoints:
            return False
        self._checkpoints.add(checkpoint)
        if len(self._checkpoints) > LIMIT:
            self._checkpoints.remove(min(self._checkpoints))
        return True
