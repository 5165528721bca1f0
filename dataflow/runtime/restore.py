"""Finding and reading the checkpoint to start from, and what is said about it afterwards.

Restoring is constructing: this module only reads. ``Restored`` is handed to the builder, which makes new tasks of it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.checkpointing import Mode
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointsExist,
    NewInputWarning,
    NoCheckpoint,
    did_you_mean,
    user_frame,
)
from dataflow.events import BarrierKind
from dataflow.graph import Read
from dataflow.operator import Json, Source
from dataflow.protocol.recovery import ByPath, Found, Fresh, Policy, Skipped, choose, differences, parse
from dataflow.runtime.parts import ChannelState, Duplicates, TaskState
from dataflow.store.folder import CheckpointFolder

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.plan import Plan
    from dataflow.store.base import CheckpointStore
    from dataflow.store.files import Buffer
    from dataflow.store.manifest import Manifest, PartHandle

__all__ = ["RestoreReport", "Restored", "find", "with_new_input"]

log = logging.getLogger("dataflow.restore")


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore went back to, and what it delivers a second time.

    A duplicate is a *delivery*: a row that an operator took before its snapshot and that is delivered there again. It
    is counted where it is delivered, so counts of different operators must not be added up: one row of a source counts
    at every operator it reaches. At the first stateful operator of a path the report is exact, behind it an upper
    bound.

    ``offsets`` maps "source/split" to the offset that is read from next (None: from the beginning). ``passed_over`` are
    newer checkpoints that could not be restored, with the reason. ``not_read`` lists the "source/split" that a source
    has now and had not when the job began: they are not part of this job and are not read.
    """

    checkpoint: int
    location: str
    mode: Mode
    finished: bool
    offsets: Mapping[str, Json] = field(default_factory=dict)
    duplicates: Sequence[Duplicates] = ()
    in_flight: Sequence[ChannelState] = ()
    passed_over: Sequence[Skipped] = ()
    state_bytes: int = 0
    not_read: Sequence[str] = ()

    @property
    def in_flight_rows(self) -> int:
        """Rows that were on their way between tasks and are re-injected into their channels."""
        return sum(state.rows for state in self.in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """The Arrow memory of those rows."""
        return sum(state.bytes for state in self.in_flight)

    def duplicated(self, operator: str | None = None) -> int:
        """Rows that are delivered again, to ``operator`` or to the one with the most."""
        counts = self.duplicated_by_operator
        return counts.get(operator, 0) if operator is not None else max(counts.values(), default=0)

    @property
    def duplicated_by_operator(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for d in self.duplicates:
            counts[d.operator] = counts.get(d.operator, 0) + d.rows
        return counts

    def rows(self, operator: str) -> pa.Table | None:
        """The rows delivered again to ``operator``: all with ``duplicates="rows"``, else a sample; None: none.

        Where its inputs have different columns, a row has null in those that its own input lacks. Raises:
        pyarrow.ArrowInvalid where inputs have the same column with different types: see ``duplicates``, by channel.
        """
        import pyarrow as pa

        tables = [d.table for d in self.duplicates if d.operator == operator]
        return pa.concat_tables(tables, promote_options="default") if tables else None

    def to_arrow(self) -> pa.Table:
        """One row per operator, subtask and channel with duplicates: operator, task, channel, rows."""
        import pyarrow as pa

        fields = ("operator", "task", "channel", "rows")
        text = pa.string()
        schema = pa.schema([("operator", text), ("task", text), ("channel", text), ("rows", pa.int64())])
        return pa.Table.from_pylist([{f: getattr(d, f) for f in fields} for d in self.duplicates], schema=schema)

    def __str__(self) -> str:
        lines = [f"restored checkpoint {self.checkpoint} from {self.location}, mode {self.mode}"]
        lines += [f"  passed over {s.checkpoint}: {s.reason}" for s in self.passed_over]
        lines += [f"  {split}: read again from {offset}" for split, offset in self.offsets.items()]
        if self.finished:
            lines.append("  that job had finished: nothing is left to read")
        lines += [f"  {split}: new since that job began, and not read" for split in self.not_read]
        for d in self.duplicates:
            lines.append(f"  {d.operator} on {d.channel}: {d.rows} rows are delivered again")
        if not self.duplicates:
            lines.append("  no row is delivered again")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint, read and verified: its manifest, the state of each task, and the report on it."""

    manifest: Manifest
    states: Mapping[str, TaskState]
    report: RestoreReport
    abandoned: Sequence[int] = ()


def find(restore: object, store: CheckpointStore, plan: Plan) -> Restored | None:
    """The checkpoint that ``restore`` asks for, whole and fitting ``plan``; None: start from the beginning.

    Raises: NoCheckpoint, CheckpointsExist, CheckpointDamaged, CheckpointMismatch (listing what differs).
    """
    request = parse(restore)
    ids = store.checkpoints()
    if isinstance(request, ByPath):
        return _by_path(Path(request.path), store, ids, plan)
    read: dict[int, tuple[Manifest, Mapping[str, TaskState]]] = {}

    def inspect(checkpoint: int) -> Found:
        try:
            manifest = store.manifest(checkpoint)
            read[checkpoint] = manifest, _states(manifest, lambda part: store.read(checkpoint, part))
        except CheckpointDamaged as damage:  # a disk that does not answer is no damage: falling back would be wrong
            return Found(damage=str(damage))
        return Found(savepoint=manifest.kind == BarrierKind.SAVEPOINT.value)

    decision = choose(request, ids, inspect, store.location)
    for skipped in decision.skipped:
        log.error("checkpoint %d is passed over: %s", skipped.checkpoint, skipped.reason)
    if isinstance(decision, Fresh):
        return None
    newer = tuple(n for n in ids if n > decision.checkpoint and not _is_savepoint(store, n))
    return _restored(*read[decision.checkpoint], store.location, plan, decision.skipped, newer)


def with_new_input(restored: Restored, plan: Plan) -> Restored:
    """``restored``, its report completed by the splits that are new; warns of them, source by source.

    A job's input is settled when it begins. What came later is for a job of its own, and must not go unnoticed.
    """
    found: list[str] = []
    for vertex in plan.vertices.values():
        if not isinstance(vertex.head.spec, Read):
            continue
        entries: list[Any] = [restored.states[task].inlet["splits"] for task in vertex.tasks]
        known = {split["id"] for splits in entries for split in splits}
        name = vertex.head.name
        new = [split for split in _listed(vertex.head.spec.source, name) if split not in known]
        found += [f"{name}/{split}" for split in new]
        if new:
            message = (
                f"{len(new)} new splits of source {name!r} (first: {new[0]!r}) are not part of the job that checkpoint "
                f"{restored.report.checkpoint} belongs to and are not read; run them as a job of their own, with "
                "another checkpoint directory"
            )
            log.warning("%s", message)
            warnings.warn(message, NewInputWarning, stacklevel=user_frame())
    return replace(restored, report=replace(restored.report, not_read=tuple(found))) if found else restored


def _listed(source: Source, name: str) -> list[str]:
    """The ids of the splits there are now; none where the source cannot say, for the restore does not need them."""
    try:
        return [split.id for split in source.splits()]
    except Exception as error:
        log.warning("source %r cannot list its splits, so new ones go unnoticed: %s", name, error)
        return []


def _is_savepoint(store: CheckpointStore, checkpoint: int) -> bool:
    """Savepoints belong to the user: a restore from before one does not give it up."""
    try:
        return store.manifest(checkpoint).kind == BarrierKind.SAVEPOINT.value
    except CheckpointDamaged:
        return False


def _by_path(path: Path, store: CheckpointStore, ids: Sequence[int], plan: Plan) -> Restored | None:
    folder = CheckpointFolder(path)
    if path.parent.resolve() == Path(store.location).resolve() and folder.exists:
        return find(folder.manifest().checkpoint, store, plan)
    if not folder.exists:
        words = [policy.value for policy in Policy]
        raise NoCheckpoint(
            f"restore={str(path)!r}{did_you_mean(str(path), words)}: there is no checkpoint in {path.absolute()}; "
            f"expected a folder with a manifest.json; restore= takes such a folder, an id, or one of {words}"
        )
    if ids:
        raise CheckpointsExist(
            f"{store.location} already holds checkpoints {list(ids)}; a job that starts from {path} needs an empty "
            "checkpoint directory of its own"
        )
    manifest = folder.manifest()
    return _restored(manifest, _states(manifest, folder.read), str(path.parent), plan, (), ())


def _states(manifest: Manifest, read: Callable[[PartHandle], Buffer]) -> Mapping[str, TaskState]:
    return {part.task: TaskState.decode(read(part)) for part in manifest.parts}


def _restored(
    manifest: Manifest,
    states: Mapping[str, TaskState],
    location: str,
    plan: Plan,
    skipped: Sequence[Skipped],
    newer: Sequence[int],
) -> Restored:
    _refuse_another(manifest, plan, location)
    offsets: dict[str, Json] = {}
    for task, state in states.items():
        splits: Any = state.inlet.get("splits", ())
        for split in splits:
            if not split["done"]:
                offsets[f"{task.partition('[')[0]}/{split['id']}"] = split["offset"]
    report = RestoreReport(
        checkpoint=manifest.checkpoint,
        location=location,
        mode=Mode(manifest.mode),
        finished=manifest.finished,
        offsets=offsets,
        duplicates=tuple(d for state in states.values() for d in state.duplicates),
        in_flight=tuple(c for state in states.values() for c in state.in_flight),
        passed_over=tuple(skipped),
        state_bytes=sum(part.size for part in manifest.parts),
    )
    return Restored(manifest, states, report, newer)


def _refuse_another(manifest: Manifest, plan: Plan, location: str) -> None:
    """A checkpoint fits if the operators that keep state are the same; stateless ones may come and go."""
    saved = [_identity(node) for node in manifest.nodes if node["stateful"]]
    now = [_identity(node) for node in plan.describe() if node["stateful"]]
    found = differences(saved, now)
    saved_tasks, tasks = [p.task for p in manifest.parts], [task for _, _, task in plan.tasks()]
    if not found and saved_tasks != tasks:
        found = [f"its tasks were {saved_tasks}, now {tasks}"]
    if found:
        listing = "".join(f"\n  {sentence}" for sentence in found)
        raise CheckpointMismatch(
            f"checkpoint {manifest.checkpoint} in {location} does not fit this pipeline; compared with "
            f"{manifest.pipeline!r} when it was taken:{listing}\n"
            "restore it with the pipeline that took it, or use another checkpoint directory"
        )


def _identity(node: Mapping[str, Any]) -> dict[str, Any]:
    """What must not change: all but the inputs, which a stateless operator put in between would rename."""
    return {key: value for key, value in node.items() if key not in ("inputs", "stateful")}
