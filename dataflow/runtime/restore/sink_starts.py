"""How the two-phase sinks of a job start: from nothing, or from a checkpoint, whose target may be another one.

A checkpoint stores the target of each sink. A sink that still has it *recovers*: it commits the transactions of the
checkpoint, and deletes the rows that were committed later. A sink with another target *begins* there; its earlier rows
stay where they are, and the job remembers the targets that a sink has left (``EarlierTarget``).

Invariant: every check of every sink is made before any sink is changed, and each may be made again. So a crash between
two steps, or a refusal, is followed by another start that finds the same, or what the first one has committed.

Rules:
- A job that starts from a checkpoint *elsewhere*, outside of its own directory, deletes no rows that were committed
  after the checkpoint, unless ``take_back`` is true: the job that took the checkpoint may have continued.
- A job that restores an older checkpoint of its own deletes later rows, which come again.
- A sink leaves a target only if all transactions of the checkpoint are committed there. The sink tells. If it cannot,
  an exported savepoint is believed, because it is copied after all sinks have committed it.
- A sink does not begin where the job has rows of its own: in a target of another sink of the checkpoint, or in one that
  a sink has left. ``begin`` might delete them.
- A target that newer checkpoints of this job's own directory name was begun after the restored checkpoint: the sink
  recovers there, with no transactions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dataflow.contracts.sink import Handle, TakenBack, TwoPhaseSink
from dataflow.errors import CheckpointError, CheckpointMismatch, ConfigurationError, OutputExists, RowsTakenBackWarning
from dataflow.planning.specs import Write
from dataflow.protocol.events import BarrierKind
from dataflow.protocol.recovery import ByPath, parse
from dataflow.runtime.task.contract_checks import naming_sink
from dataflow.runtime.task.crash_points import Point, Probe, no_probe
from dataflow.store.manifest import EarlierTarget
from dataflow.untrusted import excerpt

if TYPE_CHECKING:
    from dataflow.planning.graph import Graph
    from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
    from dataflow.runtime.task.notices import Notices
    from dataflow.store.base import CheckpointStore
    from dataflow.store.manifest import Manifest

__all__ = [
    "SinkStarts",
    "SinkTargets",
    "begin_sinks",
    "check_sinks",
    "note_taken_back",
    "refuse_sinks_inside",
    "with_targets",
]

EarlierTargets = Mapping[str, Sequence[EarlierTarget]]


@dataclass(frozen=True, slots=True)
class SinkTargets:
    """The target of each two-phase sink that has one, by name, and the targets that sinks have left, oldest first."""

    now: Mapping[str, str] = field(default_factory=dict)
    earlier: EarlierTargets = field(default_factory=dict)

    @staticmethod
    def of(sinks: Mapping[str, TwoPhaseSink], restored: Manifest | None) -> SinkTargets:
        """Return the targets of ``sinks`` in a job that starts from a checkpoint, or from nothing."""
        now = {name: target for name, sink in sinks.items() if (target := sink.target) is not None}
        if restored is None:
            return SinkTargets(now)
        earlier = {name: tuple(restored.earlier_targets.get(name, ())) for name in sinks}
        for name, target in now.items():
            if (stored := restored.targets.get(name, target)) != target:
                earlier[name] = (*earlier[name], EarlierTarget(stored, restored.checkpoint))
        return SinkTargets(now, {name: targets for name, targets in earlier.items() if targets})


def with_targets(restored: RestoredCheckpoint, sinks: Mapping[str, TwoPhaseSink]) -> RestoredCheckpoint:
    """Return ``restored`` with a report on the targets that ``sinks`` have left, now or in an earlier restore."""
    earlier = SinkTargets.of(sinks, restored.manifest).earlier
    return replace(restored, report=replace(restored.report, earlier_targets=earlier))


def refuse_sinks_inside(restore: object, graph: Graph) -> None:
    """Raise ConfigurationError for a sink that writes into the folder that ``restore`` names. Call it before ``hold``.

    No job changes a checkpoint of another directory.
    """
    request = parse(restore)
    if not isinstance(request, ByPath):
        return
    folder = os.path.realpath(request.path)
    for node in graph:
        target = node.spec.sink.target if isinstance(node.spec, Write) else None
        if target is None or not os.path.isabs(target):
            continue  # names of tables, for example
        if os.path.commonpath([folder, os.path.realpath(target)]) == folder:
            raise ConfigurationError(
                f"sink {node.name!r} writes to {target}, inside of the checkpoint that restore={request.path!r} names, "
                "which stays as it is; let the sink write to another directory"
            )


@dataclass(frozen=True, slots=True)
class SinkStarts:
    """The calls with which the sinks start, after all checks: ``begins``, and ``recovers`` with their transactions.

    ``checkpoint`` is the restored one; None: the job starts from nothing. ``columns`` has the
    present columns of the sinks whose columns have changed since.
    """

    begins: Mapping[str, TwoPhaseSink]
    recovers: Mapping[str, tuple[TwoPhaseSink, Sequence[Handle]]] = field(default_factory=dict)
    checkpoint: int | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def carry_out(self, notices: Notices, probe: Probe = no_probe) -> None:
        """Start each sink. Raises: errors of ``begin`` and ``recover``."""
        for name, sink in self.begins.items():
            if self.checkpoint is not None:
                probe(Point.RECOVERY)
            with naming_sink(name, sink, "begin"):
                sink.begin()
        for name, (sink, handles) in self.recovers.items():
            assert self.checkpoint is not None, "only a restore recovers"
            probe(Point.RECOVERY)
            with naming_sink(name, sink, "recover"):
                taken_back = sink.recover(self.checkpoint, handles)
            if name in self.columns:
                with naming_sink(name, sink, "change_columns"):
                    sink.change_columns(self.checkpoint, self.columns[name])
            note_taken_back(notices, name, taken_back, f"checkpoint {self.checkpoint} was restored")


def check_sinks(
    graph: Graph,
    sinks: Mapping[str, TwoPhaseSink],
    restored: RestoredCheckpoint | None,
    store: CheckpointStore,
    *,
    take_back: bool = False,
) -> SinkStarts:
    """Return how ``sinks`` of ``graph``, by name, start. All of them are held. Nothing is changed.

    Args:
        graph: the pipeline.
        sinks: its two-phase sinks.
        restored: the checkpoint that the job starts from; None: it starts from nothing.
        store: the checkpoints of the job's own directory.
        take_back: whether rows may be deleted that were committed after a checkpoint elsewhere.

    Raises: OutputExists, CheckpointMismatch, SchemaMismatch, and errors of the sinks, if one cannot start there.
    """
    if restored is None:
        _check_targets(graph, sinks)
        return SinkStarts(sinks)
    manifest = restored.manifest
    begun_later = {} if restored.is_elsewhere else _later_targets(store, manifest.checkpoint)
    stored_sinks = {node["name"] for node in manifest.nodes}
    begins: dict[str, TwoPhaseSink] = {}
    recovers: dict[str, tuple[TwoPhaseSink, Sequence[Handle]]] = {}
    for name, sink in sinks.items():
        handles, target = manifest.transactions.get(name, []), sink.target
        stored = manifest.targets.get(name, target)
        if name in stored_sinks and target in (None, stored):
            recovers[name] = sink, handles
            if restored.is_elsewhere and target is not None:
                _check_later_rows(name, sink, restored, handles, take_back=take_back)
            continue
        if target is not None:
            _refuse_own_rows(name, target, manifest)
        if stored is not None and stored != target:
            _check_committed(name, sink, stored, restored, handles)
        if target in begun_later.get(name, ()):
            recovers[name] = sink, []
        else:
            begins[name] = sink
    _check_targets(graph, begins)
    changed = {change.operator for change in restored.report.evolved if change.piece is not None}
    columns = {node.name: node.schema.names for node in graph if node.name in recovers and node.name in changed}
    return SinkStarts(begins, recovers, manifest.checkpoint, columns)


def begin_sinks(graph: Graph, sinks: Mapping[str, TwoPhaseSink], notices: Notices) -> None:
    """Prepare ``sinks`` of ``graph``, by name, for a fresh start. If one refuses its target, none is changed."""
    _check_targets(graph, sinks)
    SinkStarts(sinks).carry_out(notices)


def _check_targets(graph: Graph, sinks: Mapping[str, TwoPhaseSink]) -> None:
    """Check that each sink may begin at its target, as it is now."""
    schemas = {node.name: graph.schema_of(node.inputs[0]) for node in graph if node.name in sinks}
    for name, sink in sinks.items():
        with naming_sink(name, sink, "check_target"):
            sink.check_target(schemas[name])


def _later_targets(store: CheckpointStore, checkpoint: int) -> Mapping[str, set[str]]:
    """Return the targets that checkpoints of ``store`` after ``checkpoint`` name, by sink."""
    targets: dict[str, set[str]] = {}
    for later in store.checkpoints():
        if later > checkpoint:
            try:
                manifest = store.manifest(later)
            except CheckpointError:  # the restore has passed it over, with a warning
                continue
            for name, target in manifest.targets.items():
                targets.setdefault(name, set()).add(target)
    return targets


def _check_later_rows(
    name: str, sink: TwoPhaseSink, restored: RestoredCheckpoint, handles: Sequence[Handle], *, take_back: bool
) -> None:
    """Raise OutputExists if rows were committed after the checkpoint, unless ``take_back``; errors of the sink."""
    what = _described(restored)
    try:
        with naming_sink(name, sink, "would_take_back"):
            later = sink.would_take_back(restored.manifest.checkpoint, handles)
    except NotImplementedError as error:
        if take_back:
            return
        raise OutputExists(
            f"{what}: rows that sink {name!r} committed to {sink.target} after this checkpoint would come a second "
            f"time, and {type(sink).__name__} cannot tell whether there are any: define its would_take_back(), let it "
            "write to another target, or pass take_back=True to delete rows that were committed later"
        ) from error
    if later is not None and not take_back:
        raise OutputExists(
            f"{what}: {_rows(later)} that sink {name!r} committed to {sink.target} after this checkpoint would come a "
            "second time: let the sink write to another target, or pass take_back=True to delete them"
        )


def _check_committed(
    name: str, sink: TwoPhaseSink, stored: str, restored: RestoredCheckpoint, handles: Sequence[Handle]
) -> None:
    """Raise OutputExists unless ``handles`` are committed at ``stored``, the target that the sink leaves."""
    with naming_sink(name, sink, "uncommitted"):
        uncommitted = sink.uncommitted(stored, handles)
    where = f"{_described(restored)}: sink {name!r} writes to {sink.target} now, and wrote to {excerpt(stored)}"
    advice = "restore with that target, so that they are committed there"
    if uncommitted is None:
        is_export = restored.is_elsewhere and restored.manifest.kind == BarrierKind.SAVEPOINT.value
        if handles and not is_export:
            raise OutputExists(
                f"{where}; the checkpoint holds {_transactions(handles)}, and nothing tells whether they are committed "
                f"there: {advice}, or restore an exported savepoint, which holds only committed ones"
            )
    elif uncommitted:
        raise OutputExists(
            f"{where}, where it has not committed {_transactions(uncommitted)} of the checkpoint, so that their rows "
            f"would be lost: {advice}"
        )


def _refuse_own_rows(name: str, target: str, manifest: Manifest) -> None:
    """Raise CheckpointMismatch if this job has earlier rows in ``target``, where sink ``name`` would begin."""
    owners = [(other, stored, manifest.checkpoint) for other, stored in manifest.targets.items()]
    owners += [
        (other, left.target, left.checkpoint) for other, earlier in manifest.earlier_targets.items() for left in earlier
    ]
    for other, _, checkpoint in [owner for owner in owners if owner[1] == target]:
        raise CheckpointMismatch(
            f"sink {name!r} would begin in {target}, which holds the rows of sink {excerpt(other)} up to checkpoint "
            f"{checkpoint}, so that they could be deleted or mixed: let it write to another target"
        )


def note_taken_back(notices: Notices, sink: str, taken: TakenBack | None, why: str) -> None:
    """Record the committed rows that ``sink`` deleted because ``why``; ``taken`` is the result of ``recover``."""
    if taken is not None:
        notices.add(
            RowsTakenBackWarning,
            f"{why}, so {_rows(taken)} that sink {sink!r} had committed later were deleted; this run produces them "
            "again",
        )


def _described(restored: RestoredCheckpoint) -> str:
    return f"checkpoint {restored.manifest.checkpoint} in {restored.report.location}"


def _rows(taken: TakenBack) -> str:
    rows = "1 row" if taken.rows == 1 else f"{taken.rows:,} rows"
    return f"{rows} in {taken.files:,} {'file' if taken.files == 1 else 'files'}"


def _transactions(handles: Sequence[Handle]) -> str:
    return "1 transaction" if len(handles) == 1 else f"{len(handles):,} transactions"
