"""What a job that goes on where it was killed goes back to: the report of a restore, as the local runner gives it.

Nothing is delivered twice, and nothing is in flight between two micro-batches. The state of operators is Spark's: how
large it is, and how long it takes to bring it back, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataflow.contracts.checkpointing import Mode
from dataflow.planning.physical_plan import task_id
from dataflow.runners.spark.placement import Hosting
from dataflow.runners.spark.source_tasks import Assignment, splits_of
from dataflow.runtime.restore.new_input import new_input
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.task_input import SplitState

__all__ = ["restored"]


def restored(assignment: Assignment, done: int) -> RestoreReport | None:
    """The restore of what stood behind ``done`` micro-batches; None: none was done.

    To be asked before what lanes left of the micro-batch that was cut short is forgotten: it tells the rows read again.
    Warns of splits that came after the job began, and names them in the report.
    """
    home, plan = assignment.home, assignment.stages.plan
    if not assignment.stages.lanes:  # Spark's own readers take what is new
        return _of_readers(assignment, done) if done else None
    not_read = new_input(plan, _known(assignment, done), f"the job in {home.path}") if home.used else ()
    if not done:
        return None
    then, later = (_splits(assignment, round_) for round_ in (done, done + 1))
    left = {key: split for key, split in then.items() if not split.done}
    return RestoreReport(
        checkpoint=done,
        location=str(home.path),
        mode=Mode.ALIGNED,
        finished=not left,
        offsets={key: split.offset for key, split in left.items()},
        replayed={
            key: (later[key].rows or 0) - split.rows if key in later else 0
            for key, split in left.items()
            if split.rows is not None
        },
        state_bytes=None,
        not_read=not_read,
    )


def _known(assignment: Assignment, done: int) -> Mapping[str, set[str]]:
    """The splits of each source that the job began with."""
    found: dict[str, set[str]] = {vertex.head.name: set() for vertex, _ in assignment.stages.lanes}
    for vertex, subtask in assignment.stages.lanes:
        lane = assignment.home.task(task_id(vertex.name, subtask), done)
        found[vertex.head.name].update(state.split.id for state in (splits_of(lane) if lane is not None else ()))
    return found


def _of_readers(assignment: Assignment, done: int) -> RestoreReport:
    """Spark's own readers know where they go on, but not how many rows that is, nor whether there will be any."""
    stages = assignment.stages
    names = [v.head.name for v in stages.plan.vertices.values() if stages.hosting[v.name] is Hosting.READER]
    offsets = assignment.home.offsets(done)
    if len(offsets) != len(names):  # one DataFrame for two sources is read once
        names = [", ".join(names)] * len(offsets)
    found = {f"{name}/{number}": offset for number, (name, offset) in enumerate(zip(names, offsets, strict=True))}
    return RestoreReport(
        checkpoint=done,
        location=str(assignment.home.path),
        mode=Mode.ALIGNED,
        finished=False,
        offsets=found,
        state_bytes=None,
    )


def _splits(assignment: Assignment, round_: int) -> Mapping[str, SplitState]:
    """The splits of the lanes that have come to micro-batch ``round_``, by "source/split"."""
    lanes = [
        (vertex.head.name, assignment.home.task(task_id(vertex.name, subtask), round_))
        for vertex, subtask in assignment.stages.lanes
    ]
    return {
        f"{source}/{split.split.id}": split for source, lane in lanes if lane is not None for split in splits_of(lane)
    }
