"""Kill a process at a chosen moment, for certain: stop it, look at its checkpoints, and kill it if the moment is right.

A stopped process changes no files, so its checkpoint directory stays as it was seen when the kill follows.
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

__all__ = ["MissedKill", "Moment", "kill_at", "kill_moment"]

_POLL_INTERVAL = 0.004
"""Seconds between two looks at the directory."""
_LIMIT = microseconds("10min")


@dataclass(frozen=True, slots=True)
class MissedKill:
    """A process that could not be killed at the right moment; ``reason`` says why."""

    reason: str


class Moment(Enum):
    """Whether it is time to kill the process."""

    NOT_YET = "not yet"
    RIGHT = "right"
    TOO_LATE = "too late"


def kill_moment(point: KillPoint, scene: Scene, patience: int = 1) -> Moment:
    """Return whether ``scene`` is the right moment for ``point``, with checkpoint ``patience`` or a later one complete.

    >>> kill_moment(KillPoint.IN_CHECKPOINT, Scene(complete=3, in_progress=4)).value
    'right'
    >>> kill_moment(KillPoint.BEFORE_CHECKPOINT, Scene(complete=1)).value
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
) -> Scene | MissedKill:
    """Run ``trial`` in a process of its own, and kill it with its child processes when the moment is right.

    Args:
        trial: the run to kill.
        when: returns whether a scene is the right moment.
        clock: measures ``limit``; None: the system's clock.
        limit: microseconds until the attempt is given up; the process is killed then, too.

    Returns: the scene that the kill left, or why there was none.
    """
    clock = clock or SystemClock()
    started = clock.now()
    folder = Path(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "killed-process.log"
    with ProcessTree(trial.command("never"), log) as victim:
        while not victim.ended_within(_POLL_INTERVAL):
            moment = _current_moment(trial, when)
            if moment is Moment.TOO_LATE:
                return MissedKill("a checkpoint was complete before the kill")
            if moment is Moment.RIGHT and victim.stop():
                if _current_moment(trial, when) is Moment.RIGHT:
                    victim.kill()
                    scene = trial.look()
                    if when(scene) is Moment.RIGHT:
                        return scene
                    return MissedKill("the checkpoint was complete when the process died")
                victim.resume()
            if clock.now() - started > limit:
                return MissedKill(f"the right moment did not come within {duration_text(limit)}")
        code = victim.returncode
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "no output"
        return MissedKill(f"the job failed by itself with exit code {code} ({last}; its output is in {log})")
    return MissedKill("the job ended before the right moment for the kill")


def _current_moment(trial: Trial, when: Callable[[Scene], Moment]) -> Moment:
    """Return the moment of the current scene; not yet, if files change while they are read."""
    try:
        return when(trial.look())
    except (CheckpointError, OSError):
        return Moment.NOT_YET
