"""A process and all that it starts: held, let go on and killed together.

They share a POSIX session, which stays theirs when a parent dies, and when a process makes a group of its own, as
Spark's workers do.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["ProcessTree"]


class ProcessTree:
    """``command``, in a session of its own, its output in the file ``log``; all gone when the block is left."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def __enter__(self) -> ProcessTree:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def returncode(self) -> int:
        code = self._process.returncode
        assert code is not None, "the process has not ended"
        return code

    def ended_within(self, seconds: float) -> bool:
        """Whether the process itself is over; wait so long for it."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> bool:
        """Hold them all; True when nothing moves in the process any more, False where it ended meanwhile."""
        if self._process.poll() is not None:
            return False
        self._tell(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def go_on(self) -> None:
        self._tell(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all that are left, stopped or not; wait until the process itself is gone."""
        self._tell(signal.SIGKILL)
        self._process.wait()

    def _tell(self, what: signal.Signals) -> None:
        """Send a signal to each, also to those that were started meanwhile.

        The id of the session is that of the process, and no other's as long as there is somebody in the session.
        """
        told: set[int] = set()
        while fresh := self._members() - told:
            for pid in sorted(fresh):
                with suppress(ProcessLookupError):
                    os.kill(pid, what)
            told |= fresh

    def _members(self) -> set[int]:
        return {pid for pid in _all_processes() if _session(pid) == self._process.pid}


def _all_processes() -> list[int]:
    if Path("/proc/self/stat").exists():
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
    return [int(word) for word in listed.stdout.split()]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
