"""What may go wrong in a simulated run, what became of each life, and a store that fails on purpose.

Faults are data: which of them happens when is drawn by the scheduler, from the seed of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.errors import CheckpointDamaged, CheckpointError
from dataflow.runtime.restore.find_checkpoint import RestoreReport
from dataflow.runtime.task.crash_points import Point
from dataflow.store.base import CheckpointStore
from dataflow.store.files import Buffer
from dataflow.store.manifest import Manifest, PartHandle

__all__ = ["Attempt", "Faults", "FaultyStore"]


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong, and how often.

    Attributes:
        crashes: how many times the process dies, at most. A life may end before its crash was due.
        crash_at: where: points, and ``"alignment"`` (a snapshot waits for barriers), ``"recording"`` (a snapshot is
            taken, and its channel state waits for barriers) or ``"step"`` (anywhere); each crash draws one of those
            this life can come to, and the number of chances it lets pass.
            One named twice is drawn twice as often.
        crash_after: how many checkpoints a life has made durable before its crash is due; drawn for each.
        skew: chance that a task is slow for a whole life, so that barriers arrive far apart.
        stall: chance per scheduler turn that some task stops for a while.
        slices: chance that a task takes no more than a few rows a step, for a whole life.
        slow: chance that a background job waits a while before it runs.
        fail: chance that a writing operation of the store raises StoreError.
        damage: chance that a death leaves a part of the newest checkpoint damaged, where there is an older one.
        restarts: how often a job that failed because a checkpoint did is started again.
        restart_with: settings that each life after the first draws one of, such as those of another mode; none: all
            lives have the job's own. Checkpoints are kept where the job's own settings say.
    """

    crashes: int = 0
    crash_at: Sequence[Point | str] = ("step", "alignment", "recording", *Point)
    crash_after: Sequence[int] = (0, 1, 2)
    skew: float = 0.0
    stall: float = 0.0
    slices: float = 0.0
    slow: float = 0.0
    fail: float = 0.0
    damage: float = 0.0
    restarts: int = 0
    restart_with: Sequence[Checkpointing] = ()


@dataclass(slots=True)
class Attempt:
    """One life of the process: what it restored, what it completed, and where it died (None: it did not).

    ``highest`` is the highest checkpoint id in the store at birth. ``mode`` is that of the checkpoints it takes, None:
    it takes none. ``failure`` is the error of the job, if it failed. ``time`` is the life's simulated time, in
    microseconds.
    """

    highest: int = 0
    mode: Mode | None = None
    restored: RestoreReport | None = None
    checkpoints: list[int] = field(default_factory=list)
    duplicated: int = 0
    in_flight: int = 0
    blocked: int = 0
    crash: str | None = None
    failure: CheckpointError | None = None
    turns: int = 0
    time: int = 0


class FaultyStore(CheckpointStore):
    """A store whose writing operations may be refused, and whose parts may be damaged."""

    def __init__(
        self, store: CheckpointStore, maybe_fail: Callable[[str], None], on_commit: Callable[[], None]
    ) -> None:
        self._inner = store
        self._maybe_fail = maybe_fail
        self._on_commit = on_commit
        self.damaged: set[int] = set()

    @property
    def location(self) -> str:
        return self._inner.location

    def open(self, run_id: str = "run") -> None:
        self._inner.open(run_id)

    def close(self) -> None:
        self._inner.close()

    def write(self, checkpoint: int, task: str, data: Buffer) -> PartHandle:
        self._maybe_fail(f"write the part of {task}")
        return self._inner.write(checkpoint, task, data)

    def commit(self, manifest: Manifest) -> None:
        self._maybe_fail(f"write manifest {manifest.checkpoint}")
        self._inner.commit(manifest)
        self._on_commit()

    def checkpoints(self) -> list[int]:
        return self._inner.checkpoints()

    def manifest(self, checkpoint: int) -> Manifest:
        return self._inner.manifest(checkpoint)

    def manifest_size(self, checkpoint: int) -> int:
        return self._inner.manifest_size(checkpoint)

    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        if checkpoint in self.damaged:
            raise CheckpointDamaged(f"injected: the part of {handle.task} in checkpoint {checkpoint} is damaged")
        return self._inner.read(checkpoint, handle)

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        self._maybe_fail(f"discard {checkpoint}")
        self._inner.discard(checkpoint, parts)

    def retire(self, checkpoint: int) -> None:
        self._maybe_fail(f"retire {checkpoint}")
        self._inner.retire(checkpoint)

    def highest_id(self) -> int:
        return self._inner.highest_id()

    def remove_orphans(self) -> list[int]:
        return self._inner.remove_orphans()

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        return self._inner.remains(task, above) if limit is None else self._inner.remains(task, above, limit)
