"""The warnings of a run: failures that did not end it. The thread that waits for the job gives them once.

They are given after the last commit, when the job has released its threads and locks. So a user who turns warnings into
errors loses nothing: the first is raised with the others as notes, and its ``result`` is the result of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dataflow.clock import duration_text
from dataflow.contracts.lateness import Lateness
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.errors import (
    BarrierflowWarning,
    CheckpointsFailedWarning,
    CommitsRetriedWarning,
    JobFailedWarning,
    LateRowsWarning,
    user_frame,
)
from dataflow.planning.graph import Graph

if TYPE_CHECKING:
    from dataflow.contracts.operator_metrics import OperatorMetrics
    from dataflow.runners.run_result import RunResult
    from dataflow.runtime.job.job import Job
    from dataflow.runtime.task.notices import Notices

__all__ = ["give_now", "late_rows", "lateness_text", "note_failure_left", "raise_warnings", "share_text", "warnings_of"]


_ENDED: Final = 1 << 61
"""Microseconds. A row with more lateness arrived after the last watermark, which is the largest time."""


def warnings_of(job: Job, operators: Iterable[OperatorMetrics]) -> list[BarrierflowWarning]:
    """Return the warnings of a job that is over; ``operators`` are its counts over all subtasks."""
    collected = job.notices.warnings()
    failures, failed, completed = job.history.failures, job.history.failed, job.history.completed
    if failures:
        collected.append(
            CheckpointsFailedWarning(
                f"{failed:,} of {failed + completed:,} checkpoints failed, so a restart would have "
                f"repeated work of more than every=; the last failure: {failures[-1]}"
            )
        )
    for sink, (times, failure) in job.committer.failures.items():
        collected.append(
            CommitsRetriedWarning(
                f"{times:,} {'commit' if times == 1 else 'commits'} of sink {sink!r} failed and had to be retried, so "
                f"its rows appeared late"
                f"{', or not at all, because the job failed' if job.error else ''}; the last failure: checkpoint "
                f"{failure.checkpoint}: {failure.error}"
            )
        )
    return [*collected, *late_rows(job.plan.logical, operators)]


def note_failure_left(notices: Notices, pipeline: str, error: BaseException | None) -> None:
    """Add a warning that the block of a failed job ended without a call that raised its ``error``."""
    notices.add(
        JobFailedWarning,
        f"job {pipeline!r} failed, but its block ended without job.wait(), which raises the error: {error!r}",
    )


def late_rows(graph: Graph, operators: Iterable[OperatorMetrics]) -> list[BarrierflowWarning]:
    """Return the warnings of each operator with partly late rows, split sessions, or late rows that no sink takes."""
    nodes = {node.name: node for node in graph}
    read = {(graph.nodes[edge.source].name, edge.tag) for node in graph for edge in node.inputs}
    advice = _advice(graph)
    collected: list[BarrierflowWarning] = []
    for o in operators:
        if o.partly_late:
            rows = "1 row" if o.partly_late == 1 else f"{o.partly_late:,} rows"
            collected.append(
                LateRowsWarning(
                    f"{rows} came too late for some windows of {o.operator!r}, whose results lack them; {advice}"
                )
            )
        if o.split_sessions:
            sessions = "1 session" if o.split_sessions == 1 else f"{o.split_sessions:,} sessions"
            collected.append(
                LateRowsWarning(
                    f"{sessions} of {o.operator!r} came out before a row that belongs to them, which is now in a "
                    f"session of its own; use emit='changes'; {advice}"
                )
            )
        counts = {LATE: o.late - o.late_right, LATE_RIGHT: o.late_right}
        sides = [tag for tag in counts if counts[tag] and o.operator in nodes and tag in nodes[o.operator].sides]
        unread = [tag for tag in sides if (o.operator, tag) not in read]
        if not o.late or (sides and not unread):
            continue
        share = share_text(o.lateness)
        how = lateness_text(o.lateness)
        readers = " and ".join(f".side({tag!r})" for tag in unread)
        instead = f"; read them with {readers}; {advice}" if unread else f"; {advice}"
        in_part = o.operator in nodes and nodes[o.operator].spec.uses_late_rows
        lacks = "may lack pairs with them" if in_part else "lacks them"
        collected.append(
            LateRowsWarning(
                f"{o.late:,} {'row' if o.late == 1 else 'rows'}{share and f' ({share})'} came too late for "
                f"{o.operator!r}, whose result {lacks}{how and f': {how}'}{instead}"
            )
        )
    return collected


def _advice(graph: Graph) -> str:
    """Return why rows may be late and what to do, as the end of a warning."""
    batch = ', or run with execution="batch", in which no row is late' if graph.bounded else ""
    return f"if the input is unordered, wait longer with delay= or lateness={batch}"


def share_text(lateness: Lateness) -> str:
    """Return the share of late rows as text, or "" if the operator does not count the rows that it checks.

    >>> share_text(Lateness(checked=3, buckets={0: 1})), share_text(Lateness())
    ('33.3% of its rows', '')
    """
    return "" if lateness.share is None else f"{lateness.share:.1%} of its rows"


def lateness_text(lateness: Lateness) -> str:
    """Return the quantiles of lateness as text, or "" if none was recorded.

    >>> lateness_text(Lateness(buckets={0: 1}, most=0))
    'half of them at most 0 us late, 90% at most 0 us, all at most 0 us'
    >>> late = Lateness()
    >>> late.add([2**63 - 1])
    >>> lateness_text(late)
    'half of them after the last watermark (emitted in finish(), or delivered again by a restore)'
    """
    if not lateness.rows:
        return ""
    if lateness.most > _ENDED:
        median = lateness.quantile(0.5)
        first = "half of them" if median > _ENDED else f"half of them at most {duration_text(median)} late, some"
        return f"{first} after the last watermark (emitted in finish(), or delivered again by a restore)"
    half, most = (duration_text(lateness.quantile(q)) for q in (0.5, 0.9))
    return f"half of them at most {half} late, 90% at most {most}, all at most {duration_text(lateness.most)}"


def give_now(notices: Notices) -> None:
    """Give the warnings that a user must see while the job runs.

    One that a filter turns into an error does not end the wait for the job; it is raised at the end.
    """
    for warning in notices.take_now():
        with suppress(BarrierflowWarning):
            warnings.warn(warning, stacklevel=user_frame())
            warning.given = True


def raise_warnings(
    collected: Sequence[BarrierflowWarning], *, result: RunResult | None = None, error: BaseException | None = None
) -> None:
    """Give each warning, with the line of the user's code that called the library.

    Args:
        collected: the warnings.
        result: the result of the run, which becomes an attribute of a warning that is raised as an exception.
        error: the error that the caller will raise. Warnings that a filter turns into errors become its notes, because
            they must not replace it.

    Raises: the first warning that the user's filters turn into an error, after all have been given.
    """
    raised: list[BaseException] = [] if error is None else [error]
    for warning in collected:
        if warning.given:
            continue
        try:
            warnings.warn(warning, stacklevel=user_frame())
        except BarrierflowWarning as exception:
            exception.result = result  # only here: result.warnings must not refer to the tables of the result
            raised.append(exception)
    for other in raised[1:]:
        raised[0].add_note(f"{type(other).__name__}: {other}")
    if raised and error is None:
        raise raised[0]
