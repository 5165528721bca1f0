"""Liveness of checkpoints, checked: each barrier that is sent gets its answer, and no timeout is needed for that.

``BarrierLedger`` states the property; here are the moments at which it is checked. A job is *still* when all its actors
have been stepped since something moved last, and none of them did anything: from then on only time changes anything. A
still job owes no answer, and no channel of it is blocked. A job that has finished owes none, and whatever moves, none
is owed for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dataflow.clock import duration_text
from dataflow.runtime.diagnosis import who_waits_for_whom
from dataflow.runtime.inlet import GateInlet

if TYPE_CHECKING:
    from dataflow.runtime.job import Job

__all__ = ["LONGEST", "LivenessBroken", "Stillness", "check_age", "check_finished"]

LONGEST = 60_000_000
"""Microseconds of simulated time for which an answer may be owed: a tenth of the default timeout of a checkpoint."""


class LivenessBroken(BaseException):
    """A checkpoint waits for an answer that will never come. Not an ``Exception``: a restart must not hide it."""


def check_age(job: Job, now: int, longest: int = LONGEST) -> None:
    """Raise LivenessBroken if an answer has been owed for more than ``longest`` microseconds."""
    since = job.history.ledger.owed_since
    if since is not None and now - since > longest:
        raise LivenessBroken(f"for {duration_text(now - since)} {_waiting(job, now)}")


def check_finished(job: Job, now: int) -> None:
    """Raise LivenessBroken if ``job``, which has finished, owes an answer or has a checkpoint under way."""
    if job.coordinator.under_way or job.history.ledger.owed:
        raise LivenessBroken(f"the job has finished, but {_waiting(job, now)}")


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

    def idle(self, actor: str, now: int, actors: Iterable[str], *, writing: bool) -> bool:
        """Note that ``actor`` was stepped and did nothing; return whether the job is still but for background work.

        Args:
            actors: all that could do something.
            writing: work in the background is not done yet, so answers may still come.

        Raises: LivenessBroken if the job is still, and an answer is owed or a channel blocked.
        """
        self._idle.add(actor)
        if not self._idle.issuperset(actors):
            return False
        if not writing:
            self._check(now)
        return True

    def _check(self, now: int) -> None:
        job = self._job
        gates = [task.inlet.gate for task in job.tasks.values() if isinstance(task.inlet, GateInlet)]
        if job.coordinator.under_way or job.history.ledger.owed or any([gate.blocked for gate in gates]):
            raise LivenessBroken(f"nothing moves any more, but {_waiting(job, now)}")


def _waiting(job: Job, now: int) -> str:
    under_way = ", ".join(map(str, job.coordinator.under_way)) or "none"
    owed = str(job.history.ledger) or "no task owes an answer"
    return f"{owed}; checkpoints under way: {under_way}:\n{who_waits_for_whom(job, now)}"
