"""What a job that goes on where it was killed goes back to: the report of a restore, as the local runner gives it.

Nothing is delivered twice, and nothing is in flight between two micro-batches. The state of operators is Spark's: how
large it is, and how long it takes to bring it back, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from dataflow.contracts.checkpointing import Mode
from dataflow.errors import (
    CheckpointMismatch,
    CheckpointsExist,
    NoCheckpoint,
)
from dataflow.planning.physical_plan import task_id
from dataflow.protocol.recovery import Policy
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.placement import Hosting
from dataflow.runners.spark.source_tasks import Assignment, beginnings, check_input, kept_tasks, splits_of
from dataflow.runners.spark.user_errors import Carrier, original
from dataflow.runners.spark.worker_notes import forget
from dataflow.runtime.job.build_job import note_taken_back
from dataflow.runtime.restore.find_checkpoint import refuse_another
from dataflow.runtime.restore.new_input import new_input
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.contract_checks import naming_sink
from dataflow.runtime.task.task_inputs import SplitState

__all__ = ["begin", "restored"]


def begin(
    assignment: Assignment, pipeline: str, lanes: int, policy: Policy, readers: list[str], held: ExitStack
) -> Driver:
    """Lock what the sinks write to, bring sinks and tasks to the point the job starts from; all checks come first."""
    home, plan = assignment.home, assignment.stages.plan
    if home.used and policy is Policy.NEVER:
        raise CheckpointsExist(f'a job lives in {home.path} and restore="never" was asked for: use another directory')
    if not home.used and policy is Policy.LATEST:
        raise NoCheckpoint(f'restore="latest": no job lives in {home.path}; restore="auto" begins one')
    done = home.done if home.used else 0
    if home.used:
        saved = home.job()
        refuse_another(saved["nodes"], saved["tasks"], f"the job in {home.path}", saved["pipeline"], plan)
        if saved.get("readers", []) != readers:
            raise CheckpointMismatch(
                f"the job in {home.path} began with Spark reading {saved.get('readers', [])}, and now it is to read "
                f"{readers}: give SparkRunner(sources=) the same, or begin in another directory"
            )
        home.check_complete(kept_tasks(assignment, done))  # whose they are depends on who reads
        check_input(assignment, done)
    else:
        home.check_new()
    report = restored(assignment, done)
    if home.used:
        home.forget_beyond(done)
    forget(home)
    driver = Driver(assignment, done, report)
    with driver.notices.as_notes():
        _bring_back(driver, lanes, pipeline, readers, held)
    return driver


def _bring_back(driver: Driver, lanes: int, pipeline: str, readers: list[str], held: ExitStack) -> None:
    """Lock the sinks, take back what micro-batches after the last one committed, and open the sinks of the driver."""
    assignment, done = driver.assignment, driver.done
    home, plan = assignment.home, assignment.stages.plan
    for sink in driver.sinks.values():
        held.enter_context(sink.hold(assignment.run_id))
    for name, sink in driver.sinks.items():
        if home.used:
            with naming_sink(name, sink, "recover"):
                taken_back = sink.recover(done, [])
            note_taken_back(driver.notices, name, taken_back, f"micro-batch {done + 1} was cut short")
        else:
            with naming_sink(name, sink, "begin"):
                sink.begin()
    if not home.used:
        tasks = [task for _, _, task in plan.tasks()]
        fixed = {"lanes": lanes, "key_groups": plan.max_key_groups, "readers": readers}
        job = {"pipeline": pipeline, **fixed, "nodes": plan.describe(), "tasks": tasks}
        home.begin(job, beginnings(assignment.stages))
    try:
        held.enter_context(driver)
    except Carrier as error:
        raise original(error) from None


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
