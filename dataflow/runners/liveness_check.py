"""Check the liveness of checkpoints and of time: tasks settle every checkpoint without waiting for a timeout.

``BarrierLedger`` defines the property; this module checks it. A job is *still* if each of its actors has been stepped
without effect since the last step with an effect: then only time can change its state. In a still job every checkpoint
is settled and no channel is blocked. In a finished job every checkpoint is settled, too. In any job the coordinator
aborts a checkpoint after its timeout, and tasks execute the cancel soon after that. Time by the clock goes on in every
job, whatever the wall clock does (``dataflow.protocol.clock_time``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dataflow.clock import duration_text
from dataflow.runtime.job.who_waits import who_waits_for_whom

if TYPE_CHECKING:
    from dataflow.runtime.job.job import Job

__all__ = ["LONGEST", "ClockCheck", "LivenessBroken", "Stillness", "check_age", "check_finished"]

LONGEST = 60_000_000
"""Microseconds of simulated time that a checkpoint may stay unsettled after its timeout."""


class LivenessBroken(BaseException):
    """A task will never settle a checkpoint, or time stands still. Not an ``Exception``: a restart must not hide it."""


class ClockCheck:
    """Checks that time by the clock goes on in ``job``, which began from a checkpoint with time ``stored``."""

    def __init__(self, job: Job, stored: int) -> None:
        self._job = job
        self._now, self._time = job.clock.now(), stored

    def check(self) -> None:
        """Raise LivenessBroken if time went back, or moved by less than half of the time that has passed."""
        now, time = self._job.clock.now(), self._job.clock.time()
        passed, moved = now - self._now, time - self._time
        if moved < passed // 2:
            raise LivenessBroken(f"while {passed} us passed, time by the clock moved by {moved} us to {time}")
        self._now, self._time = now, time


def check_age(job: Job, now: int, longest: int | None = None) -> None:
    """Raise LivenessBroken if a checkpoint has been unsettled for more than ``longest`` microseconds.

    The default is the checkpoint timeout plus ``LONGEST``. A shorter limit could report a job that is only slow.
    """
    longest = job.coordinator.timeout + LONGEST if longest is None else longest
    since = job.history.ledger.unsettled_since
    if since is not None and now - since > longest:
        raise LivenessBroken(f"for {duration_text(now - since)} {_waiting(job, now)}")


def check_finished(job: Job, now: int) -> None:
    """Raise LivenessBroken if ``job``, which has finished, has a checkpoint in progress or unsettled."""
    if job.coordinator.under_way or job.history.ledger.unsettled:
        raise LivenessBroken(f"the job has finished, but {_waiting(job, now)}")


class Stillness:
    """Detects when ``job`` is still, and then checks it. The scheduler reports every step.

    Invariant: each actor in ``_idle`` has been stepped without effect since the last step with an effect.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._idle: set[str] = set()

    def moved(self) -> None:
        """Record that a step had an effect."""
        self._idle.clear()

    def idle(self, actor: str, now: int, actors: Iterable[str], *, writing: bool) -> bool:
        """Record that a step of ``actor`` had no effect; return whether the job is still, except for background work.

        Args:
            actors: all actors that can be stepped.
            writing: whether background work is pending, so that tasks may still settle checkpoints.

        Raises: LivenessBroken if the job is still and a checkpoint is unsettled or a channel is blocked.
        """
        self._idle.add(actor)
        if not self._idle.issuperset(actors):
            return False
        if not writing:
            self._check(now)
        return True

    def _check(self, now: int) -> None:
        job = self._job
        blocked = any([task.task_input.blocked for task in job.tasks.values()])
        if job.coordinator.under_way or job.history.ledger.unsettled or blocked:
            raise LivenessBroken(f"nothing moves any more, but {_waiting(job, now)}")


def _waiting(job: Job, now: int) -> str:
    """Return a text for messages: the unsettled checkpoints, and the tasks that wait for each other."""
    under_way = ", ".join(map(str, job.coordinator.under_way)) or "none"
    unsettled = str(job.history.ledger) or "every task has settled its checkpoints"
    return f"{unsettled}; checkpoints under way: {under_way}:\n{who_waits_for_whom(job, now)}"
