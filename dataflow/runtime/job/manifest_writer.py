"""Commit manifests to the checkpoint store and delete old files, off the thread of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

from dataflow.clock import OperatorClock
from dataflow.errors import CheckpointError, CheckpointPinned, CleanupFailedWarning, StoreError
from dataflow.planning.physical_plan import Plan
from dataflow.protocol.coordinator_actions import Persist
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.job.checkpoint_attempts import CheckpointAttempt
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.messages import Crashed
from dataflow.runtime.task.services import Identity, Services
from dataflow.store.manifest import FORMAT, Manifest, PartHandle

__all__ = ["ManifestWriter", "PersistFailed", "Persisted", "manifest_of"]


@dataclass(frozen=True, slots=True)
class Persisted:
    """The manifest is durable: the checkpoint exists."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """The store could not commit the manifest."""

    checkpoint: int
    why: str


def manifest_of(
    action: Persist, attempt: CheckpointAttempt, identity: Identity, plan: Plan, clock: OperatorClock
) -> Manifest:
    """Return the manifest of a checkpoint whose parts are all durable.

    Every task has taken its snapshot. So no operator has seen a time by the clock that is later than the stored one.
    A savepoint is an ordinary checkpoint of the store: only its copy in the user's directory has another kind.
    """
    kind = BarrierKind.CHECKPOINT if action.kind is BarrierKind.SAVEPOINT else action.kind
    return Manifest(
        format=FORMAT,
        checkpoint=action.checkpoint,
        kind=kind.value,
        pipeline=identity.pipeline,
        nodes=tuple(dict(node) for node in plan.describe()),
        mode=identity.mode.value,
        guarantee=identity.guarantee.value,
        finished=action.kind is BarrierKind.FINAL,
        created=clock.wall(),
        run_id=identity.run_id,
        job=identity.job,
        parent=identity.parent,
        parts=tuple(part for _, _, task in plan.tasks() for part in cast(tuple[PartHandle, ...], action.parts[task])),
        transactions={sink: [dict(h) for h in handles] for sink, handles in attempt.transactions.items()},
        summary=attempt.summary(clock.now()),
        execution=plan.execution.value,
        repeated=identity.repeated,
        time=clock.time(),
        targets=dict(identity.targets),
        earlier_targets={sink: tuple(targets) for sink, targets in identity.earlier_targets.items()},
    )


class ManifestWriter:
    """Background work on the store, in the order of the calls; the outcome of each manifest is reported to the job."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # Checkpoints still to be deleted, and those of them that were being read. Single operations on them are atomic.
        self._retiring: set[int] = set()
        self._pinned: set[int] = set()

    def persist(self, manifest: Manifest) -> None:
        """Make ``manifest`` durable. All parts that it names are durable."""

        def run() -> None:
            try:
                self._services.probe(Point.MANIFEST)
                self._services.store.commit(manifest)
                self._services.probe(Point.DURABLE)
            except (StoreError, OSError) as error:
                self._services.mailbox.put(PersistFailed(manifest.checkpoint, str(error)))
            except Exception as error:
                self._services.mailbox.put(Crashed("coordinator", error))
            else:
                self._services.mailbox.put(Persisted(manifest.checkpoint))

        self._services.submit("store", run)

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        """Delete parts that no manifest will name."""
        self._clean_up(lambda: self._services.store.discard(checkpoint, parts))

    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint that newer ones replace, and earlier ones that could not be deleted while they were read.

        One that is being read is tried again with the next one, and at the end of the job; else the next job has it.
        """
        self._retiring.add(checkpoint)
        for replaced in [*sorted(self._pinned), checkpoint]:
            self._clean_up(partial(self._retire, replaced))

    def sweep(self) -> None:
        """Delete replaced checkpoints that are left and every unfinished checkpoint, on the caller's thread.

        Call it after the job has ended, while it still holds the store and no background work is left.
        """
        for checkpoint in sorted(self._retiring):
            self._delete(partial(self._retire, checkpoint))
        self._delete(self._services.store.remove_orphans)

    def _retire(self, checkpoint: int) -> None:
        try:
            self._services.store.retire(checkpoint)
        except CheckpointPinned:
            self._pinned.add(checkpoint)
        else:
            self._retiring.discard(checkpoint)
            self._pinned.discard(checkpoint)

    def _clean_up(self, call: Callable[[], object]) -> None:
        self._services.submit("store", lambda: self._delete(call))

    def _delete(self, call: Callable[[], object]) -> None:
        """Run ``call``. If it fails, the files stay until the next start removes them."""
        try:
            call()
        except (CheckpointError, OSError) as error:
            self._services.notices.add(
                CleanupFailedWarning,
                f"cannot delete old files of checkpoints in {self._services.store.location}: {error}",
            )
