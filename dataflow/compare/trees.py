"""A process with its child processes: stopped, resumed and killed together.

They share a POSIX session. A process stays in it when its parent dies, and when it makes a process group of its own, as
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
    """A running ``command`` with its child processes, in a session of its own.

    Its output is appended to the file ``log``. All processes are killed at the end of the ``with`` block.
    """

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
        """The exit code of the ended process."""
        code = self._process.returncode
        assert code is not None, "the process has not ended"
        return code

    def ended_within(self, seconds: float) -> bool:
        """Wait up to ``seconds``, and return whether the process itself has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> bool:
        """Stop all processes, and return whether they are stopped; False: the process itself has ended."""
        if self._process.poll() is not None:
            return False
        self._signal_all(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def resume(self) -> None:
        """Continue all stopped processes."""
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes with SIGKILL, stopped or not, and wait for the process itself."""
        self._signal_all(signal.SIGKILL)
        self._process.wait()

    def _signal_all(self, number: signal.Signals) -> None:
        """Send a signal to each process, also to processes that start meanwhile.

        The session has the id of the process. The id is not used again while a process of the session is alive.
        """
        signalled: set[int] = set()
        while members := self._members() - signalled:
            for pid in sorted(members):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= members

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
