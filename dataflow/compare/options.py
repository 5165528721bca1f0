"""The options of a comparison: modes, checkpoint interval, slow operators, and the moment of the kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dataflow.contracts.checkpointing import Mode
from dataflow.runtime.task.channel import DEFAULT_CREDIT

__all__ = ["KillPoint", "Options", "RunnerName", "Scene"]


class RunnerName(Enum):
    """The runner of the pipeline, by its name on the command line."""

    LOCAL = "local"
    SPARK = "spark"

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The checkpoint modes that the runner supports."""
        return tuple(Mode) if self is RunnerName.LOCAL else (Mode.ALIGNED,)


class KillPoint(Enum):
    """The moment of the kill, as seen in the checkpoint directory of the process.

    ``IN_CHECKPOINT``: a checkpoint is complete, and a later one is being written.
    ``AFTER_CHECKPOINT``: a checkpoint is complete, and nothing of a later one is written.
    ``BEFORE_CHECKPOINT``: the first checkpoint is being written, so there is nothing to restore.
    ``NONE``: the process is not killed.
    """

    IN_CHECKPOINT = "in-checkpoint"
    AFTER_CHECKPOINT = "after-checkpoint"
    BEFORE_CHECKPOINT = "before-checkpoint"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Scene:
    """The state of a checkpoint directory, such as a kill leaves it.

    Attributes:
        complete: number of the newest complete checkpoint; 0: none.
        in_progress: number of a later checkpoint that has parts but no manifest; 0: none.
        duplicated: rows that a restore of ``complete`` delivers a second time, by operator.
        in_flight: rows that a restore of ``complete`` puts back into channels.
    """

    complete: int = 0
    in_progress: int = 0
    duplicated: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """How each mode is run and killed. Durations are texts such as "50ms".

    Attributes:
        modes: the modes to try, in this order.
        every: time between two checkpoints.
        slow: time that an operator waits for each row, by operator.
        kill: the moment of the kill.
        parallelism: subtasks of each operator that does not set its own number.
        credit: batches that a channel holds before its writer must wait; long queues delay barriers.
        alignment_timeout: how long mode ``aligned-timeout`` aligns; None: 100ms.
        attempts: number of processes to start at most until one is killed at the right moment.
        patience: the number of the first checkpoint that must be complete before the kill.
        is_telling: returns whether a scene has what is typical of a mode; the kill waits for such a scene, and takes
            any scene in the last attempt. None: repeated deliveries or in-flight rows, if the run without a kill had
            checkpoints with them.
        runner: the runner; on Spark a micro-batch is a checkpoint, and ``every``, ``slow`` and ``credit`` are ignored.
        rows_per_trigger: rows that a micro-batch reads, on Spark.
    """

    modes: Sequence[Mode] = tuple(Mode)
    every: str = "100ms"
    slow: Mapping[str, str] = field(default_factory=dict)
    kill: KillPoint = KillPoint.IN_CHECKPOINT
    parallelism: int = 2
    credit: int = DEFAULT_CREDIT
    alignment_timeout: str | None = None
    attempts: int = 5
    patience: int = 1
    is_telling: Callable[[Mode, Scene], bool] | None = None
    runner: RunnerName = RunnerName.LOCAL
    rows_per_trigger: int = 1_000_000
