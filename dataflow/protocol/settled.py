"""The checkpoints that are settled at a task: it began, aborted or passed them over, or they were withdrawn.

A barrier of a settled checkpoint is ignored. Two kinds of checkpoints have late barriers. A checkpoint may have been
aborted: the coordinator's messages arrive before barriers do. Or the task never began the checkpoint, because a higher
one came first: then it declines it once, or the coordinator would wait for it.

Invariant: at most ``LIMIT`` ids are kept, the highest ones.
"""

from __future__ import annotations

__all__ = ["Settled"]

LIMIT = 50


class Settled:
    """A bounded set of checkpoint ids.

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
        """Add ``checkpoint``, and drop the lowest id beyond the limit; return whether it is new."""
        if checkpoint in self._checkpoints:
            return False
        self._checkpoints.add(checkpoint)
        if len(self._checkpoints) > LIMIT:
            self._checkpoints.remove(min(self._checkpoints))
        return True
