"""Count Ctrl-C instead of raising an exception at an arbitrary point.

KeyboardInterrupt can be raised between any two instructions of the main thread, also while it holds the lock inside a
``threading.Event``, which then stays locked for ever. A signal that arrives right before a wait without a timeout is
only handled after it. So a thread that waits for a job counts signals, and waits in slices.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["CtrlC"]


class CtrlC:
    """While entered, Ctrl-C adds one to ``count`` and has no other effect.

    It replaces only Python's own handler, or a handler for which ``replaces`` returns True, and only in the main
    thread; any other handler stays installed. On exit the previous handler is restored.

    >>> with CtrlC() as pressed:
    ...     signal.raise_signal(signal.SIGINT)
    ...     pressed.count
    1
    """

    def __init__(self, replaces: Callable[[Any], bool] = lambda handler: False) -> None:
        self.count = 0
        self._replaces = replaces
        self._previous: Any = None

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        ordinary = handler is signal.default_int_handler or self._replaces(handler)
        if ordinary and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._add)
            self._previous = handler
        return self

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
