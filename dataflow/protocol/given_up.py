"""Checkpoints that the coordinator gave up before anything of them was seen here.

The coordinator speaks through mailboxes, which are faster than barriers. Without this memory the late barriers of such
a checkpoint would open it again, and wait (an aligned handler: block) for barriers that nobody will send.

Invariant: at most ``LIMIT`` ids are kept, the newest ones.
"""

from __future__ import annotations

__all__ = ["GivenUp"]

LIMIT = 50


class GivenUp:
    """A small set of checkpoint ids.

    >>> memory = GivenUp()
    >>> memory.add(4)
    >>> memory.remove(4), memory.remove(4)
    (True, False)
    """

    __slots__ = ("_checkpoints",)

    def __init__(self) -> None:
        self._checkpoints: set[int] = set()

    def add(self, checkpoint: int) -> None:
        """Remember ``checkpoint``; beyond the limit the oldest is forgotten."""
        self._checkpoints.add(checkpoint)
        if len(self._checkpoints) > LIMIT:
            self._checkpoints.remove(min(self._checkpoints))

    def remove(self, checkpoint: int) -> bool:
        """Forget ``checkpoint``; answers whether it was remembered."""
        if checkpoint not in self._checkpoints:
            return False
        self._checkpoints.remove(checkpoint)
        return True

    def forget(self, up_to: int) -> None:
        """Forget every id at or below ``up_to``, which is known to be old anyway."""
        self._checkpoints = {checkpoint for checkpoint in self._checkpoints if checkpoint > up_to}
