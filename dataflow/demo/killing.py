"""SIGKILL in the middle of a checkpoint, for certain: stop the process, look, and kill it only if the moment is right.

A stopped process changes no files, so what is seen in its checkpoint directory is what the kill leaves behind. The
moment is right when a checkpoint is complete and a later one has parts but no manifest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dataflow.clock import Clock, SystemClock, duration_text, microseconds
from dataflow.demo.job import AGGREGATE, DelaysJob
from dataflow.errors import CheckpointError
from dataflow.store.directory import DirectoryStore

__all__ = ["Missed", "Scene", "kill_in_checkpoint", "look"]

_GLANCE = 0.004
"""Seconds between two looks at the directory."""
_LIMIT = microseconds("2min")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a kill leaves behind: complete checkpoints, and one in progress with ``parts`` parts.

    ``duplicated`` rows are delivered to the aggregate twice when the newest complete checkpoint is restored.
    """

    completed: tuple[int, ...]
    in_progress: int
    parts: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Missed:
    """The process could not be killed at a right moment."""

    reason: str


def look(checkpoints: Path) -> Scene | None:
    """The scene in a checkpoint directory; None: no checkpoint is complete, or none is in progress behind it."""
    store = DirectoryStore(checkpoints)
    completed, newest = store.checkpoints(), store.highest_id()
    if not completed or newest <= completed[-1]:
        return None
    parts = len(list(store.folder(newest).path.glob("*.part")))
    if not parts:
        return None
    duplicated = int(store.manifest(completed[-1]).summary["duplicated"].get(AGGREGATE, 0))
    return Scene(tuple(completed), newest, parts, duplicated)


def kill_in_checkpoint(
    job: DelaysJob, right: Callable[[Scene], bool], *, clock: Clock | None = None, limit: int = _LIMIT
) -> Scene | Missed:
    """Run ``job`` in a process of its own and kill it at the first ``right`` moment.

    Args:
        right: chooses among the moments at which a later checkpoint is in progress.
        limit: microseconds after which it is given up (and killed all the same).
    """
    clock = clock or SystemClock()
    started = clock.now()
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "killed-process.log"
    command = [sys.executable, "-m", "dataflow.demo.job", msgspec.json.encode(job).decode()]
    with log.open("wb") as errors, _Victim(command, errors.fileno()) as victim:
        while not victim.ended_within(_GLANCE):
            scene = _glance(job.checkpoints)
            if scene is not None and right(scene) and victim.stop():
                scene = _glance(job.checkpoints)
                if scene is not None and right(scene):
                    victim.kill()
                    return scene
                victim.go_on()
            if clock.now() - started > limit:
                return Missed(f"no checkpoint was in progress at a right moment in {duration_text(limit)}")
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
