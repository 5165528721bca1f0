"""SIGKILL at a chosen moment, for certain: stop the process, look, and kill it only if the moment is right.

A stopped process changes no files, so what is seen in its checkpoint directory is what the kill leaves behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from dataflow.clock import Clock, SystemClock, duration_text, microseconds
from dataflow.compare.options import KillPoint, Scene
from dataflow.compare.trial import Trial
from dataflow.errors import CheckpointError
from dataflow.store.directory import DirectoryStore

__all__ = ["Missed", "Moment", "kill_at", "look", "moment"]

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


def look(checkpoints: Path) -> Scene:
    """The scene in a checkpoint directory. Raises: CheckpointError, OSError where a process is at work there."""
    store = DirectoryStore(checkpoints)
    completed, newest = store.checkpoints(), store.highest_id()
    complete = completed[-1] if completed else 0
    underway = newest > complete and any(store.folder(newest).path.glob("*.part"))
    in_progress = newest if underway else 0
    if not complete:
        return Scene(in_progress=in_progress)
    summary = store.manifest(complete).summary
    return Scene(complete, in_progress, summary["duplicated"], summary["in_flight_rows"])


def kill_at(
    trial: Trial, when: Callable[[Scene], Moment], *, clock: Clock | None = None, limit: int = _LIMIT
) -> Scene | Missed:
    """Run ``trial`` in a process of its own and kill it when the moment is right.

    Args:
        limit: microseconds after which it is given up (and killed all the same).
    """
    clock = clock or SystemClock()
    started = clock.now()
    folder = Path(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "killed-process.log"
    command = [sys.executable, "-m", "dataflow.compare.trial", msgspec.json.encode(trial).decode()]
    with log.open("wb") as errors, _Victim(command, errors.fileno()) as victim:
        while not victim.ended_within(_GLANCE):
            scene = _glance(trial.checkpoints)
            seen = Moment.NOT_YET if scene is None else when(scene)
            if seen is Moment.TOO_LATE:
                return Missed("a checkpoint was complete before the kill")
            if seen is Moment.RIGHT and victim.stop():
                scene = _glance(trial.checkpoints)
                if scene is not None and when(scene) is Moment.RIGHT:
                    victim.kill()
                    return scene
                victim.go_on()
            if clock.now() - started > limit:
                return Missed(f"no right moment came in {duration_text(limit)}")
        code = victim.returncode
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        return Missed(f"the job failed by itself with exit code {code} ({lines[-1] if lines else 'it said nothing'})")
    return Missed("the job came to its end before the right moment for the kill")


def _glance(checkpoints: Path) -> Scene | None:
    """``look`` while the process may be at work there."""
    try:
        return look(checkpoints)
    except (CheckpointError, OSError):
        return None


class _Victim:
    """A process that is always gone when the block is left."""

    def __init__(self, command: list[str], errors: int) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def __enter__(self) -> _Victim:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    @property
    def returncode(self) -> int:
        code = self._process.returncode
        assert code is not None, "the process has not ended"
        return code

    def ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> bool:
        """Hold it; True when nothing moves in it any more, False where it ended meanwhile."""
        self._process.send_signal(signal.SIGSTOP)
        if self._process.returncode is not None:
            return False
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, stopped or not, and wait until it is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
