"""SIGKILL at a chosen moment, for certain: stop the processes, look, and kill them only if the moment is right.

A stopped process changes no files, so what is seen in its checkpoint directory is what the kill leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dataflow.clock import Clock, SystemClock, duration_text, microseconds
from dataflow.compare.options import KillPoint, Scene
from dataflow.compare.trees import ProcessTree
from dataflow.compare.trial import Trial
from dataflow.errors import CheckpointError

__all__ = ["Missed", "Moment", "kill_at", "moment"]

_GLANCE = 0.004
"""Seconds between two looks at the directory."""
_LIMIT = microseconds("10min")


@dataclass(frozen=True, slots=True)
class Missed:
    """The process could not be killed at a right moment."""

    reason: str


class Moment(Enum):
    """Whether to kill now."""

    NOT_YET = "not yet"
    RIGHT = "right"
    TOO_LATE = "too late"


def moment(point: KillPoint, scene: Scene, patience: int = 1) -> Moment:
    """Whether ``scene`` is what ``point`` asks for, with checkpoint ``patience`` or a later one complete.

    >>> moment(KillPoint.IN_CHECKPOINT, Scene(complete=3, in_progress=4)).value
    'right'
    >>> moment(KillPoint.BEFORE_CHECKPOINT, Scene(complete=1)).value
    'too late'
    """
    if point is KillPoint.BEFORE_CHECKPOINT and scene.complete:
        return Moment.TOO_LATE
    underway = scene.in_progress > 0
    right = {
        KillPoint.IN_CHECKPOINT: scene.complete >= patience and underway,
        KillPoint.AFTER_CHECKPOINT: scene.complete >= patience and not underway,
        KillPoint.BEFORE_CHECKPOINT: underway,
        KillPoint.NONE: False,
    }
    return Moment.RIGHT if right[point] else Moment.NOT_YET


def kill_at(
    trial: Trial, when: Callable[[Scene], Moment], *, clock: Clock | None = None, limit: int = _LIMIT
) -> Scene | Missed:
    """Run ``trial`` in a process of its own and kill it, with all it started, when the moment is right.

    Args:
        limit: microseconds after which it is given up (and killed all the same).
    """
    clock = clock or SystemClock()
    started = clock.now()
    folder = Path(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "killed-process.log"
    with ProcessTree(trial.command("never"), log) as victim:
        while not victim.ended_within(_GLANCE):
            seen = _seen(trial, when)
            if seen is Moment.TOO_LATE:
                return Missed("a checkpoint was complete before the kill")
            if seen is Moment.RIGHT and victim.stop():
                if _seen(trial, when) is Moment.RIGHT:
                    victim.kill()
                    left = trial.look()
                    return left if when(left) is Moment.RIGHT else Missed("the checkpoint was through when it died")
                victim.go_on()
            if clock.now() - started > limit:
                return Missed(f"no right moment came in {duration_text(limit)}")
        code = victim.returncode
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        return Missed(f"the job failed by itself with exit code {code} ({lines[-1] if lines else 'it said nothing'})")
    return Missed("the job came to its end before the right moment for the kill")


def _seen(trial: Trial, when: Callable[[Scene], Moment]) -> Moment:
    """What ``when`` says of the scene, at which somebody may be at work."""
    try:
        return when(trial.look())
    except (CheckpointError, OSError):
        return Moment.NOT_YET
