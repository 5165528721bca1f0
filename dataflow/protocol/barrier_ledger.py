"""The liveness of checkpoints as a ledger: each task owes one answer for each checkpoint that was triggered.

The barrier of a checkpoint comes to every task: as a trigger, through the channels, or behind a cancel that says that
it will not come. So from the trigger on every task owes the coordinator an answer, until one of these happens:

1. The task acknowledges: its part is durable.
2. It declines: it failed to take a snapshot, gave the checkpoint up, or passed it over for a higher one.
3. The coordinator gave the checkpoint up, and its cancel has reached the task and was carried out there.

Invariant: in a job in which nothing moves any more, and in one that has finished, no answer is owed; and no answer is
owed for long, whatever moves. Otherwise the job would wait for the timeout of the checkpoint, or a channel that waits
for a barrier would stay blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BarrierLedger"]


class BarrierLedger:
    """The answers that are owed, each by a task for a checkpoint.

    Any thread may call it: each method is one atomic operation on a dict per answer.

    >>> ledger = BarrierLedger()
    >>> ledger.triggered(7, ["source", "sink"], now=20)
    >>> ledger.settled("source", 7)
    >>> ledger.owed, ledger.owed_since
    ([('sink', 7)], 20)
    """

    __slots__ = ("_owed",)

    def __init__(self) -> None:
        self._owed: dict[tuple[str, int], int] = {}  # in the order of the triggers: the first is the oldest

    def triggered(self, checkpoint: int, tasks: Iterable[str], now: int) -> None:
        """Note that ``tasks`` will be told of ``checkpoint``; called before the first of them is."""
        for task in tasks:
            self._owed[task, checkpoint] = now

    def settled(self, task: str, checkpoint: int) -> None:
        """Note that ``task`` acknowledged or declined ``checkpoint``, or carried out its cancel; the first counts."""
        self._owed.pop((task, checkpoint), None)

    @property
    def owed(self) -> Sequence[tuple[str, int]]:
        """The tasks that owe an answer, each with the checkpoint, in the order of the triggers."""
        return list(self._owed)

    @property
    def owed_since(self) -> int | None:
        """When the oldest checkpoint that is owed an answer was triggered; None: no answer is owed."""
        return next(iter(list(self._owed.values())), None)

    def __str__(self) -> str:
        return ", ".join(f"{task} owes an answer for checkpoint {checkpoint}" for task, checkpoint in self.owed)
