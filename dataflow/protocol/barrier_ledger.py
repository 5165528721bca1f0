"""The liveness of checkpoints as a ledger: each task must settle each checkpoint that was triggered.

A task learns of a checkpoint from a trigger, or from a barrier or a cancel in its channels. Once triggered, a
checkpoint is *unsettled* at each task, until one of these happens:

1. The task acknowledges it: its part is durable.
2. The task declines it: it failed to take the snapshot, aborted the checkpoint, or passed it over for a higher one.
3. The coordinator aborts it, and the task has received and carried out the cancel.

Invariant: no checkpoint is unsettled in a job that has finished or that makes no progress any more; and none stays
unsettled for long in a job that makes progress. Otherwise the job would wait for the timeout of the checkpoint, or a
channel that waits for a barrier would stay blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BarrierLedger"]


class BarrierLedger:
    """The unsettled checkpoints of each task.

    Thread-safe: each method does one atomic operation on a dict per task.

    >>> ledger = BarrierLedger()
    >>> ledger.triggered(7, ["source", "sink"], now=20)
    >>> ledger.settled("source", 7)
    >>> ledger.unsettled, ledger.unsettled_since
    ([('sink', 7)], 20)
    """

    __slots__ = ("_unsettled",)

    def __init__(self) -> None:
        self._unsettled: dict[tuple[str, int], int] = {}  # in the order of the triggers: the first is the oldest

    def triggered(self, checkpoint: int, tasks: Iterable[str], now: int) -> None:
        """Add ``checkpoint`` for ``tasks``. Call this before any of them learns of it."""
        for task in tasks:
            self._unsettled[task, checkpoint] = now

    def settled(self, task: str, checkpoint: int) -> None:
        """Remove ``checkpoint`` for ``task``: acknowledged, declined or cancelled. A repeated call changes nothing."""
        self._unsettled.pop((task, checkpoint), None)

    @property
    def unsettled(self) -> Sequence[tuple[str, int]]:
        """Pairs of a task and a checkpoint that it has not settled, in the order of the triggers."""
        return list(self._unsettled)

    @property
    def unsettled_since(self) -> int | None:
        """The trigger time of the oldest unsettled checkpoint; None if there is none."""
        return next(iter(list(self._unsettled.values())), None)

    def __str__(self) -> str:
        return ", ".join(f"{task} has not settled checkpoint {checkpoint}" for task, checkpoint in self.unsettled)
