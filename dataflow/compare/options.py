"""What a comparison may be told: modes, interval, slow operators, and where the kill strikes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dataflow.contracts.checkpointing import Mode

__all__ = ["KillPoint", "Options", "RunnerName", "Scene"]


class RunnerName(Enum):
    """What runs the pipeline."""

    LOCAL = "local"
    SPARK = "spark"

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The checkpoint modes it has."""
        return tuple(Mode) if self is RunnerName.LOCAL else (Mode.ALIGNED,)


class KillPoint(Enum):
    """When the process is killed, as its checkpoint directory shows it.

    ``IN_CHECKPOINT``: a checkpoint is complete, and a later one is being written.
    ``AFTER_CHECKPOINT``: a checkpoint is complete, and nothing of a later one is written.
    ``BEFORE_CHECKPOINT``: the first checkpoint is being written, so there is nothing to restore.
    ``NONE``: not at all.
    """

    IN_CHECKPOINT = "in-checkpoint"
    AFTER_CHECKPOINT = "after-checkpoint"
    BEFORE_CHECKPOINT = "before-checkpoint"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a kill leaves behind, by checkpoint id; 0: there is none.

    ``complete`` is the newest complete checkpoint; restoring it delivers ``duplicated`` rows twice, by operator, and
    re-injects ``in_flight`` rows. ``in_progress`` is a later one that has parts but no manifest.
    """

    complete: int = 0
    in_progress: int = 0
    duplicated: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """How each mode is tried. Durations are texts such as "50ms".

    Attributes:
        slow: operators by name, and how long each waits for every row.
        credit: batches a channel holds; long queues show what back-pressure does to barriers.
        alignment_timeout: of mode ``aligned-timeout``.
        attempts: processes that are started until one is killed at the right moment.
        patience: the lowest id of the checkpoint that may be the newest complete one at the kill.
        shows: whether a scene shows what the mode does; another one is taken at the last attempt only. None: a scene
            with duplicates or rows in flight, where the undisturbed run had checkpoints with them.
        runner: on Spark a micro-batch is a checkpoint, and ``every``, ``slow`` and ``credit`` do not count.
        rows_per_trigger: rows that a micro-batch takes.
    """

    modes: Sequence[Mode] = tuple(Mode)
    every: str = "100ms"
    slow: Mapping[str, str] = field(default_factory=dict)
    kill: KillPoint = KillPoint.IN_CHECKPOINT
    parallelism: int = 2
    credit: int = 4
    alignment_timeout: str | None = None
    attempts: int = 5
    patience: int = 1
    shows: Callable[[Mode, Scene], bool] | None = None
    runner: RunnerName = RunnerName.LOCAL
    rows_per_trigger: int = 1_000_000
