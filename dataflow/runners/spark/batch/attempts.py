"""Attempts at the tasks of a batch: all rows of a task must come from the same one.

When Spark loses an executor, it runs again the tasks whose output was there. Tasks after them that are done keep what
they had taken of the first attempt; the others take from the second. If the two attempts distributed rows differently,
rows would be missing or there twice. So each envelope has the number of the attempt that sent it, each task reports
which attempts it took rows of, and the driver compares them before the checkpoint.

Two attempts at a source task without a user's functions send the same rows to the same tasks, so they may be mixed. Two
attempts at a task that takes rows that Spark has computed may get them in another order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import Plan, Vertex, vertex_of
from dataflow.planning.specs import Read
from dataflow.runners.spark.placeholders import PlaceholderSource
from dataflow.runners.spark.task_report import TaskReport

__all__ = ["mixed_attempts"]


def mixed_attempts(
    plan: Plan, reports: Iterable[tuple[TaskReport, int]], rows: Iterable[tuple[int, int, int]]
) -> list[str]:
    """Return the tasks of which rows, or the report, come from several attempts that may differ.

    Args:
        plan: the plan of the batch.
        reports: the report of each task, with the number of the attempt that it comes from.
        rows: for rows that the driver got, their link, the subtask that sent them, and its attempt.
    """
    attempts: dict[str, set[int]] = defaultdict(set)
    taken = list(rows)
    for report, attempt in reports:
        attempts[report.task].add(attempt)
        taken += report.taken
    for link, source, attempt in taken:
        attempts[task_id(plan.links[link].source, source)].add(attempt)
    return sorted(
        task for task, found in attempts.items() if len(found) > 1 and not _repeats(plan.vertices[vertex_of(task)])
    )


def _repeats(vertex: Vertex) -> bool:
    """Return whether each attempt at a subtask sends the same rows to the same tasks."""
    spec = vertex.head.spec
    reads = isinstance(spec, Read) and not isinstance(spec.source, PlaceholderSource)
    return reads and not any(node.spec.calls_users_code for node in vertex.nodes)
