"""The thread of a job, whose end others wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["JobThread"]


class JobThread:
    """Calls a function on a daemon thread.

    When ``wait`` returns True, the thread has ended and not only the function: a thread that still frees Arrow buffers
    while the interpreter exits would abort the process.

    >>> thread = JobThread(lambda: None, "example")
    >>> thread.start()
    >>> thread.wait(60), thread.is_set()
    (True, True)
    """

    def __init__(self, function: Callable[[], None], name: str) -> None:
        self._function: Callable[[], None] | None = function
        self._returned = threading.Event()
        self._thread = threading.Thread(target=self._call, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises: RuntimeError if the system has no more threads."""
        self._thread.start()

    def _call(self) -> None:
        function, self._function = self._function, None
        assert function is not None, "a thread is started once"
        try:
            function()
        finally:
            self._returned.set()

    def is_set(self) -> bool:
        """Return whether the function has returned."""
        return self._returned.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to ``seconds`` (None: without limit) for the end of the thread; return whether it has come."""
        # not join() alone: an interrupted join() of a running thread counts it as ended (CPython 3.11, 3.12)
        if not self._returned.wait(seconds):
            return False
        if self._thread is not threading.current_thread():
            self._thread.join()
        return True
