"""Liveness of checkpoints, checked: every barrier that was sent gets its answer, and no timeout is needed for that.

A job is *still* when all its actors have been stepped since something moved last, and none of them did anything: from
then on only time changes anything. By then each task must have acknowledged or declined every checkpoint that was
triggered, or have been told that it was withdrawn; otherwise the job would wait for the checkpoint's timeout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dataflow.runtime.diagnosis import who_waits_for_whom

if TYPE_CHECKING:
    from dataflow.runtime.job import Job

__all__ = ["LivenessBroken", "Stillness"]


class LivenessBroken(BaseException):
    """A checkpoint waits for an answer that will never come. Not an ``Exception``: a restart must not hide it."""


class Stillness:
    """Finds out when ``job`` is still, and checks it then. The scheduler reports every step.

    Invariant: all of ``_idle`` were stepped, and did nothing, since something moved last.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._idle: set[str] = set()

    def moved(self) -> None:
        """Something moved."""
        self._idle.clear()

    def idle(self, actor: str, now: int, actors: Iterable[str]) -> None:
        """``actor`` was stepped and did nothing; ``actors`` are all that could do something.

        Raises: LivenessBroken if the job is still and a checkpoint waits for an answer.
        """
        self._idle.add(actor)
        if self._job.coordinator.under_way and self._idle.issuperset(actors):
            raise LivenessBroken(f"nothing moves any more, but {self._waiting(now)}")

    def ended(self, now: int) -> None:
        """The job finished: nothing may be under way.

        Raises: LivenessBroken if a checkpoint is.
        """
        if self._job.coordinator.under_way:
            raise LivenessBroken(f"the job has finished, but {self._waiting(now)}")

    def _waiting(self, now: int) -> str:
        under_way = ", ".join(map(str, self._job.coordinator.under_way))
        return f"checkpoint {under_way} is under way; expected an answer of every task:\n" + who_waits_for_whom(
            self._job, now
        )
