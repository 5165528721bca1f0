"""Starts and restores of jobs: checks of the job directory, sinks taken back to the last micro-batch, and a report.

No row is delivered twice, and no row is in transit between two micro-batches. Spark stores the state of operators, so
the report has neither its size nor the time to load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from dataflow.contracts.checkpointing import Mode
from dataflow.errors import (
    CheckpointMismatch,
    CheckpointsExist,
    NoCheckpoint,
)
from dataflow.events.plan_shape import task_id
from dataflow.protocol.recovery import Policy
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.driver_events import Recording
from dataflow.runners.spark.frame_sinks import app_of
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.source_tasks import (
    Assignment,
    check_input,
    initial_states,
    positions_of,
    stored_tasks,
)
from dataflow.runners.spark.user_errors import SerializedError, original_error
from dataflow.runners.spark.worker_notes import clear_notes, wait_until_idle
from dataflow.runtime.restore.changed_tables import note_reloaded
from dataflow.runtime.restore.find_checkpoint import refuse_another
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.restore.new_input import new_input
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.restore.sink_starts import begin_sinks, note_taken_back
from dataflow.runtime.task.contract_checks import naming_sink
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.task_input import SplitState

__all__ = ["go_back", "restore_report", "start_or_restore"]


_PATIENCE: Final = 5.0
"""Seconds to wait for workers of a query that has failed. What they write later does not count."""


def start_or_restore(
    assignment: Assignment,
    recording: Recording,
    source_tasks: int,
    policy: Policy,
    readers: list[str],
    resources: ExitStack,
    notices: Notices,
) -> Driver:
    """Lock the outputs, and take sinks and tasks to the point where the job starts. All checks come first.

    Its events are recorded from here on, so that all micro-batches are in them.
    """
    directory, plan = assignment.directory, assignment.spark_plan.plan
    if directory.has_job and policy is Policy.NEVER:
        raise CheckpointsExist(
            f'restore="never": {directory.path} already has a job; use another directory, or resume it with '
            'restore="auto"'
        )
    if not directory.has_job and policy is Policy.LATEST:
        raise NoCheckpoint(f'restore="latest": {directory.path} has no job; use restore="auto" to start one')
    done = directory.done if directory.has_job else 0
    if directory.has_job:
        directory.check_job_id()
        saved = directory.read_job()
        refuse_another(saved["nodes"], saved["tasks"], f"the job in {directory.path}", saved["pipeline"], plan)
        if saved["readers"] != readers:
            raise CheckpointMismatch(
                f"the job in {directory.path} was started with SparkRunner(sources=) for {saved['readers']}, "
                f"found {readers}: pass the same sources, or start over in a new directory"
            )
        directory.check_complete(stored_tasks(assignment, done))  # after the check of readers, on which tasks depend
        check_input(assignment, done)
    else:
        directory.check_new()
    report = restore_report(assignment, done)
    if directory.has_job:
        directory.drop_after(done)
    clear_notes(directory)
    app = app_of(None if directory.temporary else directory.path, assignment.spark_plan.frame_sinks, notices)
    driver = Driver(assignment, done, report, notices, app)
    with driver.notices.as_notes():
        if directory.has_job:
            note_reloaded(notices, directory.read_job()["nodes"], f"the job in {directory.path}", plan)
        job = directory.read_job()["job"] if directory.has_job else random_id(None)
        resources.callback(driver.events.close)
        driver.events.open(recording, job, assignment.spark_plan, notices)
        fixed = {"job": job, "pipeline": recording.pipeline, "source_tasks": source_tasks, "readers": readers}
        _restore_sinks(driver, fixed, resources)
    driver.events.begin(done)
    return driver


def _restore_sinks(driver: Driver, fixed: Mapping[str, object], resources: ExitStack) -> None:
    """Lock the sinks, take back commits of micro-batches that are not done, and open the sinks of the driver.

    ``fixed``: what the directory of a new job says of it, besides the plan.
    """
    assignment, done = driver.assignment, driver.done
    directory, plan = assignment.directory, assignment.spark_plan.plan
    for sink in driver.sinks.values():
        resources.enter_context(sink.hold(assignment.run_id))
    if directory.has_job:
        _take_back(driver, done)
    else:
        begin_sinks(assignment.spark_plan.graph, driver.sinks, driver.notices)
        tasks = [task for _, _, task in plan.tasks()]
        slots = list(assignment.spark_plan.slots)
        own = {"key_groups": plan.max_key_groups, "slots": slots, "nodes": plan.describe(), "tasks": tasks}
        directory.create({**fixed, **own}, initial_states(assignment.spark_plan))
    try:
        resources.enter_context(driver)
    except SerializedError as error:
        raise original_error(error) from None


def _take_back(driver: Driver, done: int) -> None:
    """Take back what sinks committed after micro-batch ``done``, and delete what was staged."""
    for name, sink in driver.sinks.items():
        with naming_sink(name, sink, "recover"):
            taken_back = sink.recover(done, [])
        note_taken_back(driver.notices, name, taken_back, f"micro-batch {done + 1} was cut short")


def go_back(driver: Driver) -> None:
    """Take sinks and tasks back to the last micro-batch that Spark counts as done, after the query has failed.

    Raises: DirectoryInUse if another run has the directory; CheckpointDamaged if it is not complete.
    """
    assignment, directory = driver.assignment, driver.assignment.directory
    wait_until_idle(directory, _PATIENCE)
    directory.check_owner(assignment.run_id)
    done = directory.done
    directory.check_complete(stored_tasks(assignment, done))
    directory.drop_after(done)
    clear_notes(directory)
    _take_back(driver, done)
    driver.go_back(done)


def restore_report(assignment: Assignment, done: int) -> RestoreReport | None:
    """Return the report of a restore after ``done`` micro-batches; None: no micro-batch was done.

    Call it before the states of the aborted micro-batch are deleted, because they tell the number of rows read again.
    Splits that are new since the job was started are in the report, with a warning.
    """
    directory, plan = assignment.directory, assignment.spark_plan.plan
    if not assignment.spark_plan.source_tasks:  # Spark's own readers read new input
        return _report_of_readers(assignment, done) if done else None
    not_read = new_input(plan, _known(assignment, done), f"the job in {directory.path}") if directory.has_job else ()
    if not done:
        return None
    then, later = (_splits(assignment, round_) for round_ in (done, done + 1))
    left = {key: split for key, split in then.items() if not split.done}
    return RestoreReport(
        checkpoint=done,
        location=str(directory.path),
        mode=Mode.ALIGNED,
        finished=not left,
        offsets={key: split.offset for key, split in left.items()},
        replayed={key: later[key].rows - split.rows if key in later else 0 for key, split in left.items()},
        state_bytes=None,
        not_read=not_read,
    )


def _known(assignment: Assignment, done: int) -> Mapping[str, set[str]]:
    """Return the ids of the splits that the job was started with, by source."""
    known: dict[str, set[str]] = {vertex.head.name: set() for vertex, _ in assignment.spark_plan.source_tasks}
    for vertex, subtask in assignment.spark_plan.source_tasks:
        state = assignment.directory.read_task(task_id(vertex.name, subtask), done)
        known[vertex.head.name].update(
            split.id for split in (positions_of(assignment, state).listed if state is not None else ())
        )
    return known


def _report_of_readers(assignment: Assignment, done: int) -> RestoreReport:
    """Return the report for Spark's own readers, which store positions, but no numbers of rows."""
    spark_plan = assignment.spark_plan
    names = [
        v.head.name
        for v in spark_plan.plan.vertices.values()
        if spark_plan.placements[v.name] is Placement.NATIVE_READER
    ]
    offsets = assignment.directory.spark_offsets(done)
    if len(offsets) != len(names):  # one DataFrame for two sources is read once
        names = [", ".join(names)] * len(offsets)
    positions = {f"{name}/{number}": offset for number, (name, offset) in enumerate(zip(names, offsets, strict=True))}
    return RestoreReport(
        checkpoint=done,
        location=str(assignment.directory.path),
        mode=Mode.ALIGNED,
        finished=False,
        offsets=positions,
        state_bytes=None,
    )


def _splits(assignment: Assignment, round_: int) -> Mapping[str, SplitState]:
    """Return the splits of the source tasks that have a state before micro-batch ``round_``, by "source/split"."""
    states = [
        (vertex.head.name, assignment.directory.read_task(task_id(vertex.name, subtask), round_))
        for vertex, subtask in assignment.spark_plan.source_tasks
    ]
    return {
        f"{source}/{split.split.id}": split
        for source, state in states
        if state is not None
        for split in positions_of(assignment, state).all()
    }
