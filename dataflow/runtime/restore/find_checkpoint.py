"""Find and read the checkpoint to start from.

This module only reads; the builder makes new tasks from the ``RestoredCheckpoint``.

A checkpoint is an untrusted document (``dataflow.untrusted``). The assumptions of the plan are checked here, while a
restore can still fall back to an older checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.evolution import NO_CHANGES, Changes, Evolved
from dataflow.contracts.execution import Execution
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointsExist,
    ConfigurationError,
    NoCheckpoint,
    did_you_mean,
)
from dataflow.planning.duplicate_precision import precisions
from dataflow.planning.physical_plan import vertex_of
from dataflow.protocol.events import BarrierKind, EndOfInput
from dataflow.protocol.recovery import ByPath, Found, Fresh, Policy, Skipped, choose, differences, parse
from dataflow.runtime.restore.changed_tables import refuse_changed_tables
from dataflow.runtime.restore.evolution import advice_for, evolve, refuse_rows_after_end
from dataflow.runtime.restore.regroup import has_moved, regroup, rescaled
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.restore.rows_read_again import open_splits, rows_read_again
from dataflow.runtime.restore.stored_job import StoredJob
from dataflow.runtime.task.parts import TaskState
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import LOG, STATE
from dataflow.untrusted import damaged_by, excerpt

if TYPE_CHECKING:
    from dataflow.contracts.checkpointing import Checkpointing
    from dataflow.planning.physical_plan import Plan
    from dataflow.store.base import CheckpointStore
    from dataflow.store.files import Buffer
    from dataflow.store.manifest import Manifest, PartHandle

__all__ = [
    "RestoreReport",
    "RestoredCheckpoint",
    "find",
    "refuse_another",
    "refuse_larger",
    "refuse_without_store",
    "report_on",
    "states_of",
]

log = logging.getLogger("dataflow.restore")


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """A checkpoint, read and verified: its manifest, the state of each task, and the report on it.

    ``states`` has the state of each task of the plan. It is regrouped if ``moved``, because other tasks stored it.
    ``abandoned`` are newer checkpoints, which the restore deletes. ``damaged`` are newer checkpoints that could not be
    read. ``is_elsewhere``: it is in another directory than the one that the job writes to.
    """

    manifest: Manifest
    states: Mapping[str, TaskState]
    report: RestoreReport
    abandoned: Sequence[int] = ()
    damaged: Sequence[Skipped] = ()
    is_elsewhere: bool = False
    moved: bool = False
    new: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    """A checkpoint that was read: what it stored, and the states of the tasks of the plan.

    ``job`` is what it stored, with the names of the plan and the changes in ``evolved``, and ``manifest`` describes
    that. ``refusal`` says why it does not fit the plan, if so.
    """

    manifest: Manifest
    stored: Mapping[str, TaskState]
    job: StoredJob
    states: Mapping[str, TaskState]
    moved: bool = False
    evolved: Sequence[Evolved] = ()
    refusal: CheckpointMismatch | None = None


def find(
    restore: object,
    store: CheckpointStore,
    plan: Plan,
    limit: int | None = None,
    verify: Callable[[Manifest, Mapping[str, TaskState]], None] = lambda manifest, states: None,
    note: Callable[[str], None] = lambda text: None,
    changes: Changes = NO_CHANGES,
) -> RestoredCheckpoint | None:
    """Return the checkpoint that ``restore`` selects, complete and fit for ``plan``; None: start from the beginning.

    ``changes`` are those that the user allows between the checkpoint and the plan.
    ``limit``: see ``Checkpointing(max_restore_bytes=)``. ``verify`` is called for checkpoints of this plan; it raises
    ``CheckpointDamaged`` if one cannot be restored. ``note`` is called with warnings of the regrouping.

    Raises: NoCheckpoint, CheckpointsExist, CheckpointDamaged, CheckpointMismatch (listing what differs);
    ConfigurationError for a checkpoint of more bytes than ``limit``.
    """
    request = parse(restore)
    ids = store.checkpoints()
    if isinstance(request, ByPath):
        return _by_path(Path(request.path), store, ids, plan, limit, verify, note, changes)
    fit = _Fit(plan, note, changes)
    read: dict[int, _Read] = {}

    def inspect(checkpoint: int) -> Found:
        try:
            size, where = store.manifest_size(checkpoint), f"checkpoint {checkpoint} in {store.location}"
            refuse_larger(size, limit, where)
            manifest = store.manifest(checkpoint)
            refuse_larger(size + _bytes(manifest), limit, where)
            states = states_of(manifest, lambda part: store.read(checkpoint, part))
            is_savepoint = manifest.kind == BarrierKind.SAVEPOINT.value
            # other requests pass savepoints over
            tried = verify if isinstance(request, int) or not is_savepoint else _untried
            read[checkpoint] = fit.fitted(manifest, states, store.location, tried)
        except CheckpointDamaged as damage:  # not an I/O error: falling back because of one would be wrong
            return Found(damage=str(damage))
        return Found(savepoint=is_savepoint)

    decision = choose(request, ids, inspect, store.location)
    if isinstance(decision, Fresh):
        return None
    newer = tuple(n for n in ids if n > decision.checkpoint and not _is_savepoint(store, n))
    damaged = [skipped for skipped in decision.skipped if not _is_savepoint(store, skipped.checkpoint)]
    restored = _restored(read[decision.checkpoint], store.location, store, plan, decision.skipped, newer, limit)
    return replace(restored, damaged=damaged)


def report_on(store: CheckpointStore, manifest: Manifest, states: Mapping[str, TaskState]) -> RestoreReport:
    """Return the report that a restore of a checkpoint of ``store`` would give now. It needs no pipeline.

    ``states`` are those of the checkpoint. Raises: CheckpointDamaged, StoreError.
    """
    with damaged_by(f"checkpoint {manifest.checkpoint} in {store.location}"):
        return _report(manifest, states, store.location, rows_read_again(store, manifest.checkpoint, states), ())


def _is_savepoint(store: CheckpointStore, checkpoint: int) -> bool:
    """Return whether a checkpoint is a savepoint: it belongs to the user, so restoring an older one keeps it."""
    try:
        return store.manifest(checkpoint).kind == BarrierKind.SAVEPOINT.value
    except CheckpointDamaged:
        return False


def _by_path(
    path: Path,
    store: CheckpointStore,
    ids: Sequence[int],
    plan: Plan,
    limit: int | None,
    verify: Callable[[Manifest, Mapping[str, TaskState]], None],
    note: Callable[[str], None],
    changes: Changes,
) -> RestoredCheckpoint | None:
    folder = CheckpointFolder(path)
    refuse_larger(folder.manifest_size, limit, str(path))
    if path.parent.resolve() == Path(store.location).resolve() and folder.exists:
        return find(folder.manifest().checkpoint, store, plan, limit, verify, note, changes)
    if not folder.exists:
        policies = [policy.value for policy in Policy]
        raise NoCheckpoint(
            f"restore={str(path)!r}{did_you_mean(str(path), policies)}: there is no checkpoint in {path.absolute()}; "
            f"expected a folder with a manifest.json; restore= takes such a folder, an id, or one of {policies}"
        )
    if ids:
        raise CheckpointsExist(
            f"{store.location} already holds checkpoints {list(ids)}; a job that starts from {path} needs an empty "
            "checkpoint directory of its own"
        )
    with folder.pin():  # a job that runs there may replace the checkpoint meanwhile
        manifest = folder.manifest()
        folder.check_complete(manifest)
        refuse_larger(folder.manifest_size + _bytes(manifest), limit, str(path))
        states = states_of(manifest, folder.read)
    read = _Fit(plan, note, changes).fitted(manifest, states, str(path.parent), verify)
    restored = _restored(read, str(path.parent), store, plan, (), (), limit)
    return replace(restored, is_elsewhere=True)


def _bytes(manifest: Manifest) -> int:
    return sum(part.size for part in manifest.parts)


def refuse_larger(size: int, limit: int | None, what: str) -> None:
    """Raise ConfigurationError if ``what`` has more bytes than ``limit`` allows.

    This is no reason to fall back: older checkpoints are about as large, and the user has to raise the limit.
    """
    if limit is not None and size > limit:
        raise ConfigurationError(
            f"{what} has at least {size:,} bytes, more than max_restore_bytes={limit:,}: raise the limit if you trust "
            "where the checkpoint comes from, or restore another one"
        )


def refuse_without_store(restore: object, checkpoint: Checkpointing | None) -> None:
    """Raise ConfigurationError if ``restore`` selects a checkpoint of the job's store, but the job has no store.

    A path needs no store: the job starts from that checkpoint, and takes none of its own.
    """
    request = parse(restore)
    if checkpoint is None and (request is Policy.LATEST or isinstance(request, int)):
        value = request if isinstance(request, int) else request.value
        raise ConfigurationError(
            f"restore={value!r} needs checkpoint=Checkpointing(...), which has the location of the checkpoints"
        )


def states_of(manifest: Manifest, read: Callable[[PartHandle], Buffer]) -> Mapping[str, TaskState]:
    """Return the state of each task, in the order of the tasks; ``read`` returns the bytes of an object.

    Raises: CheckpointDamaged; the errors of ``read``.
    """
    states = {}
    with damaged_by(f"the operators of checkpoint {manifest.checkpoint}"):
        precisions(manifest.nodes, _mode(manifest))
    logs: dict[str, list[PartHandle]] = {}
    for part in manifest.parts:
        if part.part == LOG:
            logs.setdefault(part.task, []).append(part)
    for part in _tasks(manifest):
        try:
            objects = [(log.checkpoint or manifest.checkpoint, read(log)) for log in logs.get(part.task, ())]
            states[part.task] = TaskState.decode(read(part), objects)
        except CheckpointDamaged as damage:
            raise CheckpointDamaged(f"the part of task {excerpt(part.task)}: {damage}") from damage
        if states[part.task].task != part.task:
            raise CheckpointDamaged(
                f"the part of task {excerpt(part.task)} holds the state of task {excerpt(states[part.task].task)}"
            )
    return states


def _tasks(manifest: Manifest) -> list[PartHandle]:
    """Return the state of each task, in the order of the tasks."""
    return [part for part in manifest.parts if part.part == STATE]


def _untried(manifest: Manifest, states: Mapping[str, TaskState]) -> None:
    """Try no restore."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Makes stored states fit a plan: evolved by the changes that are allowed, compared, and regrouped."""

    plan: Plan
    note: Callable[[str], None]
    changes: Changes

    def fitted(
        self,
        manifest: Manifest,
        stored: Mapping[str, TaskState],
        location: str,
        verify: Callable[[Manifest, Mapping[str, TaskState]], None],
    ) -> _Read:
        """Return a checkpoint with the states of the plan's tasks. ``_restored`` will refuse one of another pipeline.

        Raises: CheckpointDamaged; ConfigurationError for changes that cannot be; the errors of ``verify``.
        """
        what = f"checkpoint {manifest.checkpoint} in {location}"
        job = StoredJob(manifest.nodes, stored, manifest.transactions, manifest.targets, manifest.earlier_targets)
        evolved: Sequence[Evolved] = ()
        try:
            _refuse_other_execution(manifest, what, self.plan)
            if self.plan.execution is Execution.STREAMING:
                with damaged_by(what), _naming(what):
                    job, evolved = evolve(job, self.plan, self.changes)
            self._refuse_others(job, what, manifest.pipeline)
            states, moved = self._of_plan(job, what, must_move=bool(evolved))
        except CheckpointMismatch as refusal:
            return _Read(manifest, stored, job, stored, refusal=refusal)
        manifest = msgspec.structs.replace(
            manifest,
            nodes=tuple(job.nodes),
            transactions={name: [*h] for name, h in job.transactions.items()},
            targets=dict(job.targets),
            earlier_targets={name: tuple(left) for name, left in job.earlier_targets.items()},
        )
        verify(manifest, states)
        return _Read(manifest, stored, job, states, moved, evolved)

    def _refuse_others(self, job: StoredJob, what: str, pipeline: str) -> None:
        """Raise CheckpointMismatch unless the plan has the same operators."""
        if self.plan.execution is Execution.BATCH:
            return refuse_another(job.nodes, list(job.states), what, pipeline, self.plan)
        with damaged_by(what):
            mismatches = _mismatches(job.nodes, self.plan, {"parallelism"}, job.new)
            if mismatches:
                advice = advice_for(job, self.plan, self.changes)
                _refuse_differing(mismatches, what, pipeline, advice)
            refuse_changed_tables(job.nodes, what, self.plan)

    def _of_plan(self, job: StoredJob, what: str, *, must_move: bool) -> tuple[Mapping[str, TaskState], bool]:
        """Return the states of the tasks of the plan, and whether these are made of other tasks."""
        plan = self.plan
        if plan.execution is Execution.BATCH or not (must_move or has_moved(job.nodes, job.states, plan)):
            _check_states(job.states, plan)
            return job.states, False
        with damaged_by(what):
            states = regroup(job.nodes, job.states, plan, self.note)
        with _naming(what):
            refuse_rows_after_end(states, plan)
        return states, True


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Name the checkpoint in the reason why it does not fit."""
    try:
        yield
    except CheckpointMismatch as error:
        raise CheckpointMismatch(f"{what} does not fit this pipeline: {error}") from error


def _check_states(states: Mapping[str, TaskState], plan: Plan) -> None:
    """Check the assumptions that tasks of ``plan`` make about their states. Raises: CheckpointDamaged."""
    inputs: dict[str, list[str]] = {task: [] for task in states}
    senders: dict[str, str] = {}
    for link in plan.links:
        for ends in plan.channel_ids(link).values():
            inputs[ends.target].append(ends.source)
            senders[ends.name] = ends.source
    for task, before in inputs.items():
        state = states[task]
        entries: Any = state.inlet.get("watermarks" if before else "splits")
        if entries is None or (before and len(entries) != len(before)):
            expected = f"{len(before)} watermarks" if before else "splits"
            raise CheckpointDamaged(f"task {task!r} should have {expected}, found {excerpt(entries)}")
        if state.ended and not all([states[other].ended for other in before]):
            raise CheckpointDamaged(f"task {task!r} had ended, but not all tasks upstream of it")
        for flying in state.in_flight:
            sender = senders.get(flying.channel)
            complete = bool(flying.elements) and isinstance(flying.elements[-1], EndOfInput)
            if complete and sender is not None and not states[sender].ended:
                raise CheckpointDamaged(
                    f"channel {flying.channel!r} holds the end of input of task {sender!r}, which had not ended"
                )
    channels = [flying.channel for state in states.values() for flying in state.in_flight]
    if len(set(channels)) < len(channels):
        raise CheckpointDamaged("a channel has two states in flight")
    if plan.execution is Execution.BATCH:
        return  # a batch stores what its sinks must commit, and no state
    for vertex, _, task in plan.tasks():
        lacking = [node.name for node in vertex.nodes if node.stateful and not states[task].snapshots(node.name)]
        if lacking:
            raise CheckpointDamaged(f"the part of task {task!r} has no state of operator {lacking[0]!r}")


def _restored(
    read: _Read,
    location: str,
    store: CheckpointStore,
    plan: Plan,
    skipped: Sequence[Skipped],
    newer: Sequence[int],
    limit: int | None,
) -> RestoredCheckpoint:
    if read.refusal is not None:
        raise read.refusal
    manifest, stored = read.manifest, read.stored
    # traces of later checkpoints have the old names
    again = rows_read_again(store, manifest.checkpoint, stored, limit)
    report = _report(manifest, read.job.states, location, again, skipped)
    if read.evolved:
        report = replace(report, replayed=_under_new_names(again, stored, read.job.states), evolved=read.evolved)
    if read.moved:
        report = replace(report, rescaled=rescaled(manifest.nodes, plan))
    return RestoredCheckpoint(manifest, read.states, report, newer, moved=read.moved, new=read.job.new)


def _under_new_names(
    counts: Mapping[str, int], stored: Mapping[str, TaskState], states: Mapping[str, TaskState]
) -> dict[str, int]:
    """Return counts by "source/split" with the names of sources of now, without sources that are dropped."""
    names = {vertex_of(old): vertex_of(new) for old, new in zip(stored, states, strict=True)}
    renamed = {f"{names[key.partition('/')[0]]}/{key.partition('/')[2]}": count for key, count in counts.items()}
    return {key: count for key, count in renamed.items() if key in open_splits(states)}


def _report(
    manifest: Manifest,
    states: Mapping[str, TaskState],
    location: str,
    replayed: Mapping[str, int],
    skipped: Sequence[Skipped],
) -> RestoreReport:
    mode = _mode(manifest)
    return RestoreReport(
        checkpoint=manifest.checkpoint,
        location=location,
        mode=mode,
        finished=manifest.finished,
        offsets={key: split["offset"] for key, split in open_splits(states).items()},
        replayed=replayed,
        duplicates=tuple(d for state in states.values() for d in state.duplicates),
        precision=precisions(manifest.nodes, mode),
        in_flight=tuple(c for state in states.values() for c in state.in_flight),
        passed_over=tuple(skipped),
        state_bytes=_bytes(manifest),
        repeated=manifest.repeated,
        earlier_targets=manifest.earlier_targets,
    )


def _mode(manifest: Manifest) -> Mode:
    """Return the mode that the checkpoint was taken with. Raises: CheckpointDamaged."""
    if manifest.mode not in [mode.value for mode in Mode]:
        raise CheckpointDamaged(f"checkpoint {manifest.checkpoint} has an unknown mode: {excerpt(manifest.mode)}")
    return Mode(manifest.mode)


def _refuse_other_execution(manifest: Manifest, what: str, plan: Plan) -> None:
    if manifest.execution != plan.execution.value:
        raise CheckpointMismatch(
            f"{what} is of a job with execution={excerpt(manifest.execution)}, and this one has "
            f"execution={plan.execution.value!r}; streams and batches cannot continue each other, so use another "
            "checkpoint directory, or run it as it was"
        )


def refuse_another(
    nodes: Sequence[Mapping[str, Any]], saved_tasks: Sequence[str], what: str, pipeline: str, plan: Plan
) -> None:
    """Raise CheckpointMismatch unless state of another run fits ``plan``: its stateful operators must be the same, in
    the same tasks, and so must the tables of lookups.

    Stateless operators may be added or removed. ``nodes`` and ``saved_tasks`` describe the plan that ``what`` is from.
    """
    with damaged_by(what):
        _refuse_other_tasks(nodes, saved_tasks, what, pipeline, plan)
        refuse_changed_tables(nodes, what, plan)


def _refuse_other_tasks(
    nodes: Sequence[Mapping[str, Any]], saved_tasks: Sequence[str], what: str, pipeline: str, plan: Plan
) -> None:
    mismatches = _mismatches(nodes, plan)
    tasks = [task for _, _, task in plan.tasks()]
    if not mismatches and list(saved_tasks) != tasks:
        mismatches = [
            f"its tasks were {list(saved_tasks)}, now {tasks}: a task is named after its first operator, so an "
            "operator added or removed there, or after a key_by or rebalance, moves the state to another task"
        ]
    if any("parallelism was" in sentence for sentence in mismatches):
        mismatches.append("(the state of this job is restored at the parallelism it was taken with)")
    _refuse_differing(mismatches, what, pipeline)


def _mismatches(
    nodes: Sequence[Mapping[str, Any]],
    plan: Plan,
    may_differ: Collection[str] = frozenset(),
    new: Collection[str] = frozenset(),
) -> list[str]:
    """Return how the stateful operators of ``plan`` differ from ``nodes``.

    Except for the fields that may differ, and for operators that are ``new``.
    """
    described = [node for node in plan.describe() if node["name"] not in new]
    keyed = _keyed(nodes) & _keyed(described)
    saved = [_identity(node, keyed, may_differ) for node in nodes if node["stateful"]]
    return differences(saved, [_identity(node, keyed, may_differ) for node in described if node["stateful"]])


def _refuse_differing(mismatches: Sequence[str], what: str, pipeline: str, advice: str = "") -> None:
    if mismatches:
        listing = "".join(f"\n  {sentence}" for sentence in mismatches)
        raise CheckpointMismatch(
            f"{what} does not fit this pipeline; compared with {pipeline!r} when it was taken:{listing}\n"
            f"{advice}restore it with the pipeline that took it, or use another checkpoint directory"
        )


def _keyed(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the operators whose state is kept by key."""
    return {node["name"] for node in nodes if node["keys"]}


def _identity(node: Mapping[str, Any], keyed: Collection[str], may_differ: Collection[str]) -> dict[str, Any]:
    """Return the fields that must not change: all but the inputs, which change if a stateless operator is added.

    The number of key groups counts only for ``keyed`` operators, because it decides where the state of a key is.
    """
    ignored = {"inputs", "stateful"} if node["name"] in keyed else {"inputs", "stateful", "max_key_groups"}
    return {key: value for key, value in node.items() if key not in ignored and key not in may_differ}
