"""Report which tasks and checkpoints wait for which, for a job that does not progress."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dataflow.runtime.task.progress import Progress

if TYPE_CHECKING:
    from dataflow.runtime.job.job import Job
    from dataflow.runtime.task.task import Task

__all__ = ["who_waits_for_whom"]

_TRIES = 10


def who_waits_for_whom(job: Job, now: int) -> str:
    """Return one line per task and per cause of waiting. Read without locks, so it may be inconsistent."""
    for _ in range(_TRIES):
        with suppress(RuntimeError):  # a set changed size while it was read, so the job progresses
            return _report(job, now)
    return "tasks change state too fast to show which waits for which"


def _report(job: Job, now: int) -> str:
    lines = []
    for name, task in job.tasks.items():
        lines.append(f"{name}: {task.state.value}, {task.steps} steps")
        lines += [f"  {cause}" for cause in _causes(task, now)]
    pending = job.history.under_way
    lines += [f"checkpoint {n} waits for {', '.join(tasks)}" for n, tasks in pending.items()]
    lines += job.savepoints.at_work
    lines += job.predicates.at_work
    return "\n".join(lines)


def _causes(task: Task, now: int) -> list[str]:
    causes = []
    if (working := task.chain.working) is not None:
        causes.append(f"busy in operator {working.name!r}, which took {working.tally.rows_in} rows so far")
    if task.state is Progress.BACK_PRESSURED:
        causes += [f"full: {c.name} ({c.queued_rows} rows queued)" for c in task.awaited]
    if task.put_back:
        causes.append(f"takes rows that the restore put back before its input: {task.put_back.rows} are left")
    return [*causes, *task.task_input.causes(task.state, now)]
