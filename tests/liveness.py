"""Checks each job on threads for the liveness of its checkpoints, in this process and in the processes of campaigns.

The step of a job looks at its ledger: see ``dataflow.protocol.barrier_ledger``. A job that breaks the rule fails with
LivenessBroken. Simulated jobs are checked by their runner, too, but here with less patience. A job that is over asserts
its invariants, and so do its tasks, when no thread steps them any more.
"""

from __future__ import annotations

from dataflow.clock import SystemClock
from dataflow.runners.liveness_check import check_age, check_finished
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.progress import JobState

__all__ = ["LONGEST", "check_every_job"]

LONGEST = 30_000_000
"""Microseconds that a checkpoint may stay unsettled: much more than any needs here, and less than a test may take."""

SIMULATED_LONGEST = 60_000_000
"""The same in simulated time: a tenth of the default timeout."""


def check_every_job() -> None:
    """Check all jobs of this process from now on. Called once."""
    step, over, close = Job.step, Job._over, Job.close

    def checked_step(job: Job) -> bool:
        if not job.over:
            longest = LONGEST if isinstance(job.clock.machine, SystemClock) else SIMULATED_LONGEST
            check_age(job, job.clock.now(), longest)
        return step(job)

    def checked_over(job: Job, state: JobState) -> None:
        if state is JobState.FINISHED:
            check_finished(job, job.clock.now())
        over(job, state)

    def checked_close(job: Job) -> None:
        if job.over:
            for part in (job, *job.tasks.values()):
                part.validate()
        close(job)

    Job.step, Job._over, Job.close = checked_step, checked_over, checked_close  # type: ignore[method-assign]
