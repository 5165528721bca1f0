"""Faults of a simulated run, and a store that fails on purpose.

Faults are data: the scheduler draws from the seed of the run which faults happen, and when. An attempt ends when the
job ends, or a crash kills the simulated process. A crash is always followed by another process. After an error the job
restarts in the same process, if ``run(restarts=)`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dataflow.contracts.checkpointing import Checkpointing
from dataflow.errors import CheckpointDamaged
from dataflow.runtime.task.crash_points import Point
from dataflow.store.base import CheckpointStore
from dataflow.store.files import Buffer, Content, FileSystem
from dataflow.store.manifest import STATE, Manifest, PartHandle

__all__ = ["Faults", "FaultyStore"]


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that may happen in a simulated run, and how often.

    Attributes:
        crashes: the maximum number of crashes. An attempt may end before its crash is due.
        crash_at: the places of crashes: points, and ``"alignment"`` (a snapshot waits for barriers), ``"recording"`` (a
            snapshot is taken, and its channel state waits for barriers) or ``"step"`` (anywhere). Each crash draws
            one place that the attempt can reach, and how often it is passed before the crash. A place listed twice is
            drawn twice as often.
        crash_after: the numbers of durable checkpoints, one drawn per attempt, before its crash is due.
        skew: probability that a task is slow for a whole attempt, so that barriers arrive far apart.
        stall: probability per scheduler turn that a task stops for a while.
        slices: probability that a task takes no more than a few rows per step, for a whole attempt.
        joins: probability that an attempt joins some of the batches that wait, that a source task is polled later than
            it could be, that an aggregate keeps rows back before a shuffle, and that it folds batches whether that pays
            or not. These draws have generators of their own, derived from the seed, so that they leave all other draws
            as they are.
        wall_steps: probability per scheduler turn that the wall clock steps, forward or back, by up to two days. Time
            by the clock must go on all the same. These draws have a generator of their own.
        little_room: probability that the channels of an attempt hold only a few bytes. These draws have a generator of
            their own, too.
        slow: probability that a background job is delayed.
        fail: probability that a writing operation of the store raises StoreError.
        damage: probability that the end of an attempt damages a part of the newest checkpoint, if there is an older
            one.
        restart_with: settings from which each attempt after the first draws, such as another mode; empty: all attempts
            use the job's own. Checkpoints are always stored where the job's own settings say.
        rescale_to: the numbers of subtasks from which each attempt after the first draws; empty: all attempts have that
            of the job. These draws have a generator of their own.

    >>> Faults(crashes=2, crash_at=["alignment"]).crashes
    2
    """

    crashes: int = 0
    crash_at: Sequence[Point | str] = ("step", "alignment", "recording", *Point)
    crash_after: Sequence[int] = (0, 1, 2)
    skew: float = 0.0
    stall: float = 0.0
    slices: float = 0.0
    joins: float = 0.0
    wall_steps: float = 0.0
    little_room: float = 0.0
    slow: float = 0.0
    fail: float = 0.0
    damage: float = 0.0
    restart_with: Sequence[Checkpointing] = ()
    rescale_to: Sequence[int] = ()


class FaultyStore(CheckpointStore):
    """A store whose writing operations may fail, and whose parts may be damaged.

    ``maybe_fail`` is called with each operation, and with the part if it is the write of one.
    """

    def __init__(self, store: CheckpointStore, maybe_fail: Callable[..., None], on_commit: Callable[[], None]) -> None:
        self._inner = store
        self._maybe_fail = maybe_fail
        self._on_commit = on_commit
        self.damaged: set[int] = set()

    @property
    def location(self) -> str:
        return self._inner.location

    @property
    def file_system(self) -> FileSystem:
        return self._inner.file_system

    def open(self, run_id: str = "run") -> None:
        self._inner.open(run_id)

    def close(self) -> None:
        self._inner.close()

    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        self._maybe_fail(f"write part {part} of {task}", part)
        return self._inner.write(checkpoint, task, data, part)

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
        if (handle.checkpoint or checkpoint) in self.damaged:
            raise CheckpointDamaged(f"injected: the part of {handle.task} in checkpoint {checkpoint} is damaged")
        return self._inner.read(checkpoint, handle)

    def pin(self, checkpoint: int) -> AbstractContextManager[object]:
        return self._inner.pin(checkpoint)

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        self._maybe_fail(f"discard {checkpoint}")
        self._inner.discard(checkpoint, parts)

    def retire(self, checkpoint: int) -> None:
        self._maybe_fail(f"retire {checkpoint}")
        self._inner.retire(checkpoint)

    def abandon(self, checkpoint: int) -> None:
        self._maybe_fail(f"abandon {checkpoint}")
        self._inner.abandon(checkpoint)

    def highest_id(self) -> int:
        return self._inner.highest_id()

    def remove_orphans(self) -> list[int]:
        return self._inner.remove_orphans()

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        return self._inner.remains(task, above) if limit is None else self._inner.remains(task, above, limit)
